"""`mhpatchcore monitor part.mhpc SCORES.csv|DIR`"""

from __future__ import annotations

import csv
from collections.abc import Sequence
from contextlib import suppress
from math import isclose, isfinite, nan
from pathlib import Path
from typing import NamedTuple

import numpy as np

from mhpatchcore.cli import options
from mhpatchcore.cli.command import Answer, Run, command
from mhpatchcore.cli.console import warn
from mhpatchcore.detector import Detector
from mhpatchcore.errors import ImageError, UserError
from mhpatchcore.inputs.loading import MEASURES
from mhpatchcore.inputs.sources import list_images
from mhpatchcore.inspection.drift import SIGNIFICANCE, CameraDrift, camera_drift, compare, typical_file
from mhpatchcore.runtime.arrays import Array


class Scored(NamedTuple):
    """What is compared of an image; a measure of the camera that is not known is NaN."""

    score: float
    measures: Sequence[float]
    image: str


@command("skip_broken", "workers")
def monitor(
    model: options.Model,
    recent: Path = options.argument("Recent images: a folder, or what `score --csv` has written of them."),
    reference: Path = options.file("Compare with the scores of a good period (CSV), not the model's own."),
    significance: float = options.share(
        "How often no drift may be called one.", "--significance", default=str(SIGNIFICANCE)
    ),
    plot: Path = options.output("Write a picture of both distributions, e.g. drift.png.", "drift.png"),
    fail: bool = options.flag("--fail", "Exit with code 1 if there is a drift."),
    *,
    run: Run,
) -> Answer:
    """Has the line changed? Compare recent scores with those of the normal images behind the threshold, and how the
    camera sees the parts (light, focus, colour, place) with how it saw those that were learnt.

    Example: mhpatchcore monitor part.mhpc today.csv --plot drift.png
    """
    detector = Detector.load(model)
    threshold, before = detector.threshold, detector.calibration.scores
    learnt, known = detector.model.measures, None
    if reference is not None:
        good_period = read_table(reference, threshold)
        before = known = np.array([one.score for one in good_period])
        learnt = np.array([one.measures for one in good_period])
    now = read_table(recent, threshold) if recent.suffix.lower() == ".csv" else _scored(detector, recent, run)
    scores = np.array([one.score for one in now])
    drift = compare(scores, detector.calibration, known, significance)
    camera = camera_drift(np.array([one.measures for one in now]), learnt, significance)
    if plot is not None:
        from mhpatchcore.report.figures import drift_figure, write_plot

        pictures = _pictures(detector, camera, now[-1].image)
        write_plot(plot, drift_figure(scores, before, drift, pictures))
    facts = drift.to_json() | {"camera": camera.to_json(), "plot": plot and str(plot)}
    lines = [
        drift.verdict,
        camera.verdict,
        f"  {drift.reject_rate:.1%} of {drift.n} images exceed the threshold {threshold:.4g}, "
        f"where {drift.expected_rate:.1%} of good parts would (p = {drift.rejects_p:.2g})",
        f"  compared with {drift.n_reference} reference images; with the rejects: p = {drift.all_p:.2g}",
    ]
    if drift.upward_only:
        lines.append("  only a shift up shows against these: give --reference the scores of a good period")
    if plot is not None:
        lines.append(f"open: {plot}")
    return Answer(facts, lines, exit_code=int(fail and (drift.is_drift or camera.is_drift)))


def _pictures(detector: Detector, camera: CameraDrift, newest: str) -> dict[str, Array]:
    """If the camera has changed, a learnt image and the newest one, as far as they can be read."""
    from mhpatchcore.report.drawing import screen_pixels

    pictures, model = dict[str, Array](), detector.model
    if camera.is_drift:
        for title, file in (("as it was learnt", typical_file(model)), (camera.verdict, newest)):
            with suppress(ImageError):
                pictures |= {title: screen_pixels(file, model.config.views[0].window)} if file else {}
    return pictures


def read_table(path: Path, threshold: float) -> list[Scored]:
    """What `score --csv` has written, with a warning if its threshold is another: then the model may be another too."""
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            rows = [row for row in csv.DictReader(file) if not row.get("error")]
        measures = [[float(row.get(name) or nan) for name in MEASURES] for row in rows]
        scored = [
            Scored(float(row["score"]), seen, row.get("image") or "")
            for row, seen in zip(rows, measures, strict=True)
        ]
        thresholds = [float(row.get("threshold") or nan) for row in rows]
    except OSError as error:
        raise UserError(f"cannot read scores {path}: {error.strerror}; `score --csv` writes them") from error
    except (KeyError, TypeError, ValueError, csv.Error) as error:
        raise UserError(f"{path} has no column of scores ({error}); write it with `score --csv`") from error
    if not all(isfinite(one.score) for one in scored):
        raise UserError(f"{path} holds scores that are not numbers; write it with `score --csv`")
    if any(isfinite(one) and not isclose(one, threshold, rel_tol=1e-6) for one in thresholds):
        warn(f"{path} was written with another threshold: do the scores come from this model?")
    return scored


def _scored(detector: Detector, folder: Path, run: Run) -> list[Scored]:
    on_error = (lambda error: warn(f"skipped: {error}")) if run.execution.skip_broken else None
    results = run.scores(detector, list_images(folder), on_error)
    scored = [Scored(one.score, one.measures, one.path or "") for one in results if one is not None]
    if not scored:
        raise ImageError("none of the images could be read: check the folder")
    return scored
