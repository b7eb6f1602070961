"""Ask pip-audit about pinned packages, and say how much of it is known: `audit.py PIP-AUDIT LOCK`.

pip-audit asks a service on the network. Packages that this does not answer for are not safe, they are unknown: that is
said, and is no failure. A known vulnerability is one.
"""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any


def main(program: str, lock: str) -> int:
    command = [program, "--require-hashes", "--disable-pip", "--progress-spinner", "off", "--format", "json"]
    asked = subprocess.run([*command, "--requirement", lock], capture_output=True, text=True, check=False)
    try:
        packages: list[dict[str, Any]] = json.loads(asked.stdout)["dependencies"]
    except (ValueError, KeyError):
        why = (asked.stderr.strip().splitlines() or ["no answer"])[-1]
        print(f"audit: nothing is known, for the service cannot be asked ({why[:200]})")
        return 0
    known = [package for package in packages if "skip_reason" not in package]
    vulnerable = [(package, found) for package in known for found in package["vulns"]]
    for package, found in vulnerable:
        cure = ", ".join(found["fix_versions"]) or "no version yet"
        print(f"{package['name']} {package['version']}: {found['id']}, mended in {cure}")
    unknown = len(packages) - len(known)
    print(
        f"audit: {len(vulnerable)} vulnerabilities in {len(known)} packages; {unknown} are unknown to the service"
    )
    return 1 if vulnerable else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
