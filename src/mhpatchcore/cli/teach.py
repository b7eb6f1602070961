"""`mhpatchcore teach part.mhpc parts/scratched -o part.mhpc`"""

from __future__ import annotations

from pathlib import Path

import typer

from mhpatchcore.cli import options
from mhpatchcore.cli.command import Answer, Run, command
from mhpatchcore.cli.console import counted
from mhpatchcore.cli.facts import defects_note, summary
from mhpatchcore.cli.paths import check_file, given_images
from mhpatchcore.detector import Detector


@command("skip_broken")
def teach(
    model: options.Model,
    defects: list[Path] = typer.Argument(
        ..., help="Images of defects: folders, files, or - for a list on standard input."
    ),
    name: str = typer.Option(None, help="What the defects are called (default: as the folder they lie in)."),
    masks: options.Masks = None,
    *,
    output: options.SameModelOutput,
    run: Run,
) -> Answer:
    """Show a model some defects, so that what looks like them is rejected, and named.

    Example: mhpatchcore teach part.mhpc parts/scratched --name scratch -o part.mhpc
    """
    check_file(output, "part.mhpc")
    images = given_images(defects)
    detector = Detector.load(model).taught(images, name=name, masks=masks, execution=run.execution)
    detector.save(output)
    new = detector.history[-1].images
    facts = {"new_defects": new, "skipped": run.warnings}
    lines = (
        f"{output}: learnt {counted(new, 'image')} of defects",
        f"  defects    {defects_note(detector)}",
    )
    return Answer(summary(detector, output, history=True) | facts, lines)
