"""`mhpatchcore update part.mhpc parts/returned -o part.mhpc`"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer

from mhpatchcore.cli import options
from mhpatchcore.cli.command import Answer, Run, command
from mhpatchcore.cli.console import counted, warn
from mhpatchcore.cli.facts import summary, threshold_before, threshold_lines, warn_without_threshold
from mhpatchcore.cli.paths import check_file, check_product, given_images
from mhpatchcore.detector import Detector

RISE = 1.1


@command("workers", "store", "store_limit", "skip_broken")
def update(
    model: options.Model,
    normals: list[Path] = typer.Argument(
        ...,
        help="Images of good parts that are new to the model: folders, files, or - for a list on standard input.",
    ),
    all_good: options.AllGood = False,
    stack: options.Stack = False,
    every: options.Every = 1,
    *,
    output: options.SameModelOutput,
    returned: bool = typer.Option(
        False,
        "--returned",
        help="They were picked because they had been rejected: learn them, but leave the threshold to the others.",
    ),
    other_product: options.OtherProduct = False,
    run: Run,
) -> Answer:
    """Learn from further images of good parts. The images learnt from before are not needed.

    Example: mhpatchcore update part.mhpc parts/returned --returned -o part.mhpc
    """
    check_file(output, "part.mhpc")
    before = Detector.load(model)
    check_product(output, before.model.product, other_product)
    images = given_images(normals, stack, every)
    detector = before.updated(images, returned=returned, all_good=all_good, execution=run.execution)
    detector.save(output)
    facts = summary(detector, output, history=True) | {
        "new_images": detector.history[-1].images,
        "threshold_before": before.threshold,
        "new_rows": _new_rows(detector, len(before.model.images)),
        "seconds": run.seconds,
        "warnings": run.warnings,
    }
    if before.calibration.n and detector.threshold > RISE * before.threshold:
        picked = "use --returned for parts that were picked because they had been rejected, and "
        warn(
            f"the threshold has risen from {before.threshold:.4g} to {detector.threshold:.4g}, so fewer defects are "
            f"found: {'' if returned else picked}`calibrate --with` a fair sample of today's parts"
        )
    warn_without_threshold(detector, output)
    return Answer(facts, _lines(facts, detector, before))


def _lines(facts: dict[str, Any], detector: Detector, before: Detector) -> Iterator[str]:
    new = counted(facts["new_images"], "new image")
    yield f"{facts['model']}: learnt {new}, now {facts['images']}, in {facts['seconds']:.1f} s"
    yield f"  bank       {facts['rows']} rows, {facts['new_rows']} of them from the new images"
    yield from threshold_lines(detector, "  threshold  ")
    yield f"             {threshold_before(before)}"


def _new_rows(detector: Detector, known: int) -> int:
    """Bank rows that come from none of the first `known` images."""
    return sum(int((scale.origin[:, 0] >= known).sum()) for scale in detector.scales)
