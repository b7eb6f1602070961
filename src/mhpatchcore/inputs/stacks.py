"""A stack: two or three registered frames of one part as the channels of one image.

Of two frames the third channel is their mean, so that all channels are in the same range. Frames in colour count by
their brightness.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from PIL import Image

from mhpatchcore.errors import ImageError
from mhpatchcore.runtime.arrays import Array

MOST_FRAMES = 3
BRIGHTNESS = (0.299, 0.587, 0.114)  # of red, green and blue, as in ITU-R BT.601


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
    gray: Array = (values @ np.array(BRIGHTNESS)).astype(values.dtype)
    return gray
