"""`python -m benchmarks.peers CATEGORY --weights resnet18.safetensors --python anomalib_patchcore=VENV/bin/python`

CATEGORY holds train/good and test/<good or defect>. Each implementation fits, scores and starts cold in processes of
its own, under its own interpreter; one that cannot run is reported and left out.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.commands import Row, parser_of, shown, write_json

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = {
    "anomalib_patchcore": ["anomalib", "torch", "torchvision", "torchcodec"],
    "plain_torch": ["torch", "numpy", "pillow", "safetensors"],
}
COLUMNS = {
    "": "{what}",
    "fit, s": "{fit_s:.1f}",
    "CPU, s": "{fit_cpu_s:.1f}",
    "score one image, ms": "{score_ms:.0f}",
    "CPU, ms": "{score_cpu_ms:.0f}",
    "peak, MB": "{peak_mb:,.0f}",
    "image AUROC": "{auroc:.3f}",
    "defects found, good rejected": "{verdicts}",
    "new process to first score, s": "{cold_s:.1f}",
    "installed, MB": "{install_mb:,.0f}",
    "model, MB": "{model_mb:.1f}",
}


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("data", type=Path)
    parser.add_argument(
        "--weights", required=True, help="ResNet-18 weights, torchvision's names (.safetensors)"
    )
    parser.add_argument(
        "--python", action="append", default=[], metavar="NAME=PATH", help="a peer's interpreter"
    )
    options = parser.parse_args()
    interpreters = dict.fromkeys(("ours", "ours_fast"), sys.executable)
    interpreters |= dict(pair.split("=", 1) for pair in options.python)
    rows = peer_rows(interpreters, options.data, options.weights)
    write_json(options.json, shown(rows, COLUMNS))


def peer_rows(interpreters: dict[str, str], data: Path, weights: str) -> Iterator[Row]:
    for name, python in interpreters.items():
        try:
            yield {"what": name, **measure(name, python, data, weights)}
        except subprocess.CalledProcessError as error:
            print(f"{name} does not run: {(error.stderr.strip().splitlines() or ['?'])[-1]}", file=sys.stderr)


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
