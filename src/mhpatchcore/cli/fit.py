"""`mhpatchcore fit IMAGES -o part.mhpc`"""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import typer

from mhpatchcore.calibration.choices import choices
from mhpatchcore.cli.console import (
    RUN,
    AllGoodFlag,
    EveryOption,
    JsonFlag,
    QuietFlag,
    SkipBrokenFlag,
    StackFlag,
    StoreLimitOption,
    StoreOption,
    WorkersOption,
    counted,
    print_json,
    printable,
    progress_display,
    warn_and_keep,
)
from mhpatchcore.cli.facts import (
    bank_note,
    copies_note,
    defects_note,
    print_threshold,
    summary,
    warn_without_threshold,
)
from mhpatchcore.cli.paths import check_file, given_images
from mhpatchcore.cli.running import ClusterOption, running_on
from mhpatchcore.cli.settings import PresetOption, SettingsOption, WeightsOption, settings_from, with_settings
from mhpatchcore.cli.teach import MasksOption
from mhpatchcore.detector import Detector, Study
from mhpatchcore.fitting.budget import Estimate
from mhpatchcore.fitting.execution import Execution
from mhpatchcore.inspection.suspicion import ImageChecks, Suspect, parse_exclusion
from mhpatchcore.presets import preset as named
from mhpatchcore.runtime.memory import in_words, parse_size, share_one_heap
from mhpatchcore.runtime.parallel import available_cores
from mhpatchcore.runtime.telemetry import Telemetry
from mhpatchcore.runtime.urls import shown


@with_settings
def fit(
    normals: list[Path] = typer.Argument(
        ...,
        help="Images of good parts: folders (subfolders are read too), files, archives (.zip, .tar), lists (.txt, "
        ".csv), videos, or - for a list on standard input.",
    ),
    output: Path = typer.Option(..., "--output", "-o", help="The model file to write, e.g. part.mhpc."),
    *,
    changes: dict[str, Any],
    name: str = typer.Option(
        None,
        metavar="PRODUCT",
        help="What the parts are (default: the name of their folder, without good, train and the like). A model of "
        "another product does not take its place.",
    ),
    all_good: bool = AllGoodFlag,
    stack: bool = StackFlag,
    every: int = EveryOption,
    weights: Path = WeightsOption,
    settings: Path = SettingsOption,
    preset: str = PresetOption,
    report: Path = typer.Option(
        None, help="Write a page about the fit and its suspicious images into this HTML file."
    ),
    suspicious: int = typer.Option(
        0, min=0, metavar="N", help="Name the N images that differ most from the rest.", show_default=False
    ),
    exclude_suspicious: str = typer.Option(
        None,
        metavar="N|SHARE",
        help="Fit without the N images, or that share of them, that differ most from the rest.",
    ),
    defects: Path = typer.Option(
        None, metavar="DIR", help="Known defects, in a folder for each kind: see `mhpatchcore teach`."
    ),
    defect_masks: str = MasksOption,
    as_json: bool = JsonFlag,
    quiet: bool = QuietFlag,
    workers: int = WorkersOption,
    batch: int = typer.Option(
        1, min=1, metavar="N", help="Images per call of the network.", rich_help_panel=RUN
    ),
    store: Path = StoreOption,
    store_limit: str = StoreLimitOption,
    memory: str = typer.Option(
        None,
        metavar="SIZE",
        help="Stay within this much memory, e.g. 600MB or 1.5GB: workers and batch are then upper bounds.",
        rich_help_panel=RUN,
    ),
    cluster: str = ClusterOption,
    skip_broken: bool = SkipBrokenFlag,
) -> None:
    """Learn what good parts look like and write a model file.

    Example: mhpatchcore fit parts/good -o part.mhpc

    Only the images and -o are needed; the other options are for experiments. Of a whole data set (train/good, test, …)
    the normal training images are learnt; other folders that sound like defects or masks are refused.

    Settings that are not given come from the preset (`mhpatchcore presets --json` shows them).

    A share is a number or a percentage: 0.05 or 5%.
    """
    config = settings_from(settings, changes, named(preset).config)
    check_file(output, "part.mhpc")
    check_file(report, "fit.html", output)
    checks = ImageChecks(
        rank=suspicious > 0 or report is not None,
        exclude=parse_exclusion(exclude_suspicious) if exclude_suspicious else 0,
        coverage=report is not None,
    )
    foreseen: list[Estimate] = []
    warnings: list[str] = []

    def foresee(estimate: Estimate) -> None:
        foreseen.append(estimate)
        if not quiet:
            print(f"memory: {estimate}", file=sys.stderr)

    share_one_heap()
    started = time.perf_counter()
    with running_on(cluster, workers) as executor, progress_display(quiet) as progress:
        telemetry = Telemetry()
        execution = Execution(
            workers=workers or available_cores(),
            batch=batch,
            store=store,
            store_limit=parse_size(store_limit) if store_limit else None,
            skip_broken=skip_broken,
            memory=parse_size(memory) if memory else None,
            progress=progress,
            telemetry=telemetry,
            warn=warn_and_keep(warnings),
            foresee=foresee,
            executor=executor if cluster else None,
        )
        images = given_images(normals, stack, every)
        study = Detector.study(
            images, config, checks, weights=weights, name=name, all_good=all_good, execution=execution
        )
        known: list[float] | None = None
        if defects is not None:
            detector = study.detector.taught(defects, masks=defect_masks, execution=execution)
            study = replace(study, detector=detector)
            scored = detector.score_many(defects, workers, lambda error: None)
            known = [result.score for result in scored if result is not None]
        study.detector.save(output)
    if report is not None:
        from mhpatchcore.report.fit import write_fit_report

        write_fit_report(study, output.name, report, telemetry.to_json())
    facts = summary(study.detector, output) | {
        "seconds": round(time.perf_counter() - started, 2),
        "memory_peak": telemetry.peak_rss,
        "memory_estimate": foreseen[0].peak if foreseen else None,
        "choices": [asdict(one) for one in choices(study.detector.calibration, known)],
        "passed_over": dict(Counter(Path(one).suffix.lower() for one in study.passed_over).most_common()),
        "warnings": warnings,
    }
    suspects = study.suspects[:suspicious]
    if as_json:
        asked = {"suspicious": [suspect.to_json() for suspect in suspects]} if suspicious else {}
        print_json(facts | asked | ({"report": shown(report)} if report is not None else {}))
    else:
        _print(study, facts, suspects, output, report, known)
    warn_without_threshold(study.detector, output)


def _print(
    study: Study,
    facts: dict[str, Any],
    suspects: Sequence[Suspect],
    output: Path,
    report: Path | None,
    known: Sequence[float] | None,
) -> None:
    excluded = study.detector.model.excluded
    print(
        f"{shown(output)}: learnt from {counted(facts['images'], 'image')} in {facts['seconds']:.1f} s, "
        f"{in_words(facts['memory_peak'])} at most"
    )
    weights = f"weights {facts['weights_sha256'][:12]} ({facts['weights_source']})"
    print(f"  backbone   {facts['backbone']}, {weights}")
    print(f"  bank       {bank_note(study.detector)}")
    print(f"  copies     {copies_note(study.detector)}")
    if known is not None:
        print(f"  defects    {defects_note(study.detector)}")
    print_threshold(study.detector, "  threshold  ", known)
    if study.passed_over:
        kinds = ", ".join(f"{n} {kind or 'without a suffix'}" for kind, n in facts["passed_over"].items())
        print(f"  not read   files that are no images: {kinds}")
    if excluded:
        print(f"  left out   {', '.join(map(printable, excluded))}")
    if suspects:
        print("  suspicious (× the typical image)")
    for suspect in suspects:
        left_out = "  (left out)" if suspect.excluded else ""
        print(f"    {suspect.times_typical:6.2f}  {printable(suspect.name)}{left_out}")
    if report is not None:
        print(f"open: {shown(report)}")
    if study.detector.calibration.judges:
        print(f"next: mhpatchcore score {shown(output)} IMAGES --heatmaps heatmaps/")
