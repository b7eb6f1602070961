"""`mhpatchcore calibrate part.mhpc --false-alarm 0.5% -o part.mhpc`"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated

import numpy as np
import typer

from mhpatchcore.calibration.choices import rate_that_finds
from mhpatchcore.cli import options
from mhpatchcore.cli.command import Answer, Run, command
from mhpatchcore.cli.console import counted
from mhpatchcore.cli.facts import summary, threshold_before, threshold_lines, warn_without_threshold
from mhpatchcore.cli.paths import check_file, given_images
from mhpatchcore.detector import Detector
from mhpatchcore.errors import UserError
from mhpatchcore.inputs.sources import list_images


@command("workers", "store", "store_limit", "skip_broken")
def calibrate(
    model: options.Model,
    false_alarm: options.FalseAlarm = None,
    images: list[Path] = typer.Option(
        None,
        "--with",
        metavar="IMAGES",
        help="Further good parts, which the model has not learnt from: a folder, a file, or - for a list on standard "
        "input; it can be given several times.",
    ),
    all_good: options.AllGood = False,
    threshold: float = typer.Option(
        None, metavar="SCORE", help="A threshold of your own instead of a rate: scores above it are rejected."
    ),
    add: bool = typer.Option(
        False, "--add", help="Add their scores to the stored ones instead of replacing them."
    ),
    defects: list[Path] = typer.Option(
        None, metavar="IMAGES", help="A few known defects: shows how many of them each rate would find."
    ),
    find: Annotated[
        float | None,
        options.share(
            "--find",
            "With --defects: take the threshold with the fewest false alarms that finds this share of them.",
        ),
    ] = None,
    output: Path = typer.Option(
        None, "--output", "-o", help="The model file to write (default: only show the threshold)."
    ),
    *,
    run: Run,
) -> Answer:
    """Set another threshold, at another rate of false alarms or from further good parts; nothing is fitted again.

    With a few known defects it shows what each rate would find: --defects parts/bad --find 95%. A number is a
    threshold too: --threshold 20.

    Example: mhpatchcore calibrate part.mhpc --false-alarm 0.5% --with parts/fresh -o part.mhpc
    """
    if add and not images:
        raise UserError("--add goes with --with: it adds the scores of those images")
    if find is not None and (not defects or false_alarm is not None):
        raise UserError("--find goes with --defects, and chooses the rate itself: leave --false-alarm out")
    check_file(output, "part.mhpc")
    before = Detector.load(model)
    detector = before.calibrated(
        false_alarm,
        given_images(images) if images else None,
        add=add,
        threshold=threshold,
        all_good=all_good,
        execution=run.execution,
    )
    known: list[float] | None = None
    if defects:
        results = run.scores(detector, list_images(given_images(defects)))
        known = [result.score for result in results if result is not None]
    if known is not None and find is not None:
        detector = detector.calibrated(rate_that_finds(detector.calibration, np.array(known), find))
    if output is not None:
        detector.save(output)
    warn_without_threshold(detector, output or model)
    facts = summary(detector, output or model, known) | {
        "threshold_before": before.threshold,
        "written": output is not None,
        "warnings": run.warnings,
    }
    written = f"wrote {output}" if output else f"not written; -o {model} would keep it"
    return Answer(facts, [*_lines(detector, before, known), written])


def _lines(detector: Detector, before: Detector, known: Sequence[float] | None) -> Iterator[str]:
    calibration = detector.calibration
    yield from threshold_lines(detector, "threshold   ", known)
    if calibration.judges:
        was = "" if detector.threshold == before.threshold else f"{threshold_before(before)}; "
        yield f"            {was}for pixels it is {calibration.pixel_threshold:.4g}"
    if calibration.n:
        yield f"from        {counted(calibration.n, 'image')}, {calibration.method}"
    if known is not None:
        found = sum(score > calibration.threshold for score in known)
        yield f"defects     {found} of {len(known)} exceed the threshold"
