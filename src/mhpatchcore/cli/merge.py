"""`mhpatchcore merge line1.mhpc line2.mhpc -o part.mhpc`"""

from __future__ import annotations

from pathlib import Path

import typer

from mhpatchcore.cli.console import JsonFlag, OtherProductFlag, print_json
from mhpatchcore.cli.facts import bank_note, history_facts, summary, threshold_note
from mhpatchcore.cli.paths import check_file, check_product
from mhpatchcore.detector import Detector
from mhpatchcore.model.merge import merged


def merge(
    models: list[Path] = typer.Argument(..., help="Two or more model files of the same product."),
    output: Path = typer.Option(..., "--output", "-o", help="The model file to write."),
    other_product: bool = OtherProductFlag,
    as_json: bool = JsonFlag,
) -> None:
    """Make one model of several that were fitted apart, with the same settings on different images.

    Example: mhpatchcore merge line1.mhpc line2.mhpc -o part.mhpc
    """
    check_file(output, "part.mhpc")
    detectors = [Detector.load(model) for model in models]
    detector = Detector(merged([one.model for one in detectors], [str(model) for model in models]))
    check_product(output, detector.model.product, other_product)
    detector.save(output)
    facts = summary(detector, output) | {
        "merged": [str(model) for model in models],
        "history": history_facts(detector),
    }
    if as_json:
        print_json(facts)
        return
    print(f"{output}: {len(models)} models, {facts['images']} images")
    print(f"  bank       {bank_note(detector)}")
    print(f"  threshold  {threshold_note(detector)}")
