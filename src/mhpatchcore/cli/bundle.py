"""`mhpatchcore bundle part.mhpc -o part/` and `mhpatchcore verify part/`"""

from __future__ import annotations

from pathlib import Path

import typer

from mhpatchcore.cli import options
from mhpatchcore.cli.command import Answer, command
from mhpatchcore.cli.paths import check_folder


@command()
def bundle(
    model: options.Model,
    output: Path = typer.Option(..., "--out", "-o", help="The folder to write; it must not be there yet."),
    image: Path | None = typer.Option(
        None, "--image", help="The self-test image (default: one is made up).", show_default=False
    ),
) -> Answer:
    """Write a folder for a machine at the line: the model, its ONNX export, a consumer, checksums and a self-test.

    Example: mhpatchcore bundle part.mhpc -o part/
    """
    from mhpatchcore.deploy.bundle import write_bundle

    check_folder(output)
    facts = write_bundle(model, output, image)
    lines = (
        f"{output}: the model, its export, a consumer, checksums and a self-test",
        f"  expected   {facts['image']} scores {facts['score']:.6g}, {facts['verdict']}",
        f"  verify     mhpatchcore verify {output}",
    )
    return Answer(facts | {"bundle": str(output)}, lines)


@command()
def verify(
    folder: Path = typer.Argument(..., help="A folder written by `bundle`."), device: options.Device = None
) -> Answer:
    """Check that this machine computes what the machine did that made the bundle.

    Another device than the CPU may differ by 5 % in the score, and by nothing in the verdict.

    Example: mhpatchcore verify part/ --device openvino
    """
    from mhpatchcore.deploy.bundle import verify_bundle

    found = verify_bundle(folder)
    lines = [f"{folder}: whole, and this machine computes the same"]
    lines += [
        f"  {one.by:12} {one.score:.6g}, {one.verdict}; {one.apart:.1e} apart from what is expected"
        for one in found
    ]
    facts = {"bundle": str(folder), "same": True, "computed": [one._asdict() for one in found]}
    return Answer(facts, lines)
