"""`mhpatchcore ranks PARTS -o ranks/`"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from PIL import Image

from mhpatchcore.cli import options
from mhpatchcore.cli.command import Answer, Run, command
from mhpatchcore.cli.console import counted
from mhpatchcore.cli.paths import given_images
from mhpatchcore.errors import ImageError, UserError
from mhpatchcore.inputs.decode import decoded
from mhpatchcore.inputs.pixels import gray_values
from mhpatchcore.inputs.places import folder_of, matched
from mhpatchcore.inputs.sources import ImageLike, describe, list_images
from mhpatchcore.runtime.arrays import Array
from mhpatchcore.runtime.files import atomic_path

FEWEST = 3


@command()
def ranks(
    parts: list[Path] = options.argument("Folders of frames, each of one part; or videos of parts."),
    output: Path = options.out("The folder to write into.", "ranks/"),
    stack: bool = options.flag("--stack", "Each folder holds one frame of every part, matched by name."),
    every: options.Every = 1,
    *,
    run: Run,
) -> Answer:
    """Make rank images: the darkest, middle and brightest value of each pixel over registered frames of a part.

    Example: mhpatchcore ranks sequences/ -o ranks/ && mhpatchcore fit ranks/ -o part.mhpc

    Every part becomes a TIFF of three pages, which is learnt and scored as one image of three channels.
    """
    found = _by_name(parts) if stack else _by_folder(parts, every)
    for done, (name, frames) in enumerate(sorted(found.items()), start=1):
        write_ranks(output / f"{name}.tif", rank_images(frames))
        run.execution.progress("ranks", done, len(found))
    done_line = f"{output}: rank images of {counted(len(found), 'part')}"
    facts = {"folder": str(output), "parts": sorted(found)}
    return Answer(facts, [done_line, f"next: mhpatchcore fit {output} -o part.mhpc"])


def _by_folder(given: Sequence[Path], every: int) -> dict[str, list[str]]:
    folders: dict[str, Path] = {}
    frames: dict[str, list[str]] = {}
    for one in given:
        top = folder_of(str(one))
        for image in list_images(given_images([one], every=every)):
            folder = Path(str(image)).parent
            relative = os.path.relpath(folder, top)
            name = top.resolve().name if relative == os.curdir else relative
            if folders.setdefault(name, folder) != folder:
                raise UserError(f"{folders[name]} and {folder} would both be called {name}: rename one")
            frames.setdefault(name, []).append(str(image))
    return frames


def _by_name(folders: Sequence[Path]) -> dict[str, list[str]]:
    places = [str(folder) for folder in folders]
    names = matched(places)
    return {
        Path(name).with_suffix("").as_posix(): [str(folder_of(place) / name) for place in places]
        for name in names
    }


def rank_images(frames: Sequence[ImageLike]) -> Array:
    """The minimum, median and maximum (3, H, W) of frames, in their own depth; colours count by their brightness.

    Of an even number of frames the lower of the two in the middle is the median: a value that was seen.
    """
    if len(frames) < FEWEST:
        which = f" ({describe(frames[0])})" if frames else ""
        raise ImageError(f"rank images take at least {FEWEST} frames of a part, not {len(frames)}{which}")
    each = [gray_values(decoded(frame).values) for frame in frames]
    kinds = [f"{values.dtype} {values.shape}" for values in each]
    for frame, kind in zip(frames, kinds, strict=True):
        if kind != kinds[0]:
            raise ImageError(
                f"frame {describe(frame)} is {kind}, and {describe(frames[0])} {kinds[0]}: frames of a part have one "
                "size and depth"
            )
    return np.sort(np.stack(each), axis=0)[[0, (len(each) - 1) // 2, -1]]


def write_ranks(path: Path, ranks: Array) -> None:
    """A TIFF of three pages, which is read as a stack."""
    kept = ranks if ranks.dtype in (np.uint8, np.uint16) else ranks.astype(np.float32)
    first, *others = map(Image.fromarray, kept)
    with atomic_path(path) as temporary:
        first.save(temporary, "TIFF", save_all=True, append_images=others, compression="tiff_adobe_deflate")
