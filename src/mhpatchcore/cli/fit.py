"""`mhpatchcore fit IMAGES -o part.mhpc`"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import typer

from mhpatchcore.cli import options
from mhpatchcore.cli.command import Answer, Run, command
from mhpatchcore.cli.console import counted, printable
from mhpatchcore.cli.facts import (
    bank_note,
    copies_note,
    defects_note,
    summary,
    threshold_lines,
    warn_without_threshold,
)
from mhpatchcore.cli.paths import check_file, given_images
from mhpatchcore.config import Config
from mhpatchcore.detector import Detector, Study
from mhpatchcore.fitting.budget import Estimate
from mhpatchcore.fitting.checks import ImageChecks, Suspect, parse_exclusion
from mhpatchcore.runtime.costs import Costs
from mhpatchcore.runtime.system import share_one_heap
from mhpatchcore.runtime.texts import format_bytes
from mhpatchcore.runtime.urls import shown

RARE = ("device", "stack", "every", "weights", "defect_masks", "batch", "store_limit", "memory", "cluster")


@command("workers", "batch", "store", "store_limit", "memory", "skip_broken", rare=RARE)
def fit(
    normals: list[Path] = typer.Argument(..., help=f"Images of good parts: {options.IMAGES}"),
    out: Path = options.file("The model file to write, e.g. part.mhpc.", *options.OUT, default=...),
    *,
    name: str = typer.Option(
        None,
        metavar="PRODUCT",
        help="What the parts are (default: the name of their folder, leaving out good, train and the like). A model of "
        "another product cannot replace it by mistake.",
    ),
    config: Config,
    all_good: options.AllGood = False,
    stack: options.Stack = False,
    every: options.Every = 1,
    weights: options.Weights = None,
    report: Path = options.file("Write a page about the fit and its suspicious images into this HTML file."),
    suspicious: int = typer.Option(
        0, min=0, metavar="N", help="Name the N images that differ most from the rest.", show_default=False
    ),
    exclude_suspicious: str = typer.Option(
        None,
        metavar="N|SHARE",
        help="Fit without the N images, or that share of them, that differ most from the rest.",
    ),
    defects: Path = options.folder("Known defects, in a folder for each kind: see `mhpatchcore teach`."),
    defect_masks: options.Masks = None,
    run: Run,
    device: options.Device = None,
    cluster: options.Cluster = None,
) -> Answer:
    """Learn what good parts look like and write a model file.

    Example: mhpatchcore fit parts/good -o part.mhpc

    Only the images and -o are needed; --help-all also shows the options for experiments. Given a whole data set
    (train/good, test, …), it learns the normal training images. Folders whose names suggest defects or masks are
    refused.

    Settings that you do not give come from the preset (`mhpatchcore presets --json` shows them). A SHARE is a number
    or a percentage: 0.05 or 5%.
    """
    check_file(out, "part.mhpc")
    check_file(report, "fit.html", out)
    checks = ImageChecks(
        rank=suspicious > 0 or report is not None,
        exclude=parse_exclusion(exclude_suspicious) if exclude_suspicious else 0,
        coverage=report is not None,
    )
    foreseen: list[Estimate] = []

    def foresee(estimate: Estimate) -> None:
        foreseen.append(estimate)
        if not run.quiet:
            print(f"memory: {estimate}", file=sys.stderr)

    share_one_heap()
    telemetry = Costs()
    known: list[float] | None = None
    with run.on(cluster) as executor:
        there = executor if cluster else None
        execution = replace(run.execution, telemetry=telemetry, foresee=foresee, executor=there)
        images = given_images(normals, stack, every)
        study = Detector.study(
            images, config, checks, weights=weights, name=name, all_good=all_good, execution=execution
        )
        if defects is not None:
            detector = study.detector.taught(defects, masks=defect_masks, execution=execution)
            study = replace(study, detector=detector)
            scored = detector.score_many(defects, run.workers, lambda error: None)
            known = [result.score for result in scored if result is not None]
        study.detector.save(out)
    if report is not None:
        from mhpatchcore.report.fit import write_fit_report

        write_fit_report(study, out.name, report, telemetry.to_json())
    facts = summary(study.detector, out, known) | {
        "seconds": run.seconds,
        "memory_peak": telemetry.peak_rss,
        "memory_estimate": foreseen[0].peak if foreseen else None,
        "passed_over": dict(Counter(Path(one).suffix.lower() for one in study.passed_over).most_common()),
        "warnings": run.warnings,
    }
    suspects = study.suspects[:suspicious]
    facts |= {"suspicious": [suspect.to_json() for suspect in suspects]} if suspicious else {}
    facts |= {"report": shown(report)} if report else {}
    warn_without_threshold(study.detector, out)
    return Answer(facts, _lines(study, facts, suspects, known))


def _lines(
    study: Study, facts: dict[str, Any], suspects: Sequence[Suspect], known: Sequence[float] | None
) -> Iterator[str]:
    excluded = study.detector.model.excluded
    yield (
        f"{facts['model']}: learnt from {counted(facts['images'], 'image')} in {facts['seconds']:.1f} s, "
        f"{format_bytes(facts['memory_peak'])} at most"
    )
    weights = f"weights {facts['weights_sha256'][:12]} ({facts['weights_source']})"
    yield f"  backbone   {facts['backbone']}, {weights}"
    yield f"  bank       {bank_note(study.detector)}"
    yield f"  copies     {copies_note(study.detector)}"
    if known is not None:
        yield f"  defects    {defects_note(study.detector)}"
    yield from threshold_lines(study.detector, "  threshold  ", known)
    if study.passed_over:
        kinds = ", ".join(f"{n} {kind or 'without a suffix'}" for kind, n in facts["passed_over"].items())
        yield f"  not read   files that are not images: {kinds}"
    if excluded:
        yield f"  left out   {', '.join(map(printable, excluded))}"
    if suspects:
        yield "  suspicious (× the typical image)"
    for suspect in suspects:
        left_out = "  (left out)" if suspect.excluded else ""
        yield f"    {suspect.times_typical:6.2f}  {printable(suspect.name)}{left_out}"
    if "report" in facts:
        yield f"open: {facts['report']}"
    if study.detector.calibration.judges:
        yield f"next: mhpatchcore score {facts['model']} IMAGES --heatmaps heatmaps/"
