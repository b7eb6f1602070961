"""A stack: two or three registered frames of one part as the channels of one image.

Of two frames the third channel is their mean, so that all channels are in the same range. Frames in colour count by
their brightness. Frames that lie in several places are matched by their names.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from glob import has_magic
from itertools import takewhile
from pathlib import Path

import numpy as np
from PIL import Image

from mhpatchcore.errors import ImageError, UserError
from mhpatchcore.inputs.archives import is_archive
from mhpatchcore.inputs.files import is_pattern, stack_name
from mhpatchcore.inputs.video import is_video
from mhpatchcore.runtime.arrays import Array

MOST_FRAMES = 3
SPECIAL = ("{", "}", ",")  # in the name of a stack
BRIGHTNESS = np.array([0.299, 0.587, 0.114])  # of red, green and blue, as in ITU-R BT.601


def stacked_values(frames: Sequence[Image.Image | Array], name: str) -> Image.Image | Array:
    """Frames of one size and depth → an image of Pillow in mode RGB, or (H, W, 3)."""
    if not 2 <= len(frames) <= MOST_FRAMES:
        raise ImageError(f"a stack has two or three frames; {name} has {len(frames)}")
    gray = [gray_values(frame) for frame in frames]
    if len(gray) == 2:
        mean = (gray[0].astype(np.float64) + gray[1]) / 2
        gray.append(mean.astype(gray[0].dtype))
    channels = np.stack(gray, axis=2)
    return Image.fromarray(channels) if channels.dtype == np.uint8 else channels


def gray_values(frame: Image.Image | Array) -> Array:
    """(H, W) of a frame that may be in colour, in its own type."""
    values = np.asarray(frame.convert("L") if isinstance(frame, Image.Image) else frame)
    if values.ndim == 2:
        return values
    gray: Array = (values @ BRIGHTNESS).astype(values.dtype)
    return gray


def stack_names(places: Sequence[str], listed: Callable[[str], list[str]]) -> list[str]:
    """The stacks of two or three places: a name for each that all of them have.

    A place is a folder, an archive, a pattern, or one image; `listed` gives the images there.
    """
    check_frames(len(places))
    parts = matched(places, listed)
    return [stack_name([folder_of(place) for place in places], name) for name in parts]


def check_frames(n: int) -> None:
    """Refuse a number of frames that no stack has."""
    if not 2 <= n <= MOST_FRAMES:
        raise UserError(
            f"a stack takes two or three folders, or patterns in quotes such as 'cam0/*.png', not {n}"
        )


def matched(places: Sequence[str], listed: Callable[[str], list[str]]) -> list[str]:
    """The names, relative to their places, that all of these have; a frame that is missing somewhere is an error."""
    names = [_names(place, listed(place)) for place in places]
    for i, one in enumerate(names):
        for j, other in enumerate(names):
            missing = [name for name in one if name not in other]
            if missing:
                more = f" (and {len(missing) - 1} more)" if len(missing) > 1 else ""
                raise UserError(
                    f"{places[j]} has no frame {missing[0]}{more}, which {places[i]} has: add it, or remove the others"
                )
    return list(names[0])


def folder_of(place: str) -> Path:
    """What names are relative to: a folder or archive, the folder of an image, or what comes before a pattern's magic.

    >>> str(folder_of("line/cam0/*/part*.png"))
    'line/cam0'
    """
    path = Path(place)
    if is_pattern(place):
        return Path(*takewhile(lambda part: not has_magic(part), path.parts))
    return path.parent if path.is_file() and not (is_archive(path) or is_video(path)) else path


def _names(place: str, images: list[str]) -> dict[str, None]:
    """The names of the images at a place, in their order."""
    folder = folder_of(place)
    names = [os.path.relpath(image, folder) for image in images]
    for name in (place, *names):
        if any(letter in name for letter in SPECIAL):
            raise UserError(f"{name} cannot be part of a stack: rename it without commas and braces")
    return dict.fromkeys(names)
