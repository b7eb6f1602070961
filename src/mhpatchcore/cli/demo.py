"""`mhpatchcore demo`: the whole way on made-up vials, from images to a page of results."""

from __future__ import annotations

from pathlib import Path

import typer

from mhpatchcore.cli.console import JsonFlag, QuietFlag, print_json, progress_display


def demo(
    folder: Path = typer.Argument(Path("demo"), help="Where the images, the model and the report go."),
    train: int = typer.Option(120, help="Normal images to learn from."),
    as_json: bool = JsonFlag,
    quiet: bool = QuietFlag,
) -> None:
    """Make images of vials, learn from the good ones, find the defects in others, and write a report."""
    from mhpatchcore.datasets import load_dataset
    from mhpatchcore.demo_data import write_demo_dataset
    from mhpatchcore.detector import Detector
    from mhpatchcore.extraction import Execution
    from mhpatchcore.report.evaluation import write_report

    vials = write_demo_dataset(folder / "vials", train=train)
    with progress_display(quiet) as progress:
        detector = Detector.fit(vials / "train" / "good", execution=Execution(progress=progress))
        model = folder / "vials.mhpc"
        detector.save(model)
        report = folder / "report.html"
        evaluation = write_report(detector, load_dataset(vials), report, progress=progress)
    if as_json:
        print_json(evaluation.summary() | {"model": str(model), "report": str(report)})
        return
    image, pixel = evaluation.image, evaluation.pixel
    print(f"learnt from {train} images of good vials; tested on {len(evaluation.images)} others")
    print(
        f"  image AUROC {image.auroc:.3f}, pixel AUROC {pixel.auroc:.3f}" if pixel else f"  {image.auroc:.3f}"
    )
    print(f"  {len(evaluation.false_alarms)} of {image.n_normal} good vials rejected")
    print(f"  {len(evaluation.misses)} of {image.n_anomalous} defects missed")
    print(f"model: {model}")
    print(f"open:  {report}")
