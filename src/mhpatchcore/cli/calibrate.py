"""`mhpatchcore calibrate part.mhpc --false-alarm 0.5% -o part.mhpc`"""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import numpy as np
import typer

from mhpatchcore.calibration.choices import choices, rate_that_finds
from mhpatchcore.cli.console import (
    AllGoodFlag,
    JsonFlag,
    QuietFlag,
    SkipBrokenFlag,
    StoreLimitOption,
    StoreOption,
    WorkersOption,
    counted,
    print_json,
    progress_display,
    warn_and_keep,
)
from mhpatchcore.cli.facts import print_threshold, summary, threshold_before, warn_without_threshold
from mhpatchcore.cli.paths import check_file, given_images
from mhpatchcore.cli.settings import share_parser
from mhpatchcore.detector import Detector
from mhpatchcore.errors import UserError
from mhpatchcore.fitting.execution import Execution
from mhpatchcore.inputs.sources import list_images
from mhpatchcore.runtime.arrays import Floats
from mhpatchcore.runtime.memory import parse_size
from mhpatchcore.runtime.parallel import available_cores


def calibrate(
    model: Path = typer.Argument(..., help="A model file."),
    false_alarm: float = typer.Option(
        None,
        parser=share_parser("--false-alarm"),
        metavar="SHARE",
        help="Share of good parts that may be rejected, such as 1% or 0.01 (default: as the model has it).",
    ),
    images: list[Path] = typer.Option(
        None,
        "--with",
        metavar="IMAGES",
        help="Further good parts, which the model has not learnt from: a folder, a file, or - for a list on standard "
        "input; it can be given several times.",
    ),
    all_good: bool = AllGoodFlag,
    threshold: float = typer.Option(
        None, metavar="SCORE", help="A threshold of your own instead of a rate: scores above it are rejected."
    ),
    add: bool = typer.Option(
        False, "--add", help="Add their scores to the stored ones instead of replacing them."
    ),
    defects: list[Path] = typer.Option(
        None, metavar="IMAGES", help="A few known defects: shows how many of them each rate would find."
    ),
    find: float = typer.Option(
        None,
        parser=share_parser("--find"),
        metavar="SHARE",
        help="With --defects: take the threshold with the fewest false alarms that finds this share of them.",
    ),
    output: Path = typer.Option(
        None, "--output", "-o", help="The model file to write (default: only show the threshold)."
    ),
    as_json: bool = JsonFlag,
    quiet: bool = QuietFlag,
    workers: int = WorkersOption,
    store: Path = StoreOption,
    store_limit: str = StoreLimitOption,
    skip_broken: bool = SkipBrokenFlag,
) -> None:
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
    warnings: list[str] = []
    with progress_display(quiet) as progress:
        execution = Execution(
            workers=workers or available_cores(),
            store=store,
            store_limit=parse_size(store_limit) if store_limit else None,
            skip_broken=skip_broken,
            progress=progress,
            warn=warn_and_keep(warnings),
        )
        detector = before.calibrated(
            false_alarm,
            given_images(images) if images else None,
            add=add,
            threshold=threshold,
            all_good=all_good,
            execution=execution,
        )
        known = _scores(detector, defects, execution) if defects else None
        if known is not None and find is not None:
            detector = detector.calibrated(rate_that_finds(detector.calibration, known, find))
        if output is not None:
            detector.save(output)
    facts = summary(detector, output or model) | {
        "threshold_before": before.threshold,
        "written": output is not None,
        "choices": [asdict(one) for one in choices(detector.calibration, known)],
        "warnings": warnings,
    }
    warn_without_threshold(detector, output or model)
    if as_json:
        print_json(facts)
        return
    calibration = detector.calibration
    print_threshold(detector, "threshold   ", known)
    if calibration.judges:
        print(f"            {threshold_before(before)}; for pixels it is {calibration.pixel_threshold:.4g}")
    if calibration.n:
        print(f"from        {counted(calibration.n, 'image')}, {calibration.method}")
    if known is not None:
        found = int((known > calibration.threshold).sum())
        print(f"defects     {found} of {len(known)} exceed the threshold")
    print(f"wrote {output}" if output else f"not written; -o {model} would keep it")


def _scores(detector: Detector, defects: list[Path], execution: Execution) -> Floats:
    """The scores of known defects."""
    images = list_images(given_images(defects))
    scores = []
    with execution.phase("score", len(images)) as advance:
        for done, result in enumerate(detector.score_many(images, execution.workers), start=1):
            scores += [] if result is None else [result.score]
            advance(done)
    return np.array(scores)
