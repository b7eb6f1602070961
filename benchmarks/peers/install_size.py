"""Megabytes on disk of packages and all they require: `python install_size.py NAME...` where they are installed."""

from __future__ import annotations

import re
import sys
from importlib.metadata import PackageNotFoundError, distribution


def installed_bytes(names: list[str]) -> int:
    waiting, seen, total = list(names), set(), 0
    while waiting:
        name = re.sub(r"[-_.]+", "-", waiting.pop()).lower()
        if name in seen:
            continue
        seen.add(name)
        try:
            package = distribution(name)
        except PackageNotFoundError:  # a requirement of another platform
            continue
        files = (package.locate_file(file) for file in package.files or ())
        total += sum(path.stat().st_size for path in files if path.is_file())  # type: ignore[attr-defined]
        wanted = [line for line in package.requires or () if "extra ==" not in line]
        waiting += [re.split(r"[\s<>=!~;\[(]", line, maxsplit=1)[0] for line in wanted]
    return total


if __name__ == "__main__":
    print(installed_bytes(sys.argv[1:]) / 1e6)
