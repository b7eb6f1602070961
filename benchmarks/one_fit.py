"""One fit in a process of its own, measured: `python -m benchmarks.one_fit JSON` prints JSON."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from mhpatchcore.runtime.telemetry import Telemetry, cpu_seconds

UNLIMITED = 10**15


def measured_fit(
    folder: Path, images: int, weights: str | None = None, workers: int | None = None, **settings: Any
) -> dict[str, Any]:
    """Peak memory (MB, whole and by phase), its estimate, and seconds of a fit of the first `images` of a folder."""
    order = {
        "folder": str(folder),
        "images": images,
        "weights": weights,
        "workers": workers,
        "settings": settings,
    }
    command = [sys.executable, "-m", "benchmarks.one_fit", json.dumps(order)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(done.stderr.strip().splitlines()[-1])
    return dict(json.loads(done.stdout))


def main() -> None:
    order = json.loads(sys.argv[1])
    telemetry = Telemetry()
    from mhpatchcore import Detector
    from mhpatchcore.fitting.extraction import Execution
    from mhpatchcore.inputs.images import images_below

    images = images_below(Path(order["folder"]))[: order["images"]]
    foreseen: list[Any] = []
    workers = {"workers": order["workers"]} if order["workers"] else {}
    execution = Execution(memory=UNLIMITED, foresee=foreseen.append, progress=telemetry.progress, **workers)
    started, cpu = time.perf_counter(), cpu_seconds()
    detector = Detector.fit(images, weights=order["weights"], execution=execution, **order["settings"])
    telemetry.finish()
    answer = {
        "images": len(images),
        "seconds": time.perf_counter() - started,
        "cpu_seconds": cpu_seconds() - cpu,
        "rows": len(detector.bank_raw),
        "dimensions": detector.whitening.k,
        "baseline_mb": telemetry.baseline_rss / 1e6,
        "peak_mb": telemetry.peak_rss / 1e6,
        "estimate_mb": foreseen[0].peak / 1e6,
        "estimate": str(foreseen[0]),
        "phases_mb": {phase.name: phase.peak_rss / 1e6 for phase in telemetry.phases},
    }
    print(json.dumps(answer))


if __name__ == "__main__":
    main()
