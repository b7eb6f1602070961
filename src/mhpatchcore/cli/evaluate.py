"""`mhpatchcore evaluate part.mhpc DATASET --report report.html`"""

from __future__ import annotations

from collections.abc import Iterator
from math import isnan, nan
from pathlib import Path

import typer

from mhpatchcore.cli import options
from mhpatchcore.cli.command import Answer, Run, command
from mhpatchcore.cli.console import warn
from mhpatchcore.cli.facts import threshold_lines
from mhpatchcore.cli.paths import check_file, with_name
from mhpatchcore.detector import Detector
from mhpatchcore.errors import UserError
from mhpatchcore.evaluation.evaluate import Evaluation
from mhpatchcore.inputs.datasets import Labels, load_dataset, load_stacks


@command("skip_broken", "workers")
def evaluate(
    model: options.Model,
    dataset: list[Path] = typer.Argument(
        ...,
        help="A data set: test/good and test/<defect>, good/ and folders of defects, or VisA; one for each frame with "
        "--stack.",
    ),
    stack: options.Stack = False,
    good: list[str] = typer.Option(
        None,
        metavar="NAME",
        help="A folder of the data set that holds good parts (may be given several times).",
    ),
    defect: list[str] = typer.Option(
        None, metavar="NAME", help="A folder of the data set that holds defects (may be given several times)."
    ),
    report: Path = typer.Option(
        None, help="Write a page with curves, pictures and all scores into this HTML file."
    ),
    *,
    run: Run,
    device: options.Device = None,
) -> Answer:
    """Judge a model on labelled images: what it finds, what it misses, which good parts it rejects.

    Images that the model has learnt from are left out of the test.

    Example: mhpatchcore evaluate part.mhpc parts --good fresh --report report.html
    """
    check_file(report, "report.html", model)
    labels = Labels(tuple(good or ()), tuple(defect or ()))
    folders = [with_name(folder) for folder in dataset]
    if not stack and len(folders) > 1:
        raise UserError(f"evaluate takes one data set, not {len(folders)} (unless they hold frames: --stack)")
    detector = Detector.load(model)
    data = (
        load_stacks(folders, labels, split=False) if stack else load_dataset(folders[0], labels, split=False)
    )
    progress, skip_broken = run.execution.progress, run.execution.skip_broken
    if report is None:
        from mhpatchcore.evaluation.evaluate import evaluate as judge

        evaluation = judge(detector, data, run.workers, progress=progress, skip_broken=skip_broken)
    else:
        from mhpatchcore.report.evaluation import write_report

        evaluation = write_report(
            detector, data, report, workers=run.workers, progress=progress, skip_broken=skip_broken
        )
    for problem in evaluation.problems:
        warn(problem)
    facts = {
        "realised": evaluation.realised,
        "problems": list(evaluation.problems),
        "report": report and str(report),
    }
    opened = [f"open: {report}"] if report is not None else []
    return Answer(evaluation.summary() | facts, [*_lines(evaluation, detector), *opened])


def _lines(evaluation: Evaluation, detector: Detector) -> Iterator[str]:
    image, pixel, whole = evaluation.image, evaluation.pixel, evaluation.whole_pixel
    yield f"{evaluation.name}: {image.n_normal} good and {image.n_anomalous} defective images"
    defects = [one.score for one in evaluation.images if one.is_anomalous]
    yield from threshold_lines(detector, "  threshold      ", defects or None)
    if evaluation.has_threshold:
        found = "" if evaluation.found is None else f", {evaluation.found} of them found where they are"
        yield f"  good rejected  {len(evaluation.false_alarms)} of {image.n_normal}"
        if evaluation.realised:
            yield f"  {'':13}  {evaluation.realised}"
        yield f"  bad rejected   {len(evaluation.rejected)} of {image.n_anomalous}{found}"
    yield f"  {'':13}  {'AUROC':>6} {'AP':>6} {'F1-max':>6} {'AUPRO':>6} {'found':>6}"
    yield "  by image       " + _figures(
        image.auroc, image.average_precision, image.f1_max, nan, evaluation.found_share
    )
    if pixel is not None:
        yield "  by pixel       " + _figures(pixel.auroc, pixel.average_precision, nan, pixel.aupro)
    if whole is not None and evaluation.cropped:
        yield "  whole images   " + _figures(whole.auroc, whole.average_precision, nan, whole.aupro)


def _figures(*values: float) -> str:
    return " ".join(f"{'–':>6}" if isnan(value) else f"{value:6.4f}" for value in values)
