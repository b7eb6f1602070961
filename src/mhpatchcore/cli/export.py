"""`mhpatchcore export part.mhpc -o part.onnx`"""

from __future__ import annotations

from pathlib import Path

import typer

from mhpatchcore.cli import options
from mhpatchcore.cli.command import Answer, command
from mhpatchcore.cli.console import warn
from mhpatchcore.cli.facts import threshold_note, warn_without_threshold
from mhpatchcore.cli.paths import check_file
from mhpatchcore.detector import Detector


@command()
def export(
    model: options.Model,
    output: Path = typer.Option(..., "--out", "-o", help="The ONNX file to write."),
) -> Answer:
    """Write the whole detector as one ONNX file, which any ONNX runtime can run: an image in, a verdict out.

    Example: mhpatchcore export part.mhpc -o part.onnx
    """
    from mhpatchcore.backbone.building import sha256_of
    from mhpatchcore.deploy.export import export_onnx

    check_file(output, "part.onnx", model)
    detector = Detector.load(model)
    exported = export_onnx(detector.model, output, sha256_of(model))
    warn_without_threshold(detector, model)
    if detector.scales[0].backbone.info.precision == "int8":
        warn(
            "the model is in int8, which other runtimes than ONNX Runtime compute differently "
            "(docs/how-to/export.md)"
        )
    if detector.model.defects.names:
        warn(
            "the known defects are not in the exported file: it names nothing, and passes parts that only look like "
            "one of them; score with mhpatchcore itself for that"
        )
    lines = (
        f"{output}: {exported.bytes / 1e6:.1f} MB",
        f"  image      {exported.image} (1, height, width, {exported.channels}), of any height and width",
        f"  outputs    score, p_value, verdict, map and mask ({exported.height} × {exported.width})",
        f"  threshold  {threshold_note(detector)}",
    )
    return Answer(exported.to_json() | {"model": str(model)}, lines)
