"""`mhpatchcore evaluate part.mhpc DATASET --report report.html`, and `mhpatchcore demo`, which ends with one."""

from __future__ import annotations

from collections.abc import Iterator
from math import isnan, nan
from pathlib import Path
from typing import Any

from mhpatchcore.cli import options
from mhpatchcore.cli.command import Answer, Run, command
from mhpatchcore.cli.console import labelled, warn
from mhpatchcore.cli.facts import threshold_lines
from mhpatchcore.cli.paths import with_name
from mhpatchcore.detector import Detector
from mhpatchcore.errors import UserError
from mhpatchcore.evaluation.evaluate import Evaluation
from mhpatchcore.evaluation.evaluate import evaluate as judge
from mhpatchcore.inputs.datasets import Labels, load_dataset, load_stacks


@command("skip_broken", "workers")
def evaluate(
    model: options.Model,
    dataset: list[Path] = options.argument(
        "A data set: test/good and test/<defect>, good/ and folders of defects, or VisA; with --stack, one per frame"
    ),
    stack: options.Stack = False,
    good: list[str] = options.option("A folder that holds good parts; may be repeated.", metavar="NAME"),
    defect: list[str] = options.option("A folder that holds defects; may be repeated.", metavar="NAME"),
    report: Path = options.output("Write an HTML page with curves, pictures and all scores.", "report.html"),
    *,
    run: Run,
    device: options.Device = None,
) -> Answer:
    """Judge a model on labelled images: what it finds, what it misses, which good parts it rejects.

    Images that the model has learnt from are left out of the test.

    Example: mhpatchcore evaluate part.mhpc parts --good fresh --report report.html
    """
    labels = Labels(tuple(good or ()), tuple(defect or ()))
    folders = [with_name(folder) for folder in dataset]
    if not stack and len(folders) > 1:
        raise UserError(f"evaluate takes one data set, not {len(folders)} (unless they hold frames: --stack)")
    detector = Detector.load(model)
    data = (
        load_stacks(folders, labels, split=False) if stack else load_dataset(folders[0], labels, split=False)
    )
    execution = run.execution
    how: dict[str, Any] = {"progress": execution.progress, "skip_broken": execution.skip_broken}
    if report is None:
        evaluation = judge(detector, data, run.workers, **how)
    else:
        from mhpatchcore.report.evaluation import write_report

        evaluation = write_report(detector, data, report, workers=run.workers, **how)
    for problem in evaluation.problems:
        warn(problem)
    facts = evaluation.summary() | {
        "realised": evaluation.realised,
        "problems": list(evaluation.problems),
        "report": report and str(report),
    }
    opened = [f"open: {report}"] if report is not None else []
    return Answer(facts, [*_lines(evaluation, detector), *opened])


def _lines(evaluation: Evaluation, detector: Detector) -> Iterator[str]:
    image, pixel = evaluation.image, evaluation.pixel
    whole = evaluation.whole_pixel if evaluation.cropped else None
    yield f"{evaluation.name}: {image.n_normal} good and {image.n_anomalous} defective images"
    defects = [one.score for one in evaluation.images if one.is_anomalous]
    judged, false_alarms = evaluation.has_threshold, len(evaluation.false_alarms)
    found = "" if evaluation.found is None else f", {evaluation.found} of them found where they are"
    columns = " ".join(f"{name:>6}" for name in ("AUROC", "AP", "F1-max", "AUPRO", "found"))
    by_image = (image.auroc, image.average_precision, image.f1_max, nan, evaluation.found_share)
    yield from labelled(
        ("threshold", threshold_lines(detector, defects or None)),
        ("good rejected", [f"{false_alarms} of {image.n_normal}", evaluation.realised] * judged),
        ("bad rejected", f"{len(evaluation.rejected)} of {image.n_anomalous}{found}" * judged),
        ("", columns),
        ("by image", _figures(*by_image)),
        ("by pixel", _figures(pixel.auroc, pixel.average_precision, nan, pixel.aupro) if pixel else ""),
        ("whole images", _figures(whole.auroc, whole.average_precision, nan, whole.aupro) if whole else ""),
    )


def _figures(*values: float) -> str:
    return " ".join(f"{'–':>6}" if isnan(value) else f"{value:6.4f}" for value in values)


@command()
def demo(
    folder: Path = options.argument("Where the images, the model and the report go.", Path("demo")),
    train: int = options.option("Images of good vials to learn from.", default=120, min=2),
    *,
    run: Run,
) -> Answer:
    """Make images of vials, learn from the good ones, find the defects in others, and write a report."""
    from mhpatchcore.demo.dataset import write_demo_dataset
    from mhpatchcore.report.evaluation import write_report

    vials = write_demo_dataset(folder / "vials", train=train)
    detector = Detector.fit(vials / "train" / "good", execution=run.execution)
    model, overview, report = folder / "vials.mhpc", folder / "overview.png", folder / "report.html"
    detector.save(model)
    _write_overview(detector, vials, overview)
    evaluation = write_report(detector, load_dataset(vials), report, progress=run.execution.progress)
    image, pixel = evaluation.image, evaluation.pixel
    assert pixel is not None  # the demo's defects have masks
    lines = (
        f"learnt from {train} images of good vials; tested on {len(evaluation.images)} others",
        f"  image AUROC {image.auroc:.3f}, pixel AUROC {pixel.auroc:.3f}",
        f"  {len(evaluation.false_alarms)} of {image.n_normal} good vials rejected",
        f"  {len(evaluation.misses)} of {image.n_anomalous} defects missed",
        f"model: {model}",
        f"look:  {overview}",
        f"open:  {report}",
    )
    return Answer(evaluation.summary() | {"model": str(model), "report": str(report)}, lines)


def _write_overview(detector: Detector, vials: Path, path: Path) -> None:
    """One example of every kind: the image, its heatmap, and the outlined defect."""
    from mhpatchcore.report.drawing import contact_sheet, panels, save_picture

    rows = []
    for folder in sorted((vials / "test").iterdir()):
        image = min(folder.iterdir())
        result = detector.score(image)
        rows.append((f"{folder.name}: {result.verdict}, score {result.score:.0f}", panels(image, result)))
    save_picture(path, contact_sheet(rows))
