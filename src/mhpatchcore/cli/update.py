"""`mhpatchcore update part.mhpc parts/returned -o part.mhpc`"""

from __future__ import annotations

import time
from pathlib import Path

import typer

from mhpatchcore.cli.console import (
    AllGoodFlag,
    EveryOption,
    JsonFlag,
    OtherProductFlag,
    QuietFlag,
    SkipBrokenFlag,
    StackFlag,
    StoreLimitOption,
    StoreOption,
    WorkersOption,
    counted,
    print_json,
    progress_display,
    warn,
    warn_and_keep,
)
from mhpatchcore.cli.facts import (
    history_facts,
    print_threshold,
    summary,
    threshold_before,
    warn_without_threshold,
)
from mhpatchcore.cli.paths import check_file, check_product, given_images
from mhpatchcore.detector import Detector
from mhpatchcore.fitting.execution import Execution
from mhpatchcore.runtime.memory import parse_size
from mhpatchcore.runtime.parallel import available_cores

RISE = 1.1


def update(
    model: Path = typer.Argument(..., help="A model file."),
    normals: list[Path] = typer.Argument(
        ...,
        help="Images of good parts that are new to the model: folders, files, or - for a list on standard input.",
    ),
    all_good: bool = AllGoodFlag,
    stack: bool = StackFlag,
    every: int = EveryOption,
    output: Path = typer.Option(
        ..., "--output", "-o", help="The model file to write; it can be the same one."
    ),
    returned: bool = typer.Option(
        False,
        "--returned",
        help="They were picked because they had been rejected: learn them, but leave the threshold to the others.",
    ),
    other_product: bool = OtherProductFlag,
    as_json: bool = JsonFlag,
    quiet: bool = QuietFlag,
    workers: int = WorkersOption,
    store: Path = StoreOption,
    store_limit: str = StoreLimitOption,
    skip_broken: bool = SkipBrokenFlag,
) -> None:
    """Learn from further images of good parts. The images learnt from before are not needed.

    Example: mhpatchcore update part.mhpc parts/returned --returned -o part.mhpc
    """
    check_file(output, "part.mhpc")
    before = Detector.load(model)
    check_product(output, before.model.product, other_product)
    warnings: list[str] = []
    started = time.perf_counter()
    with progress_display(quiet) as progress:
        execution = Execution(
            workers=workers or available_cores(),
            store=store,
            store_limit=parse_size(store_limit) if store_limit else None,
            skip_broken=skip_broken,
            progress=progress,
            warn=warn_and_keep(warnings),
        )
        images = given_images(normals, stack, every)
        detector = before.updated(images, returned=returned, all_good=all_good, execution=execution)
        detector.save(output)
    seconds = round(time.perf_counter() - started, 2)
    new = detector.history[-1].images
    facts = summary(detector, output) | {
        "new_images": new,
        "threshold_before": before.threshold,
        "new_rows": _new_rows(detector, len(before.model.images)),
        "history": history_facts(detector),
        "seconds": seconds,
        "warnings": warnings,
    }
    if before.calibration.n and detector.threshold > RISE * before.threshold:
        picked = "use --returned for parts that were picked because they had been rejected, and "
        warn(
            f"the threshold has risen from {before.threshold:.4g} to {detector.threshold:.4g}, so fewer defects are "
            f"found: {'' if returned else picked}`calibrate --with` a fair sample of today's parts"
        )
    warn_without_threshold(detector, output)
    if as_json:
        print_json(facts)
        return
    print(f"{output}: learnt {counted(new, 'new image')}, now {facts['images']}, in {seconds:.1f} s")
    print(f"  bank       {facts['rows']} rows, {facts['new_rows']} of them from the new images")
    print_threshold(detector, "  threshold  ")
    print(f"             {threshold_before(before)}")


def _new_rows(detector: Detector, known: int) -> int:
    """Bank rows that come from none of the first `known` images."""
    return sum(int((scale.origin[:, 0] >= known).sum()) for scale in detector.scales)
