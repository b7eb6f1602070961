"""`mhpatchcore teach part.mhpc parts/scratched --name scratch -o part.mhpc`"""

from __future__ import annotations

from pathlib import Path

import typer

from mhpatchcore.cli.console import (
    JsonFlag,
    QuietFlag,
    SkipBrokenFlag,
    counted,
    print_json,
    progress_display,
    warn_and_keep,
)
from mhpatchcore.cli.facts import defects_note, history_facts, summary
from mhpatchcore.cli.paths import check_file, given_images
from mhpatchcore.detector import Detector
from mhpatchcore.fitting.execution import Execution

MasksOption = typer.Option(
    None,
    metavar="MASKS",
    help="Where the defects are: a folder of masks with the images' names, or a .csv file of boxes "
    "(image,top,left,bottom,right). Default: where the model sees them.",
)


def teach(
    model: Path = typer.Argument(..., help="A model file."),
    defects: list[Path] = typer.Argument(
        ..., help="Images of defects: folders, files, or - for a list on standard input."
    ),
    name: str = typer.Option(None, help="What the defects are called (default: as the folder they lie in)."),
    masks: str = MasksOption,
    output: Path = typer.Option(
        ..., "--output", "-o", help="The model file to write; it can be the same one."
    ),
    as_json: bool = JsonFlag,
    quiet: bool = QuietFlag,
    skip_broken: bool = SkipBrokenFlag,
) -> None:
    """Show a model some defects, so that what looks like them is rejected, and named.

    Example: mhpatchcore teach part.mhpc parts/scratched --name scratch -o part.mhpc
    """
    check_file(output, "part.mhpc")
    skipped: list[str] = []
    with progress_display(quiet) as progress:
        execution = Execution(skip_broken=skip_broken, progress=progress, warn=warn_and_keep(skipped))
        detector = Detector.load(model).taught(
            given_images(defects), name=name, masks=masks, execution=execution
        )
        detector.save(output)
    images = detector.history[-1].images
    if as_json:
        facts = {"new_defects": images, "history": history_facts(detector), "skipped": skipped}
        print_json(summary(detector, output) | facts)
        return
    print(f"{output}: learnt {counted(images, 'image')} of defects")
    print(f"  defects    {defects_note(detector)}")
