"""`mhpatchcore monitor part.mhpc SCORES.csv|DIR`"""

from __future__ import annotations

import csv
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from math import isclose, isfinite, nan
from pathlib import Path

import numpy as np
import typer

from mhpatchcore.cli import options
from mhpatchcore.cli.command import Answer, Run, command
from mhpatchcore.cli.console import warn
from mhpatchcore.cli.paths import check_file
from mhpatchcore.detector import Detector
from mhpatchcore.errors import ImageError, UserError
from mhpatchcore.inputs.loading import MEASURES
from mhpatchcore.inputs.sources import list_images
from mhpatchcore.inspection.drift import SIGNIFICANCE, CameraDrift, Drift, camera_drift, compare, typical_file
from mhpatchcore.runtime.arrays import Array, Doubles


@command("skip_broken", "workers")
def monitor(
    model: options.Model,
    recent: Path = typer.Argument(
        ..., help="Recent images: a folder of them, or what `score --csv` has written of them."
    ),
    reference: Path = typer.Option(
        None, help="Compare with these scores (a CSV of a good period) and not with the model's own."
    ),
    significance: float = typer.Option(
        str(SIGNIFICANCE),
        parser=options.share_parser("--significance"),
        metavar="SHARE",
        help="How often no drift may be called one.",
    ),
    plot: Path = typer.Option(None, help="Write a picture of both distributions, e.g. drift.png."),
    fail: bool = typer.Option(False, "--fail", help="Exit with code 1 if there is a drift."),
    *,
    run: Run,
) -> Answer:
    """Has the line changed? Compare recent scores with those of the normal images behind the threshold, and how the
    camera sees the parts (light, focus, colour, place) with how it saw those that were learnt.

    Example: mhpatchcore monitor part.mhpc today.csv --plot drift.png
    """
    check_file(plot, "drift.png", model, recent, reference)
    detector = Detector.load(model)
    threshold = detector.threshold
    known = None if reference is None else read_table(reference, threshold)
    now = read_table(recent, threshold) if recent.suffix.lower() == ".csv" else _scored(detector, recent, run)
    drift = compare(now.scores, detector.calibration, None if known is None else known.scores, significance)
    learnt = detector.model.measures if known is None else known.measures
    camera = camera_drift(now.measures, learnt, significance)
    if plot is not None:
        from mhpatchcore.report.drift import write_plot

        before = detector.calibration.scores if known is None else known.scores
        write_plot(plot, now.scores, before, drift, _pictures(detector, camera, now.images[-1]))
    facts = drift.to_json() | {"camera": camera.to_json(), "plot": plot and str(plot)}
    lines = [drift.verdict, camera.verdict, *_lines(drift, threshold)]
    drifted = drift.is_drift or camera.is_drift
    return Answer(facts, lines + ([f"open: {plot}"] if plot else []), exit_code=int(fail and drifted))


def _lines(drift: Drift, threshold: float) -> Iterator[str]:
    yield (
        f"  {drift.reject_rate:.1%} of {drift.n} images exceed the threshold {threshold:.4g}, "
        f"where {drift.expected_rate:.1%} of good parts would (p = {drift.rejects_p:.2g})"
    )
    yield f"  compared with {drift.n_reference} reference images; with the rejects: p = {drift.all_p:.2g}"
    if drift.upward_only:
        yield "  only a shift up can be seen against these: give --reference the scores of a good period"


def _pictures(detector: Detector, camera: CameraDrift, newest: str) -> dict[str, Array]:
    """If the camera has changed, a learnt image and the newest one, as far as they can be read."""
    from mhpatchcore.report.drawing import screen_pixels

    pictures, model = dict[str, Array](), detector.model
    if camera.is_drift:
        for title, file in (("as it was learnt", typical_file(model)), (camera.verdict, newest)):
            with suppress(ImageError):
                pictures |= {title: screen_pixels(file, model.config.views[0].window)} if file else {}
    return pictures


@dataclass(frozen=True, eq=False)
class Scored:
    """Images in their order: their scores (n,) and what the camera's are measured by (n, m)."""

    scores: Doubles
    measures: Doubles
    images: tuple[str, ...]


def read_table(path: Path, threshold: float) -> Scored:
    """What `score --csv` has written. Of images of which nothing was measured the measures are NaN."""
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            rows = [row for row in csv.DictReader(file) if not row.get("error")]
    except (OSError, ValueError, csv.Error) as error:
        raise UserError(f"cannot read scores {path}: {error}; write them with `score --csv`") from error
    try:
        scores = np.array([float(row["score"]) for row in rows])
        measures = np.array([[float(row.get(name) or nan) for name in MEASURES] for row in rows])
    except (KeyError, TypeError, ValueError) as error:
        raise UserError(f"{path} has no column of scores ({error}); write it with `score --csv`") from error
    if not np.isfinite(scores).all():
        raise UserError(f"{path} holds scores that are no numbers; write it with `score --csv`")
    _warn_of_other_thresholds(rows, path, threshold)
    return Scored(scores, measures, tuple(row.get("image") or "" for row in rows))


def _warn_of_other_thresholds(rows: list[dict[str, str]], path: Path, threshold: float) -> None:
    """Scores of another model are in another unit, and the threshold is where it shows."""
    try:
        thresholds = [float(row["threshold"]) for row in rows]
    except (KeyError, TypeError, ValueError):
        return
    if any(isfinite(one) and not isclose(one, threshold, rel_tol=1e-6) for one in thresholds):
        warn(
            f"{path} was written with another threshold than this model's: do the scores come from this model?"
        )


def _scored(detector: Detector, folder: Path, run: Run) -> Scored:
    on_error = (lambda error: warn(f"skipped: {error}")) if run.execution.skip_broken else None
    results = [
        (result.score, result.measures, result.path or "")  # and not its maps
        for result in run.scores(detector, list_images(folder), on_error)
        if result is not None
    ]
    if not results:
        raise ImageError("none of the images could be read: check the folder")
    scores, measures, paths = zip(*results, strict=True)
    return Scored(np.array(scores), np.array(measures), paths)
