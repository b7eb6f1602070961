"""`mhpatchcore calibrate part.mhpc --false-alarm 0.005 -o part.mhpc`"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import typer

from mhpatchcore.calibration.conformal import Calibration
from mhpatchcore.cli.console import (
    JsonFlag,
    QuietFlag,
    SkipBrokenFlag,
    WorkersOption,
    counted,
    print_json,
    progress_display,
    warn_and_keep,
)
from mhpatchcore.cli.fit import summary, threshold_note
from mhpatchcore.cli.history import threshold_before
from mhpatchcore.cli.paths import check_file
from mhpatchcore.detector import Detector
from mhpatchcore.errors import UserError
from mhpatchcore.fitting.extraction import Execution
from mhpatchcore.runtime.parallel import available_cores

RATES = (0.1, 0.05, 0.02, 0.01, 0.005, 0.001)


def calibrate(
    model: Path = typer.Argument(..., help="A model file."),
    false_alarm: float = typer.Option(
        None, help="Share of good parts that may be rejected (default: as the model has it)."
    ),
    images: Path = typer.Option(
        None, "--with", help="A folder of further good parts, which the model has not learnt from."
    ),
    add: bool = typer.Option(
        False, "--add", help="Add their scores to the stored ones instead of replacing them."
    ),
    output: Path = typer.Option(
        None, "--output", "-o", help="The model file to write (default: only show the threshold)."
    ),
    skip_broken: bool = SkipBrokenFlag,
    workers: int = WorkersOption,
    as_json: bool = JsonFlag,
    quiet: bool = QuietFlag,
) -> None:
    """Set another threshold, at another rate of false alarms or from further good parts; nothing is fitted again.

    Example: mhpatchcore calibrate part.mhpc --false-alarm 0.005 --with parts/fresh -o part.mhpc
    """
    if add and images is None:
        raise UserError("--add goes with --with: it adds the scores of those images")
    check_file(output, "part.mhpc")
    before = Detector.load(model)
    skipped: list[str] = []
    with progress_display(quiet) as progress:
        execution = Execution(
            workers=workers or available_cores(),
            skip_broken=skip_broken,
            progress=progress,
            warn=warn_and_keep(skipped),
        )
        detector = before.calibrated(false_alarm, images, add=add, execution=execution)
        if output is not None:
            detector.save(output)
    facts = summary(detector, output or model) | {
        "threshold_before": before.threshold,
        "written": output is not None,
        "rates": _rates(detector.calibration),
        "skipped": skipped,
    }
    if as_json:
        print_json(facts)
        return
    calibration = detector.calibration
    print(f"threshold   {threshold_note(detector)}")
    print(f"            {threshold_before(before)}; for pixels it is {calibration.pixel_threshold:.4g}")
    print(f"from        {counted(calibration.n, 'image')}, {calibration.method}")
    print(f"rates       {', '.join(map(_told, facts['rates'])) or 'none of the usual ones'}")
    print(f"wrote {output}" if output else f"not written; -o {model} would keep it")


def _rates(calibration: Calibration) -> list[dict[str, Any]]:
    """The threshold at usual rates, for those that the images support."""
    return [
        {"false_alarm": rate, "threshold": calibration.at_rate(rate).threshold}
        for rate in RATES
        if calibration.at_rate(rate).supported_rate == rate
    ]


def _told(row: dict[str, Any]) -> str:
    return f"{row['false_alarm']:.1%}: {row['threshold']:.4g}"
