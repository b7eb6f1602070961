"""Judging a detector on labelled images, one at a time, in memory that does not grow with their number."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from mhpatchcore.detector import Detector
from mhpatchcore.errors import ImageError
from mhpatchcore.evaluation.metrics import ImageMetrics, image_metrics
from mhpatchcore.evaluation.pixel_metrics import PixelMetrics, PixelScores
from mhpatchcore.inputs.datasets import Dataset, Sample, read_mask
from mhpatchcore.result import Result
from mhpatchcore.runtime.arrays import Mask


@dataclass(frozen=True)
class Judged:
    """One test image and what the detector said of it."""

    path: Path
    kind: str
    is_anomalous: bool
    score: float
    flagged: bool
    p_value: float


@dataclass(frozen=True)
class Evaluation:
    """Metrics over a data set and the verdict on each image; `problems` are masks that could not be used."""

    name: str
    images: tuple[Judged, ...]
    image: ImageMetrics
    pixel: PixelScores | None
    threshold: float
    problems: tuple[str, ...]

    @property
    def false_alarms(self) -> list[Judged]:
        """Normal images over the threshold, worst first."""
        return sorted((j for j in self.images if j.flagged and not j.is_anomalous), key=lambda j: -j.score)

    @property
    def misses(self) -> list[Judged]:
        """Anomalous images below the threshold, worst first."""
        return sorted((j for j in self.images if j.is_anomalous and not j.flagged), key=lambda j: j.score)

    def summary(self) -> dict[str, Any]:
        pixel = {} if self.pixel is None else {f"pixel_{k}": v for k, v in asdict(self.pixel).items()}
        return {
            "dataset": self.name,
            **{f"image_{k}": v for k, v in asdict(self.image).items()},
            **pixel,
            "threshold": self.threshold,
            "false_alarms": len(self.false_alarms),
            "misses": len(self.misses),
        }


def evaluate(
    detector: Detector,
    dataset: Dataset,
    workers: int | None = None,
    watch: Callable[[Sample, Result], None] | None = None,
    progress: Callable[[str, int, int], None] | None = None,
    results: Iterable[Result | None] | None = None,
    skip_broken: bool = False,
) -> Evaluation:
    """Score every test image and compute metrics; `watch` sees each result (to draw it, say).

    `results` are those of all test images in order, where they are at hand already. With `skip_broken` images that
    cannot be read are told as problems and left out.
    """
    judged, problems = [], list(dataset.problems)
    pixels = PixelMetrics()
    total = len(dataset.test)
    if progress is not None:
        progress("score", 0, total)
    if results is None:
        on_error = (lambda error: problems.append(str(error))) if skip_broken else None
        results = detector.score_many([sample.path for sample in dataset.test], workers, on_error)
    for done, (sample, result) in enumerate(zip(dataset.test, results, strict=True), start=1):
        if result is not None:
            judged.append(_judged(sample, result))
            if dataset.has_masks:
                try:
                    mask = _truth(sample, result)
                    if mask is not None:
                        pixels.update(result.map, mask)
                except ImageError as error:
                    problems.append(str(error))
            if watch is not None:
                watch(sample, result)
        if progress is not None:
            progress("score", done, total)
    if not judged:
        raise ImageError(f"there is no test image in {dataset.name} that can be read: check the folder")
    labels = np.array([j.is_anomalous for j in judged])
    scores = np.array([j.score for j in judged])
    return Evaluation(
        name=dataset.name,
        images=tuple(judged),
        image=image_metrics(labels, scores),
        pixel=pixels.result() if dataset.has_masks else None,
        threshold=detector.threshold,
        problems=tuple(problems),
    )


def _judged(sample: Sample, result: Result) -> Judged:
    said = (result.score, result.is_anomalous, result.p_value)
    return Judged(sample.path, sample.kind, sample.is_anomalous, *said)


def _truth(sample: Sample, result: Result) -> Mask | None:
    """Where the defect is; nowhere on a normal image; None where an anomalous image has no mask."""
    size = (result.geometry.height, result.geometry.width)
    if not sample.is_anomalous:
        return np.zeros(size, bool)
    if sample.mask is None:
        return None
    mask = read_mask(sample.mask, *size)
    if not mask.any():
        raise ImageError(f"mask {sample.mask} of a defective image marks nothing; replace or remove it")
    return mask
