"""`mhpatchcore export part.mhpc -o part.onnx`"""

from __future__ import annotations

from pathlib import Path

import typer

from mhpatchcore.cli.console import JsonFlag, print_json, warn
from mhpatchcore.cli.facts import threshold_note, warn_without_threshold
from mhpatchcore.cli.paths import check_file
from mhpatchcore.detector import Detector


def export(
    model: Path = typer.Argument(..., help="A model file written by `fit`."),
    output: Path = typer.Option(..., "--output", "-o", help="The ONNX file to write."),
    as_json: bool = JsonFlag,
) -> None:
    """Write the whole detector as one ONNX file, which any ONNX runtime can run: an image in, a verdict out.

    Example: mhpatchcore export part.mhpc -o part.onnx
    """
    from mhpatchcore.backbone.weights import sha256_of
    from mhpatchcore.deploy.export import export_onnx

    check_file(output, "part.onnx", model)
    detector = Detector.load(model)
    exported = export_onnx(detector.model, output, sha256_of(model))
    warn_without_threshold(detector, model)
    if detector.scales[0].backbone.info.precision == "int8":
        warn(
            "the model is in int8, which other runtimes than ONNX Runtime compute differently (docs/export.md)"
        )
    if detector.model.defects.names:
        warn(
            "the known defects are not in the exported file: it names nothing, and passes parts that only look like "
            "one of them; score with mhpatchcore itself for that"
        )
    if as_json:
        print_json(exported.to_json() | {"model": str(model)})
        return
    print(f"{output}: {exported.bytes / 1e6:.1f} MB")
    print(f"  image      {exported.image} (1, height, width, {exported.channels}), of any height and width")
    print(f"  outputs    score, p_value, verdict, map and mask ({exported.height} × {exported.width})")
    print(f"  threshold  {threshold_note(detector)}")
