"""`mhpatchcore merge line1.mhpc line2.mhpc -o part.mhpc`"""

from __future__ import annotations

from pathlib import Path

import typer

from mhpatchcore.cli.console import JsonFlag, print_json
from mhpatchcore.cli.fit import summary, threshold_note
from mhpatchcore.cli.history import history_facts, warn_of_lost_scores
from mhpatchcore.cli.paths import check_file
from mhpatchcore.detector import Detector
from mhpatchcore.model.merge import merged


def merge(
    models: list[Path] = typer.Argument(..., help="Two or more model files of the same product."),
    output: Path = typer.Option(..., "--output", "-o", help="The model file to write."),
    as_json: bool = JsonFlag,
) -> None:
    """Make one model of several that were fitted apart, with the same settings on different images.

    Example: mhpatchcore merge line1.mhpc line2.mhpc -o part.mhpc
    """
    check_file(output, "part.mhpc")
    detectors = [Detector.load(model) for model in models]
    for model, detector in zip(models, detectors, strict=True):
        warn_of_lost_scores(model, detector)
    detector = merged(detectors, [str(model) for model in models])
    detector.save(output)
    facts = summary(detector, output) | {
        "merged": [str(model) for model in models],
        "history": history_facts(detector),
    }
    if as_json:
        print_json(facts)
        return
    print(f"{output}: {len(models)} models, {facts['images']} images")
    print(f"  bank       {facts['rows']} rows of {facts['dimensions']} dimensions")
    print(f"  threshold  {threshold_note(detector)}")
