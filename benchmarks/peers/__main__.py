"""`python -m benchmarks.peers DATA --weights resnet18.safetensors --python anomalib_patchcore=VENV/bin/python`

DATA holds train/good and test/<good or defect>. Each implementation fits, scores and starts cold in processes of its
own, under its own interpreter; one that cannot run is reported and left out. Prints a table and writes peers.json.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
import tomllib
from pathlib import Path
from typing import Any

from mhpatchcore.runtime.files import write_text

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = {
    "anomalib_patchcore": ["anomalib", "torch", "torchvision", "torchcodec"],
    "plain_torch": ["torch", "numpy", "pillow", "safetensors"],
}
COLUMNS = (
    "fit_s",
    "fit_cpu_s",
    "score_ms",
    "score_cpu_ms",
    "peak_mb",
    "auroc",
    "cold_s",
    "install_mb",
    "model_mb",
)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("data", type=Path)
    parser.add_argument(
        "--weights", required=True, help="ResNet-18 weights, torchvision's names (.safetensors)"
    )
    parser.add_argument(
        "--python", action="append", default=[], metavar="NAME=PATH", help="a peer's interpreter"
    )
    parser.add_argument("--out", default="peers.json")
    options = parser.parse_args()
    interpreters = {"ours": sys.executable, **dict(pair.split("=", 1) for pair in options.python)}
    results = []
    for name, python in interpreters.items():
        try:
            results.append({"what": name, **measure(name, python, options.data, options.weights)})
        except subprocess.CalledProcessError as error:
            print(f"{name} does not run: {(error.stderr.strip().splitlines() or ['?'])[-1]}", file=sys.stderr)
            continue
        print(f"{name:20}" + "  ".join(f"{key} {results[-1][key]:.4g}" for key in COLUMNS), flush=True)
    write_text(options.out, json.dumps(results, indent=1) + "\n")


def measure(name: str, python: str, data: Path, weights: str) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as scratch:
        order = {"data": str(data), "weights": weights, "model": f"{scratch}/model"}
        module = f"benchmarks.peers.{name}"
        found = dict(
            json.loads(_run(python, "-m", module, json.dumps(order | {"mode": "fit"})).splitlines()[-1])
        )
        starts = []
        for _ in range(3):
            started = time.perf_counter()
            _run(python, "-m", module, json.dumps(order | {"mode": "cold"}))
            starts.append(time.perf_counter() - started)
    size = _run(
        python, str(Path(__file__).with_name("install_size.py")), *PACKAGES.get(name, _our_packages())
    )
    return found | {"cold_s": min(starts), "install_mb": float(size)}


def _our_packages() -> list[str]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return [line.split(">=")[0] for line in project["dependencies"]]


def _run(*command: str) -> str:
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "src")])}
    return subprocess.run(command, capture_output=True, text=True, check=True, env=environment).stdout


if __name__ == "__main__":
    main()
