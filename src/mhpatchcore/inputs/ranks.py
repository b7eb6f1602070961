"""Rank images: what is darkest, middle and brightest at each pixel over registered frames of one part.

A particle that moves, or a reflection that wanders with the light, is in few of the frames at any one pixel: it stands
out in the minimum or the maximum, while the median shows the part without it. The three are a stack (`stacks.py`).
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from PIL import Image

from mhpatchcore.errors import ImageError
from mhpatchcore.inputs.decode import decoded
from mhpatchcore.inputs.sources import ImageLike, describe
from mhpatchcore.inputs.stacks import gray_values
from mhpatchcore.runtime.arrays import Array
from mhpatchcore.runtime.files import atomic_path

FEWEST = 3


def rank_images(frames: Sequence[ImageLike]) -> Array:
    """The minimum, median and maximum (3, H, W) of frames, in their own depth; colours count by their brightness.

    Of an even number of frames the lower of the two in the middle is the median: a value that was seen.
    """
    if len(frames) < FEWEST:
        which = f" ({describe(frames[0])})" if frames else ""
        raise ImageError(f"rank images take at least {FEWEST} frames of a part, not {len(frames)}{which}")
    each = [gray_values(decoded(frame).values) for frame in frames]
    for frame, values in zip(frames, each, strict=True):
        if (values.shape, values.dtype) != (each[0].shape, each[0].dtype):
            raise ImageError(
                f"frame {describe(frame)} is {values.dtype} {values.shape}, and {describe(frames[0])} {each[0].dtype} "
                f"{each[0].shape}: frames of a part have one size and depth"
            )
    values = np.stack(each)
    middle = (len(values) - 1) // 2
    return np.stack([values.min(axis=0), np.partition(values, middle, axis=0)[middle], values.max(axis=0)])


def write_ranks(path: Path, ranks: Array) -> None:
    """A TIFF of three pages, which is read as a stack."""
    kept = ranks if ranks.dtype in (np.uint8, np.uint16) else ranks.astype(np.float32)
    first, *others = map(Image.fromarray, kept)
    with atomic_path(path) as temporary:
        first.save(temporary, "TIFF", save_all=True, append_images=others, compression="tiff_adobe_deflate")
