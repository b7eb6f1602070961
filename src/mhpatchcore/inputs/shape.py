"""The shape of views: that of the images, with as many pixels as the square that was asked for."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from mhpatchcore.inputs.decode import size_of
from mhpatchcore.inputs.sources import ImageLike

STRIDE = 32
MOST_ASPECT = 3.0


def shape_like(images: Sequence[ImageLike], height: int, width: int, step: int = STRIDE) -> tuple[int, int]:
    """Height and width of a view with the aspect of these images and about height · width pixels.

    Sides are multiples of `step`, and one is at most MOST_ASPECT times the other; the typical (median) image decides.
    Images whose size cannot be read do not count: whether they matter is for who reads them to say.
    """
    ratios = [size[0] / size[1] for size in map(size_of, images) if size is not None]
    ratio = float(np.clip(np.exp(np.median(np.log(ratios))), 1 / MOST_ASPECT, MOST_ASPECT)) if ratios else 1.0
    return rounded_sides(height, width, ratio, step)


def rounded_sides(height: int, width: int, ratio: float, step: int = STRIDE) -> tuple[int, int]:
    """Sides with height / width near `ratio`, of about height · width pixels.

    >>> rounded_sides(224, 224, 1.05), rounded_sides(224, 224, 854 / 333)
    ((224, 224), (352, 128))
    """
    side = (height * width) ** 0.5
    tall, wide = side * ratio**0.5, side / ratio**0.5
    if max(abs(tall - height), abs(wide - width)) < step / 2:
        return height, width
    fewest = -(-STRIDE // step)
    return step * max(fewest, round(tall / step)), step * max(fewest, round(wide / step))
