"""Judging a detector on labelled images, one at a time, in memory that does not grow with their number.

Images that the model has learnt from, which it knows by their content, are left out: on them it cannot fail.

Pixel figures are those of whole images. Where the model sees a crop of the image, as in the paper, they are those of
the preprocessed pair: the map of the view, and the mask resized (nearest) and cropped in the same way. The figures of
whole images, in which what lies beyond the crop counts as calm, then stand beside them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, replace
from math import isfinite, nan
from pathlib import Path
from typing import Any

import numpy as np

from mhpatchcore.calibration.choices import Choice, choices, realised_note
from mhpatchcore.detector import Detector
from mhpatchcore.errors import ImageError, UserError
from mhpatchcore.evaluation.metrics import ImageMetrics, PixelMetrics, PixelScores, image_metrics
from mhpatchcore.inputs.datasets import Dataset, Sample, read_mask
from mhpatchcore.inputs.sources import content_hash
from mhpatchcore.inputs.views import Geometry
from mhpatchcore.model.value import Model
from mhpatchcore.result import Result
from mhpatchcore.runtime.arrays import Floats, Mask

NAMED = 3  # of the images that were left out, in a line about them


@dataclass(frozen=True)
class Judged:
    """One test image and what the detector said of it.

    `flagged` is None where the model has no threshold. `located` says whether the predicted segmentation, or the peak
    of the map, lies on the defect; None where nobody has drawn the defect.
    """

    path: Path
    kind: str
    is_anomalous: bool
    score: float
    flagged: bool | None
    p_value: float
    located: bool | None = None


Watch = Callable[[Sample, Result, Judged], None]


@dataclass(frozen=True)
class Evaluation:
    """Metrics over a data set and the verdict on each image.

    Where the model sees a crop (`cropped`), `pixel` are the figures of views; `whole_pixel` are always those of whole
    images. `left_out` are test images that the model has learnt from. `problems` are lines about these and about
    images and masks that could not be used. `realised` is a sentence where good parts are rejected much more or less
    often than stated.
    """

    name: str
    images: tuple[Judged, ...]
    image: ImageMetrics
    pixel: PixelScores | None
    whole_pixel: PixelScores | None
    threshold: float
    problems: tuple[str, ...]
    left_out: tuple[Path, ...] = ()
    cropped: bool = False
    choices: tuple[Choice, ...] = ()
    realised: str = ""

    @property
    def has_threshold(self) -> bool:
        return isfinite(self.threshold)

    @property
    def false_alarms(self) -> list[Judged]:
        """Normal images over the threshold, worst first."""
        return sorted((j for j in self.images if j.flagged and not j.is_anomalous), key=lambda j: -j.score)

    @property
    def misses(self) -> list[Judged]:
        """Anomalous images below the threshold, worst first."""
        missed = (j for j in self.images if j.is_anomalous and j.flagged is False)
        return sorted(missed, key=lambda j: j.score)

    @property
    def rejected(self) -> list[Judged]:
        """Anomalous images over the threshold."""
        return [j for j in self.images if j.is_anomalous and j.flagged]

    @property
    def found(self) -> int | None:
        """How many of the rejected defects were found where they are; None where no defect is drawn."""
        drawn = [j for j in self.images if j.located is not None]
        return sum(bool(j.located) for j in drawn if j.flagged) if drawn else None

    @property
    def found_share(self) -> float:
        """The share of the defects that the threshold rejects; NaN without a threshold or a defect."""
        judged = self.has_threshold and self.image.n_anomalous
        return len(self.rejected) / self.image.n_anomalous if judged else nan

    @property
    def stated_rate(self) -> float | None:
        """The false-alarm rate that the threshold was set for; None if it is not known."""
        return next((choice.false_alarm for choice in self.choices if choice.in_use), None)

    def summary(self) -> dict[str, Any]:
        metrics = {"image": self.image, "pixel": self.pixel}
        metrics |= {"whole_pixel": self.whole_pixel} if self.cropped else {}
        return {
            "dataset": self.name,
            **{
                f"{of}_{name}": value
                for of, one in metrics.items()
                if one
                for name, value in vars(one).items()
            },
            "threshold": self.threshold,
            "stated_false_alarm_rate": self.stated_rate,
            "found_share": self.found_share,
            "choices": [asdict(one) for one in self.choices],
            "false_alarms": len(self.false_alarms) if self.has_threshold else None,
            "misses": len(self.misses) if self.has_threshold else None,
            "found_where_it_is": self.found if self.has_threshold else None,
            "left_out": [str(path) for path in self.left_out],
        }


def unseen(dataset: Dataset, model: Model) -> tuple[Dataset, tuple[Path, ...]]:
    """The data set without the test images that the model has learnt from, and these.

    Refused if nothing good or nothing defective remains.
    """
    learnt = {one for one in model.hashes if one}
    known = tuple(sorted(sample.path for sample in dataset.test if _content(sample.path) in learnt))
    if not known:
        return dataset, ()
    test = tuple(sample for sample in dataset.test if sample.path not in known)
    for anomalous, kind, folder in ((False, "good", "good"), (True, "defective", "defect")):
        n = sum(sample.is_anomalous == anomalous for sample in dataset.test)
        if n and not any(sample.is_anomalous == anomalous for sample in test):
            raise UserError(
                f"the model has learnt from all {n} {kind} test images of {dataset.name}, so they cannot test it: put "
                f"{kind} parts that it has not seen in a folder of their own and name it, `{folder}=NAME`"
            )
    names = ", ".join(map(str, known[:NAMED])) + (
        f" and {len(known) - NAMED} others" if len(known) > NAMED else ""
    )
    images = f"{len(known)} test image{'s' if len(known) > 1 else ''}"
    note = f"{images} left out, because the model has learnt from them: {names}"
    return replace(dataset, test=test, problems=(note, *dataset.problems)), known


def evaluate(
    detector: Detector,
    dataset: Dataset,
    workers: int | None = None,
    watch: Watch | None = None,
    progress: Callable[[str, int, int], None] | None = None,
    skip_broken: bool = False,
) -> Evaluation:
    """Score every test image that the model has not learnt from; `watch` sees each result (to draw it, say).

    With `skip_broken` images that cannot be read are listed as problems and left out.
    """
    (tested, left_out), broken = unseen(dataset, detector.model), list[str]()
    on_error = (lambda error: broken.append(str(error))) if skip_broken else None
    results = detector.score_many([sample.path for sample in tested.test], workers, on_error)
    evaluation = judge(detector, tested, results, watch, progress)
    return replace(evaluation, left_out=left_out, problems=(*evaluation.problems, *broken))


def judge(
    detector: Detector,
    dataset: Dataset,
    results: Iterable[Result | None],
    watch: Watch | None = None,
    progress: Callable[[str, int, int], None] | None = None,
) -> Evaluation:
    """The metrics of results, one for each test image in order; None is an image that could not be read."""
    judged, problems = list[Judged](), list(dataset.problems)
    cropped = detector.config.resize is not None
    whole_pixels, view_pixels = PixelMetrics(), PixelMetrics()
    for done, (sample, result) in enumerate(zip(dataset.test, results, strict=True), start=1):
        if result is not None:
            truth = None
            try:
                truth = _truth(sample, result) if dataset.has_masks else None
            except ImageError as error:
                problems.append(str(error))
            if truth is not None:
                whole_pixels.update(result.map, truth)
                if cropped:
                    view_pixels.update(*_as_the_model_sees(result, truth))
            located = is_located(result, truth) if sample.is_anomalous and truth is not None else None
            flagged = None if result.verdict == "no threshold" else result.is_rejected
            facts = (result.score, flagged, result.p_value)
            judged.append(Judged(sample.path, sample.kind, sample.is_anomalous, *facts, located))
            if watch is not None:
                watch(sample, result, judged[-1])
        if progress is not None:
            progress("score", done, len(dataset.test))
    if not judged:
        raise ImageError(f"there is no test image in {dataset.name} that can be read: check the folder")
    good = [j for j in judged if not j.is_anomalous]
    whole = whole_pixels.result() if dataset.has_masks else None
    return Evaluation(
        name=dataset.name,
        images=tuple(judged),
        image=image_metrics([j.is_anomalous for j in judged], [j.score for j in judged]),
        pixel=view_pixels.result() if dataset.has_masks and cropped else whole,
        whole_pixel=whole,
        cropped=cropped,
        threshold=detector.threshold,
        problems=tuple(problems),
        choices=tuple(choices(detector.calibration, [j.score for j in judged if j.is_anomalous])),
        realised=realised_note(detector.calibration, sum(bool(j.flagged) for j in good), len(good)),
    )


def is_located(result: Result, truth: Mask) -> bool:
    """Whether the predicted segmentation or the peak of the map lies on the defect, truth (H, W)."""
    at_peak = truth.ravel()[int(result.map.argmax())]
    return bool(at_peak or (result.mask & truth).any())


def _as_the_model_sees(result: Result, truth: Mask) -> tuple[Floats, Mask]:
    """Map and truth of the view that shows most of the image; of equal ones the finest."""
    view = max(result.views, key=lambda view: (view.geometry.bottom - view.geometry.top, view.size))
    return result.map_over(view.geometry.box, *view.size), mask_of_view(truth, view.geometry, *view.size)


def mask_of_view(mask: Mask, where: Geometry, height: int, width: int) -> Mask:
    """A mask (H, W) as a view of it shows it: resized to the nearest pixel, and cropped.

    >>> mask_of_view(np.eye(8, dtype=bool), Geometry(8, 8, 2, 2, 6, 6), 2, 2).tolist()
    [[True, False], [False, True]]
    """
    rows = where.top + (np.arange(height) + 0.5) * (where.bottom - where.top) / height
    columns = where.left + (np.arange(width) + 0.5) * (where.right - where.left) / width
    # a place between two pixels belongs to the second, however it was rounded
    return np.asarray(mask[np.ix_((rows + 1e-9).astype(int), (columns + 1e-9).astype(int))])


def _truth(sample: Sample, result: Result) -> Mask | None:
    """Where the defect is; nowhere on a normal image; None where an anomalous image has no mask."""
    if not sample.is_anomalous:
        return np.zeros(result.size, bool)
    if sample.mask is None:
        return None
    mask = read_mask(sample.mask, *result.size)
    if not mask.any():
        raise ImageError(f"mask {sample.mask} of a defective image marks nothing; replace or remove it")
    return mask


def _content(path: Path) -> str:
    try:
        return content_hash(path)
    except ImageError:
        return ""  # scoring it says what is wrong with it
