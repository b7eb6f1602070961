"""What every adapter does: fit, score one image after the other, save; or load and score one. Standard library alone,
because adapters run under other interpreters than ours."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

SUFFIXES = (".png", ".jpg", ".jpeg", ".bmp")


def main(
    fit: Callable[[Sequence[Path], str, str], Any],
    score: Callable[[Any, Path], float],
    load: Callable[[str], Any],
    threshold: Callable[[Any], float] | None = None,
) -> None:
    """`fit(images, weights, model_path)` learns and saves; `score(model, image)` gives a number; `load(model_path)`.

    `threshold(model)` is the one that normal images alone give; without it nothing is judged.
    """
    order = json.loads(sys.argv[1])
    if order["mode"] == "cold":
        score(load(order["model"]), images_below(Path(order["data"]) / "test")[0])
        return
    train, test = (images_below(Path(order["data"]) / part) for part in ("train/good", "test"))
    started, cpu = time.perf_counter(), _cpu()
    model = fit(train, order["weights"], order["model"])
    fit_seconds, fit_cpu = time.perf_counter() - started, _cpu() - cpu
    score(model, test[0])  # warms up
    started, cpu = time.perf_counter(), _cpu()
    scores = [score(model, image) for image in test]
    anomalous = [image.parent.name != "good" for image in test]
    answer = {
        "images": len(train),
        "fit_s": fit_seconds,
        "fit_cpu_s": fit_cpu,
        "score_ms": 1e3 * (time.perf_counter() - started) / len(test),
        "score_cpu_ms": 1e3 * (_cpu() - cpu) / len(test),
        "peak_mb": _peak_kib() * 1024 / 1e6,
        "auroc": auroc(scores, anomalous),
        "verdicts": "–" if threshold is None else verdicts(scores, anomalous, threshold(model)),
        "model_mb": Path(order["model"]).stat().st_size / 1e6,
    }
    print(json.dumps(answer))


def images_below(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.suffix.lower() in SUFFIXES)


def auroc(scores: Sequence[float], anomalous: Sequence[bool]) -> float:
    """The share of (anomalous, normal) pairs in the right order.

    >>> auroc([1, 3, 2, 2], [False, True, True, False])
    0.875
    """
    high = [score for score, is_anomalous in zip(scores, anomalous, strict=True) if is_anomalous]
    low = [score for score, is_anomalous in zip(scores, anomalous, strict=True) if not is_anomalous]
    return sum((a > b) + (a == b) / 2 for a in high for b in low) / (len(high) * len(low))


def verdicts(scores: Sequence[float], anomalous: Sequence[bool], threshold: float) -> str:
    """How many defects are found and how many good parts rejected.

    >>> verdicts([1, 3, 2, 2], [False, True, True, False], 2.5)
    '1 of 2, 0 of 2'
    """
    rejected = [score > threshold for score in scores]
    bad = sum(above for above, is_bad in zip(rejected, anomalous, strict=True) if is_bad)
    return f"{bad} of {sum(anomalous)}, {sum(rejected) - bad} of {len(anomalous) - sum(anomalous)}"


def _peak_kib() -> int:
    """The high-water mark of this program; getrusage would count what ran in the process before it."""
    status = Path("/proc/self/status").read_text(encoding="utf-8").splitlines()
    return next(int(line.split()[1]) for line in status if line.startswith("VmHWM"))


def _cpu() -> float:
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system
