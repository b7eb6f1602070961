"""`mhpatchcore merge line1.mhpc line2.mhpc -o part.mhpc`"""

from __future__ import annotations

from pathlib import Path

import typer

from mhpatchcore.cli import options
from mhpatchcore.cli.command import Answer, command
from mhpatchcore.cli.facts import bank_note, summary, threshold_note
from mhpatchcore.cli.paths import check_file, check_product
from mhpatchcore.detector import Detector
from mhpatchcore.fitting.changing import merged


@command()
def merge(
    models: list[Path] = typer.Argument(..., help="Two or more model files of the same product."),
    output: Path = typer.Option(..., "--output", "-o", help="The model file to write."),
    other_product: options.OtherProduct = False,
) -> Answer:
    """Make one model of several that were fitted apart, with the same settings on different images.

    Example: mhpatchcore merge line1.mhpc line2.mhpc -o part.mhpc
    """
    check_file(output, "part.mhpc")
    names = [str(model) for model in models]
    detector = Detector(merged([Detector.load(model).model for model in models], names))
    check_product(output, detector.model.product, other_product)
    detector.save(output)
    facts = summary(detector, output, history=True) | {"merged": names}
    lines = (
        f"{output}: {len(models)} models, {facts['images']} images",
        f"  bank       {bank_note(detector)}",
        f"  threshold  {threshold_note(detector)}",
    )
    return Answer(facts, lines)
