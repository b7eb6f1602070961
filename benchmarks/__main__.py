"""Speed and memory as ratios within one run: `make bench DATA=/path/to/normal/images` (a folder of images).

Prints a table and writes benchmarks.json. `--networks` chooses among efficientnet_lite0, resnet18, resnet50 and
wide_resnet50_2 (random weights unless --weights names a file): for speed any weights do.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.fitting import fit_memory, fit_ratios
from benchmarks.scoring import scoring_ratios
from mhpatchcore.demo.dataset import write_demo_dataset
from mhpatchcore.inputs.images import images_below


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("data", nargs="?", help="a folder of normal images; made-up vials if there is none")
    parser.add_argument("--networks", default="efficientnet_lite0", help="names separated by commas")
    parser.add_argument("--weights", default=None, help="a weights file for the (single) network")
    parser.add_argument("--limit", type=int, default=200, help="at most so many images for times")
    parser.add_argument(
        "--memory", default="", help="numbers of images for the memory of a fit, e.g. 300,2875"
    )
    parser.add_argument("--parts", default="score,fit,start", help="what to measure")
    parser.add_argument("--out", default="benchmarks.json")
    options = parser.parse_args()
    folder = Path(options.data) if options.data else _made_up()
    images = images_below(folder)[: options.limit]
    results: list[dict[str, Any]] = []
    for network in options.networks.split(","):
        if "score" in options.parts:
            results += _show(scoring_ratios(images[:60], network, options.weights, (1000, 5000)))
        if "fit" in options.parts:
            results += _show(
                fit_ratios(images, network, options.weights, ((1000, 1024), (5000, 512), (5000, 4096)))
            )
        if options.memory:
            sizes = [int(n) for n in options.memory.split(",")]
            results += _show(fit_memory(folder, sizes, network, options.weights))
    if "start" in options.parts:
        results += _show(cold_start(images))
    Path(options.out).write_text(json.dumps(results, indent=1))


def cold_start(images: list[Path]) -> list[dict[str, Any]]:
    """Seconds from a new process to the first score, and of loading a model."""
    from mhpatchcore import Detector

    with tempfile.TemporaryDirectory() as scratch:
        model = Path(scratch) / "model.mhpc"
        Detector.fit(images[:40]).save(model)
        started = time.perf_counter()
        Detector.load(model)
        loading = time.perf_counter() - started
        command = [sys.executable, "-m", "mhpatchcore", "score", str(model), str(images[0]), "--quiet"]
        times = []
        for _ in range(3):
            started = time.perf_counter()
            subprocess.run(command, check=True, capture_output=True)
            times.append(time.perf_counter() - started)
    return [{"what": "new process to first score", "seconds": min(times), "load_model_s": loading}]


def _show(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    for row in rows:
        numbers = "  ".join(f"{k} {v:.3g}" for k, v in row.items() if isinstance(v, float | int))
        print(f"{row['what']:48} {numbers}", flush=True)
    return rows


def _made_up() -> Path:
    return (
        write_demo_dataset(Path(tempfile.gettempdir()) / "mhpatchcore-bench-vials", train=120)
        / "train"
        / "good"
    )


if __name__ == "__main__":
    main()
