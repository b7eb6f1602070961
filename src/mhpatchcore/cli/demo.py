"""`mhpatchcore demo`: the whole way on made-up vials, from images to a page of results."""

from __future__ import annotations

from pathlib import Path

import typer

from mhpatchcore.cli.console import JsonFlag, QuietFlag, print_json, progress_display
from mhpatchcore.detector import Detector


def demo(
    folder: Path = typer.Argument(Path("demo"), help="Where the images, the model and the report go."),
    train: int = typer.Option(120, min=2, help="Images of good vials to learn from."),
    as_json: bool = JsonFlag,
    quiet: bool = QuietFlag,
) -> None:
    """Make images of vials, learn from the good ones, find the defects in others, and write a report."""
    from mhpatchcore.demo.dataset import write_demo_dataset
    from mhpatchcore.fitting.execution import Execution
    from mhpatchcore.inputs.datasets import load_dataset
    from mhpatchcore.report.evaluation import write_report

    vials = write_demo_dataset(folder / "vials", train=train)
    with progress_display(quiet) as progress:
        detector = Detector.fit(vials / "train" / "good", execution=Execution(progress=progress))
        model = folder / "vials.mhpc"
        detector.save(model)
        _write_overview(detector, vials, folder / "overview.png")
        report = folder / "report.html"
        evaluation = write_report(detector, load_dataset(vials), report, progress=progress)
    if as_json:
        print_json(evaluation.summary() | {"model": str(model), "report": str(report)})
        return
    image, pixel = evaluation.image, evaluation.pixel
    assert pixel is not None  # the demo's defects have masks
    print(f"learnt from {train} images of good vials; tested on {len(evaluation.images)} others")
    print(f"  image AUROC {image.auroc:.3f}, pixel AUROC {pixel.auroc:.3f}")
    print(f"  {len(evaluation.false_alarms)} of {image.n_normal} good vials rejected")
    print(f"  {len(evaluation.misses)} of {image.n_anomalous} defects missed")
    print(f"model: {model}")
    print(f"look:  {folder / 'overview.png'}")
    print(f"open:  {report}")


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
