"""`mhpatchcore demo`: the whole way on made-up vials, from images to a page of results."""

from __future__ import annotations

from pathlib import Path

import typer

from mhpatchcore.cli.command import Answer, Run, command
from mhpatchcore.detector import Detector


@command()
def demo(
    folder: Path = typer.Argument(Path("demo"), help="Where the images, the model and the report go."),
    train: int = typer.Option(120, min=2, help="Images of good vials to learn from."),
    *,
    run: Run,
) -> Answer:
    """Make images of vials, learn from the good ones, find the defects in others, and write a report."""
    from mhpatchcore.demo.dataset import write_demo_dataset
    from mhpatchcore.inputs.datasets import load_dataset
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
        image = sorted(folder.iterdir())[0]
        result = detector.score(image)
        verdict = "rejected" if result.is_rejected else "passed"
        rows.append((f"{folder.name}: {verdict}, score {result.score:.0f}", panels(image, result)))
    save_picture(path, contact_sheet(rows))
