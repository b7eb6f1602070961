"""`mhpatchcore evaluate part.mhpc DATASET --report report.html`"""

from __future__ import annotations

from math import isnan, nan
from pathlib import Path

import typer

from mhpatchcore.cli.console import (
    JsonFlag,
    QuietFlag,
    SkipBrokenFlag,
    WorkersOption,
    print_json,
    progress_display,
    warn,
)
from mhpatchcore.cli.fit import threshold_note
from mhpatchcore.cli.paths import check_file, with_name
from mhpatchcore.detector import Detector
from mhpatchcore.evaluation.evaluate import Evaluation
from mhpatchcore.inputs.datasets import load_dataset


def evaluate(
    model: Path = typer.Argument(..., help="A model file written by `fit`."),
    dataset: Path = typer.Argument(
        ..., help="A data set: test/good and test/<defect>, good/ and others, or VisA."
    ),
    report: Path = typer.Option(
        None, help="Write a page with curves, pictures and all scores into this HTML file."
    ),
    skip_broken: bool = SkipBrokenFlag,
    workers: int = WorkersOption,
    as_json: bool = JsonFlag,
    quiet: bool = QuietFlag,
) -> None:
    """Judge a model on labelled images: what it finds, what it misses, what it rejects in vain.

    Example: mhpatchcore evaluate part.mhpc parts --report report.html
    """
    check_file(report, "report.html", model)
    detector, data = Detector.load(model), load_dataset(with_name(dataset))
    with progress_display(quiet) as progress:
        if report is None:
            from mhpatchcore.evaluation.evaluate import evaluate as judge

            evaluation = judge(detector, data, workers, progress=progress, skip_broken=skip_broken)
        else:
            from mhpatchcore.report.evaluation import write_report

            evaluation = write_report(
                detector, data, report, workers=workers, progress=progress, skip_broken=skip_broken
            )
    for problem in evaluation.problems:
        warn(problem)
    if as_json:
        facts = evaluation.summary() | {
            "problems": list(evaluation.problems),
            "report": report and str(report),
        }
        print_json(facts)
        return
    _print_summary(evaluation, detector)
    if report is not None:
        print(f"open: {report}")


def _print_summary(evaluation: Evaluation, detector: Detector) -> None:
    image, pixel = evaluation.image, evaluation.pixel
    print(f"{evaluation.name}: {image.n_normal} good and {image.n_anomalous} defective images")
    print(f"  threshold      {threshold_note(detector)}")
    print(f"  good rejected  {len(evaluation.false_alarms)} of {image.n_normal}")
    print(f"  defects found  {image.n_anomalous - len(evaluation.misses)} of {image.n_anomalous}")
    print(f"  {'':13}  {'AUROC':>6} {'AP':>6} {'F1-max':>6} {'AUPRO':>6}")
    print("  by image       " + _figures(image.auroc, image.average_precision, image.f1_max, nan))
    if pixel is not None:
        print("  by pixel       " + _figures(pixel.auroc, pixel.average_precision, nan, pixel.aupro))


def _figures(*values: float) -> str:
    return " ".join(f"{'–':>6}" if isnan(value) else f"{value:6.4f}" for value in values)
