"""`mhpatchcore export part.mhpc -o part.onnx`, `mhpatchcore bundle part.mhpc -o part/`, `mhpatchcore verify part/`"""

from __future__ import annotations

from pathlib import Path

from mhpatchcore.cli import options
from mhpatchcore.cli.command import Answer, command
from mhpatchcore.cli.console import labelled, warn
from mhpatchcore.cli.facts import threshold_note, warn_without_threshold
from mhpatchcore.detector import Detector


@command()
def export(
    model: options.Model,
    output: Path = options.out("The ONNX file to write.", "part.onnx"),
) -> Answer:
    """Write the whole detector as one ONNX file, which any ONNX runtime can run: an image in, a verdict out.

    Example: mhpatchcore export part.mhpc -o part.onnx
    """
    from mhpatchcore.backbone.building import sha256_of
    from mhpatchcore.deploy.export import export_onnx

    detector = Detector.load(model)
    exported = export_onnx(detector.model, output, sha256_of(model))
    warn_without_threshold(detector, model)
    if detector.scales[0].backbone.info.precision == "int8":
        warn("the model is in int8, which only ONNX Runtime computes as it should (docs/how-to/export.md)")
    if detector.model.defects.names:
        warn(
            "the known defects are not in the exported file: it names nothing, and passes parts that only look like "
            "one of them; score with mhpatchcore itself for that"
        )
    lines = labelled(
        ("image", f"{exported.image} (1, height, width, {exported.channels}), of any height and width"),
        ("outputs", f"score, p_value, verdict, map and mask ({exported.height} × {exported.width})"),
        ("threshold", threshold_note(detector)),
    )
    facts = exported.to_json() | {"model": str(model)}
    return Answer(facts, [f"{output}: {exported.bytes / 1e6:.1f} MB", *lines])


@command()
def bundle(
    model: options.Model,
    output: Path = options.out("The folder to write; it must not be there yet.", "part/"),
    image: Path = options.file("The self-test image (default: one is made up).", show_default=False),
) -> Answer:
    """Write a folder for a machine at the line: the model, its ONNX export, a consumer, checksums and a self-test.

    Example: mhpatchcore bundle part.mhpc -o part/
    """
    from mhpatchcore.deploy.bundle import write_bundle

    facts = write_bundle(model, output, image)
    lines = labelled(
        ("expected", f"{facts['image']} scores {facts['score']:.6g}, {facts['verdict']}"),
        ("verify", f"mhpatchcore verify {output}"),
    )
    title = f"{output}: the model, its export, a consumer, checksums and a self-test"
    return Answer(facts | {"bundle": str(output)}, [title, *lines])


@command()
def verify(
    folder: Path = options.argument("A folder written by `bundle`."), device: options.Device = None
) -> Answer:
    """Check that this machine computes what the machine did that made the bundle.

    Another device than the CPU may differ by 5 % in the score, and by nothing in the verdict.

    Example: mhpatchcore verify part/ --device openvino
    """
    from mhpatchcore.deploy.bundle import verify_bundle

    found = verify_bundle(folder)
    lines = (
        f"  {one.by:12} {one.score:.6g}, {one.verdict}; {one.apart:.1e} apart from what is expected"
        for one in found
    )
    facts = {"bundle": str(folder), "same": True, "computed": [one._asdict() for one in found]}
    return Answer(facts, [f"{folder}: whole, and this machine computes the same", *lines])
