"""Views: what the network sees of an image, each with its geometry, the way back to the original pixels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from mhpatchcore.errors import ImageError
from mhpatchcore.inputs.decode import decoded, size_of
from mhpatchcore.inputs.sources import ImageLike, told
from mhpatchcore.inputs.window import EIGHT_BIT, Window, pictured
from mhpatchcore.runtime.arrays import Array

# pixels differed by at most 3 levels (0.1 on average) from those of a full decode; with a margin of 2 by up to 5
DRAFT_MARGIN = 3
Box = tuple[int, int, int, int]  # top, left, bottom, right
Extent = tuple[float, float, float, float]  # a box that may end within pixels
STRIDE = 32
MOST_ASPECT = 3.0


@dataclass(frozen=True)
class Geometry:
    """Where a view lies in the original image: its size, and the viewed box in original pixels."""

    height: int
    width: int
    top: float
    left: float
    bottom: float
    right: float

    @property
    def box(self) -> Extent:
        return self.top, self.left, self.bottom, self.right

    def in_original(self, box: Box, height: int, width: int) -> Box:
        """A box of the view, which has height × width pixels, in pixels of the original image.

        >>> Geometry(100, 400, 0, 0, 100, 400).in_original((0, 112, 56, 224), 224, 224)
        (0, 200, 25, 400)
        """
        tall, wide = (self.bottom - self.top) / height, (self.right - self.left) / width
        top, bottom = (round(self.top + edge * tall) for edge in (box[0], box[2]))
        left, right = (round(self.left + edge * wide) for edge in (box[1], box[3]))
        return top, left, bottom, right

    def within(self, box: Extent, height: int, width: int) -> Geometry:
        """The view as it lies in a box of the original image that is drawn at height × width pixels.

        >>> Geometry(100, 400, 0, 0, 100, 400).within((0, 200, 100, 400), 50, 100)
        Geometry(height=50, width=100, top=0.0, left=-100.0, bottom=50.0, right=100.0)
        """
        tall, wide = height / (box[2] - box[0]), width / (box[3] - box[1])
        top, bottom = ((edge - box[0]) * tall for edge in (self.top, self.bottom))
        left, right = ((edge - box[1]) * wide for edge in (self.left, self.right))
        return Geometry(height, width, top, left, bottom, right)


@dataclass(frozen=True)
class View:
    """How an image becomes a view of height × width pixels.

    Without `resize` the whole image is stretched to the view, so nothing on the part goes unseen. With it the
    shorter side is first resized to `resize` and the centre is cropped (the paper: 256, then 224 × 224).
    The window says which values are black and white.
    """

    height: int = 224
    width: int = 224
    resize: int | None = None
    window: Window = EIGHT_BIT

    def geometry(self, height: int, width: int) -> Geometry:
        """The box that the view shows of an image of height × width.

        >>> View(224, 224, resize=256).geometry(512, 1024)
        Geometry(height=512, width=1024, top=32.0, left=288.0, bottom=480.0, right=736.0)
        """
        if self.resize is None:
            return Geometry(height, width, 0, 0, height, width)
        scale = min(height, width) / self.resize
        tall, wide = min(self.height * scale, height), min(self.width * scale, width)
        top, left = (height - tall) / 2, (width - wide) / 2
        return Geometry(height, width, top, left, top + tall, left + wide)

    def spare(self, height: int, width: int) -> float:
        """How many pixels of the original there are for one of the view, in the direction that has fewer."""
        box = self.geometry(height, width)
        return min((box.bottom - box.top) / self.height, (box.right - box.left) / self.width)


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


@dataclass(frozen=True, eq=False)
class Seen:
    """A view's pixels (H, W, 3), values in 0..255, and its place in the original image."""

    pixels: Array
    geometry: Geometry


def reduction(views: Sequence[View], height: int, width: int) -> int:
    """How many times smaller a JPEG of height × width is decoded for these views.

    One that is many times larger than all views is decoded at 1/2, 1/4 or 1/8 of its size, which saves most of the
    time: at the smallest of these at which every box still has DRAFT_MARGIN times the view's pixels both ways.
    """
    spare = min(view.spare(height, width) for view in views)
    return next((times for times in (8, 4, 2) if spare >= DRAFT_MARGIN * times), 1)


def load_views(source: ImageLike, views: Sequence[View]) -> list[Seen]:
    """The views of an image, which is decoded once."""
    image = pictured(decoded(source, partial(reduction, views)), views[0].window, told(source))
    seen = []
    for view in views:
        where = view.geometry(image.height, image.width)
        try:
            pixels = image.resized(view.height, view.width, where.box)
        except (OSError, ValueError) as error:
            raise ImageError(f"cannot read image {told(source)}: {error}; replace or remove it") from error
        seen.append(Seen(pixels, where))
    return seen
