"""`mhpatchcore bundle part.mhpc -o part/` and `mhpatchcore verify part/`"""

from __future__ import annotations

from pathlib import Path

import typer

from mhpatchcore.cli.console import JsonFlag, print_json
from mhpatchcore.cli.paths import check_folder


def bundle(
    model: Path = typer.Argument(..., help="A model file written by `fit`."),
    output: Path = typer.Option(..., "--output", "-o", help="The folder to write; it must not be there yet."),
    image: Path | None = typer.Option(
        None, "--image", help="The self-test image (default: one is made up).", show_default=False
    ),
    as_json: bool = JsonFlag,
) -> None:
    """Write a folder for a machine at the line: the model, its ONNX export, a consumer, checksums and a self-test.

    Example: mhpatchcore bundle part.mhpc -o part/
    """
    from mhpatchcore.deploy.bundle import write_bundle

    check_folder(output)
    facts = write_bundle(model, output, image)
    if as_json:
        print_json(facts | {"bundle": str(output)})
        return
    print(f"{output}: the model, its export, a consumer, checksums and a self-test")
    print(f"  expected   {facts['image']} scores {facts['score']:.6g}, {facts['verdict']}")
    print(f"  verify     mhpatchcore verify {output}")


def verify(
    folder: Path = typer.Argument(..., help="A folder written by `bundle`."),
    as_json: bool = JsonFlag,
) -> None:
    """Check that this machine computes what the machine did that made the bundle.

    Example: mhpatchcore verify part/
    """
    from mhpatchcore.deploy.bundle import verify_bundle

    found = verify_bundle(folder)
    if as_json:
        print_json({"bundle": str(folder), "same": True, "computed": [one.to_json() for one in found]})
        return
    print(f"{folder}: whole, and this machine computes the same")
    for one in found:
        print(f"  {one.by:12} {one.score:.6g}, {one.verdict}; {one.apart:.1e} apart from what is expected")
