"""Views: what the network sees of an image, each with its geometry, the way back to the original pixels.

Turned copies of a view, about its middle, are learnt of parts that may lie in any direction. What they show from beyond
the edges is mirrored there. Angles are those in the image, also where the view is stretched.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from math import ceil, cos, radians, sin

import numpy as np
from PIL import Image

from mhpatchcore.inputs.decode import size_of
from mhpatchcore.inputs.regions import Area, Extent, middles
from mhpatchcore.inputs.sources import ImageLike
from mhpatchcore.inputs.window import EIGHT_BIT, Window
from mhpatchcore.runtime.arrays import Array, Doubles, Floats, Mask

# pixels differed by at most 3 levels (0.1 on average) from those of a full decode; with a margin of 2 by up to 5
DRAFT_MARGIN = 3
Box = tuple[int, int, int, int]  # top, left, bottom, right
OVERLAP = 0.25  # of a tile, at least
MOST_TILES = 2**16
STRIDE = 32  # what the sides of views are multiples of
MOST_ASPECT = 3.0
Sides = tuple[float, float]  # height and width, in pixels of the image, of what a view shows


@dataclass(frozen=True)
class Geometry:
    """Where a view lies in the original image: its size, and the viewed box in original pixels.

    `overlaps` says how far other tiles reach into it at the top, left, bottom and right.
    """

    height: int
    width: int
    top: float
    left: float
    bottom: float
    right: float
    overlaps: Extent = field(default=(0, 0, 0, 0), repr=False)

    @property
    def box(self) -> Extent:
        return self.top, self.left, self.bottom, self.right

    @property
    def sides(self) -> Sides:
        return self.bottom - self.top, self.right - self.left

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

    def moved(self, down: float, right: float, height: int, width: int) -> Geometry:
        """The view in an image of height × width that begins elsewhere."""
        top, bottom = self.top + down, self.bottom + down
        return Geometry(height, width, top, self.left + right, bottom, self.right + right)

    def blending(self, y: Array, x: Array) -> Floats:
        """How much a tile counts, beside those that overlap with it, at places in the original image: (len(y), len(x)).

        It falls to zero towards the tile's edges, and where two tiles overlap it adds up to 1.

        >>> Geometry(8, 12, 0, 4, 8, 12, overlaps=(0, 4, 0, 0)).blending(np.array([3]), np.arange(4, 12)).tolist()
        [[0.0, 0.25, 0.5, 0.75, 1.0, 1.0, 1.0, 1.0]]
        """

        def ramps(at: Array, start: float, stop: float, before: float, after: float) -> Array:
            rising = (at - start) / before if before else np.ones(len(at))
            falling = (stop - at) / after if after else np.ones(len(at))
            return np.clip(rising, 0, 1) * np.clip(falling, 0, 1)

        rows = ramps(y, self.top, self.bottom, self.overlaps[0], self.overlaps[2])
        columns = ramps(x, self.left, self.right, self.overlaps[1], self.overlaps[3])
        return np.outer(rows, columns).astype(np.float32)


@dataclass(frozen=True)
class View:
    """How an image becomes a view of height × width pixels, or several of them.

    Without `resize` the whole image is stretched to the view. With it the shorter side is first resized to `resize` and
    the centre is cropped (the paper: 256, then 224 × 224). With `zoom` the views are tiles, which have so many pixels
    for one of the image. The window says which values are black and white.
    """

    height: int = 224
    width: int = 224
    resize: int | None = None
    window: Window = EIGHT_BIT
    zoom: float = 0.0

    def geometries(self, height: int, width: int) -> tuple[Geometry, ...]:
        """The boxes of all views of an image of height × width: one, or those of tiles, row by row.

        Where the image is smaller than a tile there is only one, which reaches beyond it.

        >>> [where.box for where in View(64, 64, zoom=1).geometries(64, 140)]
        [(0, 0, 64.0, 64.0), (0, 38, 64.0, 102.0), (0, 76, 64.0, 140.0)]
        """
        if not self.zoom:
            return (self.geometry(height, width),)

        def tiles(length: int, tile: float) -> list[tuple[int, float, float]]:
            """Where each begins, and how far the tiles before and behind reach into it."""
            n = _tile_count(length, tile)
            starts = [round(i * (length - tile) / max(n - 1, 1)) for i in range(n)]
            reach = [start + tile - behind for start, behind in pairwise(starts)]
            return list(zip(starts, [0.0, *reach], [*reach, 0.0], strict=True))

        tall, wide = self.height / self.zoom, self.width / self.zoom
        rows, columns = tiles(height, tall), tiles(width, wide)
        return tuple(
            Geometry(height, width, top, left, top + tall, left + wide, (above, before, below, after))
            for top, above, below in rows
            for left, before, after in columns
        )

    def count(self, height: int, width: int) -> int:
        """How many views an image of height × width has."""
        if not self.zoom:
            return 1
        return _tile_count(height, self.height / self.zoom) * _tile_count(width, self.width / self.zoom)

    def geometry(self, height: int, width: int) -> Geometry:
        """The box that a single view shows of an image of height × width.

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
        if self.zoom:
            return 1 / self.zoom
        box = self.geometry(height, width)
        return min((box.bottom - box.top) / self.height, (box.right - box.left) / self.width)


def whole_view(views: Sequence[View]) -> View:
    """The first that shows the whole image; where all of them are tiles, one of the usual size."""
    return next((view for view in views if not view.zoom), View(window=views[0].window))


def _tile_count(length: int, tile: float) -> int:
    return max(1, ceil((length - tile) / (tile * (1 - OVERLAP)) + 1))


@dataclass(frozen=True)
class Turn:
    """Counter-clockwise by some degrees, of what may have been mirrored, left to right, before.

    >>> print(Turn(), Turn(45), Turn(90, mirrored=True), sep="; ")
    as it is; turned by 45°; mirrored, turned by 90°
    """

    degrees: int = 0
    mirrored: bool = False

    def __str__(self) -> str:
        steps = ("mirrored" if self.mirrored else "", f"turned by {self.degrees}°" if self.degrees else "")
        return ", ".join(filter(None, steps)) or "as it is"

    def pixels(self, view: Array, sides: Sides) -> Array:
        """The turned copy of a view (H, W, C)."""
        if self == PLAIN:
            return view
        size = view.shape[:2]
        down, right = sides[0] / size[0], sides[1] / size[1]
        M = self._matrix(down / right)
        middle = np.array(size) / 2
        beyond = [max(0, ceil(reach)) + 2 for reach in np.abs(M) @ middle - middle]  # 2: what the filter sees
        padded = np.pad(view, [(n, n) for n in beyond] + [(0, 0)], mode="symmetric")
        y, x = middle + beyond - M @ middle
        how = (M[1, 1], M[1, 0], x, M[0, 1], M[0, 0], y)
        bands = (np.ascontiguousarray(padded[:, :, i]) for i in range(view.shape[2]))
        turned = [
            Image.fromarray(band).transform(size[::-1], Image.Transform.AFFINE, how, Image.Resampling.BICUBIC)
            for band in bands
        ]
        return np.stack([np.asarray(band) for band in turned], axis=2)

    def inside(self, mask: Mask, sides: Sides) -> Mask:
        """Which cells (h, w) of the turned copy show cells of the view that are in a mask (h, w)."""
        rows, columns = np.indices(mask.shape)
        places = np.stack([rows.ravel() + 0.5, columns.ravel() + 0.5])
        y, x = np.floor(self.back(places, mask.shape, sides)).astype(np.intp)
        found: Mask = mask[np.minimum(y, mask.shape[0] - 1), np.minimum(x, mask.shape[1] - 1)]
        return found.reshape(mask.shape)

    def back(self, places: Doubles, size: tuple[int, ...], sides: Sides) -> Doubles:
        """Places (2, n) = y, x of the turned copy as those of the view of `size` that are shown there.

        >>> Turn(90).back(np.array([[10.0], [30.0]]), (40, 40), (40, 40)).ravel().tolist()
        [30.0, 30.0]
        """
        down, right = sides[0] / size[0], sides[1] / size[1]
        middle, length = np.array(size)[:, None] / 2, np.array(size)[:, None]
        found = middle + self._matrix(down / right) @ (places - middle)
        mirrored: Doubles = length - np.abs(found % (2 * length) - length)
        return mirrored

    def _matrix(self, stretched: float) -> Doubles:
        """From steps (y, x) in the turned copy to those in the view, whose pixels are `stretched` times as tall as wide
        in the image.
        """
        c, s = round(cos(radians(self.degrees)), 12), round(sin(radians(self.degrees)), 12)
        M = np.array([[c, s / stretched], [-s * stretched, c]])
        return M * [[1], [-1]] if self.mirrored else M


AUTO = "auto"
PLAIN = Turn()
TURNS = {
    "none": (PLAIN,),
    "rotations": tuple(Turn(degrees) for degrees in range(0, 360, 45)),
    "flips": tuple(Turn(degrees, mirrored) for mirrored in (False, True) for degrees in range(0, 360, 90)),
}
# in the order of their numbers
EVERY_TURN = tuple(dict.fromkeys(turn for turns in TURNS.values() for turn in turns))


@dataclass(frozen=True, eq=False)
class Placed:
    """One view of an image: its number among those of its scale, where it lies, which of its patches (h, w) count.

    Turned copies are numbered behind the views of the image, by turn.
    """

    number: int
    where: Geometry
    inside: Mask | None = None
    turn: Turn = PLAIN

    def turned(self, turn: Turn, first: int) -> Placed:
        """A copy of the view, numbered from `first`."""
        inside = None if self.inside is None else turn.inside(self.inside, self.where.sides)
        return replace(self, number=first + self.number, inside=inside, turn=turn)


def views_of(size: tuple[int, int], view: View, grid: tuple[int, int], area: Area | None) -> list[Placed]:
    """The views of an image of `size` that show some of an area, with grids of rows and columns of patches."""
    found = []
    for number, where in enumerate(view.geometries(*size)):
        inside: Mask | None = None
        if area is not None or where.bottom > size[0] or where.right > size[1]:
            # cells of the grid that have their middle in the image and in the area
            rows = middles(where.top, where.bottom, grid[0])
            columns = middles(where.left, where.right, grid[1])
            inside = (rows < size[0])[:, None] & (columns < size[1])
            if area is not None:
                inside &= area.over(where.box, *grid, size)
        if inside is None or inside.any():
            found.append(Placed(number, where, inside))
    return found


def reduction(views: Sequence[View], height: int, width: int) -> int:
    """How many times smaller a JPEG of height × width is decoded for these views, which saves most of the time.

    Every box then still has DRAFT_MARGIN times the view's pixels both ways.
    """
    spare = min(view.spare(height, width) for view in views)
    return next((times for times in (8, 4, 2) if spare >= DRAFT_MARGIN * times), 1)


def shape_like(images: Sequence[ImageLike], height: int, width: int, step: int = STRIDE) -> tuple[int, int]:
    """Height and width of a view with the aspect of these images and about height · width pixels.

    Sides are multiples of `step`, and one is at most MOST_ASPECT times the other; the typical (median) image decides.
    Images whose size cannot be read do not count: they are reported when they are read.
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
