"""`mhpatchcore ranks PARTS -o ranks/`"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import typer

from mhpatchcore.cli import options
from mhpatchcore.cli.command import Answer, Run, command
from mhpatchcore.cli.console import counted
from mhpatchcore.cli.paths import check_folder, given_images
from mhpatchcore.errors import UserError
from mhpatchcore.inputs.ranks import rank_images, write_ranks
from mhpatchcore.inputs.sources import list_images
from mhpatchcore.inputs.stacks import folder_of, matched


@command()
def ranks(
    parts: list[Path] = typer.Argument(
        ..., help="Folders of frames: every folder that holds images is a part; or videos, one for each part."
    ),
    output: Path = typer.Option(..., "--out", "-o", metavar="DIR", help="The folder to write into."),
    stack: bool = typer.Option(
        False, "--stack", help="Each folder holds one frame of every part instead, matched by name."
    ),
    every: options.Every = 1,
    *,
    run: Run,
) -> Answer:
    """Make rank images: the darkest, middle and brightest value of each pixel over registered frames of a part.

    Example: mhpatchcore ranks sequences/ -o ranks/ && mhpatchcore fit ranks/ -o part.mhpc

    Every part becomes a TIFF of three pages, which is learnt and scored as one image of three channels.
    """
    check_folder(output)
    found = _by_name(parts) if stack else _by_folder(parts, every)
    for done, (name, frames) in enumerate(sorted(found.items()), start=1):
        write_ranks(output / f"{name}.tif", rank_images(frames))
        run.execution.progress("ranks", done, len(found))
    lines = (
        f"{output}: rank images of {counted(len(found), 'part')}",
        f"next: mhpatchcore fit {output} -o part.mhpc",
    )
    return Answer({"folder": str(output), "parts": sorted(found)}, lines)


def _by_folder(given: Sequence[Path], every: int) -> dict[str, list[str]]:
    """The frames of each part, by the name of its folder or video."""
    folders: dict[str, Path] = {}
    frames: dict[str, list[str]] = {}
    for one in given:
        top = folder_of(str(one))
        for image in list_images(given_images([one], every=every)):
            folder = Path(str(image)).parent
            relative = os.path.relpath(folder, top)
            name = top.resolve().name if relative == os.curdir else relative
            if folders.setdefault(name, folder) != folder:
                raise UserError(
                    f"{folders[name]} and {folder} would both be called {name}: rename one of them"
                )
            frames.setdefault(name, []).append(str(image))
    return frames


def _by_name(folders: Sequence[Path]) -> dict[str, list[str]]:
    """The frames of each part, by their common name."""
    places = [str(folder) for folder in folders]
    names = matched(places, lambda place: [str(one) for one in list_images(place)])
    return {
        Path(name).with_suffix("").as_posix(): [str(folder_of(place) / name) for place in places]
        for name in names
    }
