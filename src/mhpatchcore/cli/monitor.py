"""`mhpatchcore monitor part.mhpc SCORES.csv|DIR`"""

from __future__ import annotations

import csv
from math import isclose, isfinite
from pathlib import Path

import numpy as np
import typer

from mhpatchcore.cli.console import (
    JsonFlag,
    QuietFlag,
    SkipBrokenFlag,
    WorkersOption,
    print_json,
    progress_display,
    warn,
)
from mhpatchcore.cli.paths import check_file
from mhpatchcore.cli.settings import share_parser
from mhpatchcore.detector import Detector
from mhpatchcore.errors import ImageError, UserError
from mhpatchcore.inputs.sources import list_images
from mhpatchcore.inspection.drift import SIGNIFICANCE, compare
from mhpatchcore.runtime.arrays import Doubles


def monitor(
    model: Path = typer.Argument(..., help="A model file written by `fit`."),
    recent: Path = typer.Argument(
        ..., help="Recent images: a folder of them, or what `score --csv` has written of them."
    ),
    reference: Path = typer.Option(
        None, help="Compare with these scores (a CSV of a good period) and not with the model's own."
    ),
    significance: float = typer.Option(
        str(SIGNIFICANCE),
        parser=share_parser("--significance"),
        metavar="SHARE",
        help="How often no drift may be called one.",
    ),
    plot: Path = typer.Option(None, help="Write a picture of both distributions, e.g. drift.png."),
    fail: bool = typer.Option(False, "--fail", help="Exit with code 1 if there is a drift."),
    skip_broken: bool = SkipBrokenFlag,
    workers: int = WorkersOption,
    as_json: bool = JsonFlag,
    quiet: bool = QuietFlag,
) -> None:
    """Has the line changed? Compare recent scores with those of the normal images behind the threshold.

    Example: mhpatchcore monitor part.mhpc today.csv --plot drift.png
    """
    check_file(plot, "drift.png", model, recent, reference)
    detector = Detector.load(model)
    threshold = detector.threshold
    known = None if reference is None else read_scores(reference, threshold)
    scores = (
        read_scores(recent, threshold)
        if recent.suffix.lower() == ".csv"
        else _scored(detector, recent, workers, skip_broken, quiet)
    )
    drift = compare(scores, detector.calibration, known, significance)
    if plot is not None:
        from mhpatchcore.report.drift import write_plot

        write_plot(plot, scores, detector.calibration.scores if known is None else known, drift)
    if as_json:
        print_json(drift.to_json() | {"plot": plot and str(plot)})
    else:
        print(drift.verdict)
        print(
            f"  {drift.reject_rate:.1%} of {drift.n} images exceed the threshold {threshold:.4g}, "
            f"where {drift.expected_rate:.1%} of good parts would (p = {drift.rejects_p:.2g})"
        )
        print(
            f"  compared with {drift.n_reference} reference images; with the rejects: p = {drift.all_p:.2g}"
        )
        if drift.upward_only:
            print("  only a shift up can be seen against these: give --reference the scores of a good period")
        if plot is not None:
            print(f"open: {plot}")
    if fail and drift.is_drift:
        raise typer.Exit(1)


def read_scores(path: Path, threshold: float) -> Doubles:
    """The scores (n,) in what `score --csv` has written, in its order."""
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            rows = [row for row in csv.DictReader(file) if not row.get("error")]
    except (OSError, ValueError, csv.Error) as error:
        raise UserError(f"cannot read scores {path}: {error}; write them with `score --csv`") from error
    try:
        scores = np.array([float(row["score"]) for row in rows])
    except (KeyError, TypeError, ValueError) as error:
        raise UserError(f"{path} has no column of scores ({error}); write it with `score --csv`") from error
    if not np.isfinite(scores).all():
        raise UserError(f"{path} holds scores that are no numbers; write it with `score --csv`")
    _warn_of_other_thresholds(rows, path, threshold)
    return scores


def _warn_of_other_thresholds(rows: list[dict[str, str]], path: Path, threshold: float) -> None:
    """Scores of another model are in another unit, and the threshold is where it shows."""
    try:
        told = [float(row["threshold"]) for row in rows]
    except (KeyError, TypeError, ValueError):
        return
    if any(isfinite(one) and not isclose(one, threshold, rel_tol=1e-6) for one in told):
        warn(
            f"{path} was written with another threshold than this model's: do the scores come from this model?"
        )


def _scored(detector: Detector, folder: Path, workers: int | None, skip_broken: bool, quiet: bool) -> Doubles:
    images = list_images(folder)
    scores = []
    with progress_display(quiet or len(images) < 2) as progress:
        progress("score", 0, len(images))
        on_error = (lambda error: warn(f"skipped: {error}")) if skip_broken else None
        for done, result in enumerate(detector.score_many(images, workers, on_error), start=1):
            if result is not None:
                scores.append(result.score)
            progress("score", done, len(images))
    if not scores:
        raise ImageError("none of the images could be read: check the folder")
    return np.array(scores)
