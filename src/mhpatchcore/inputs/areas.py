"""Areas of an image: what lies inside of polygons, or where a mask is set."""

from __future__ import annotations

import base64
import zlib
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from mhpatchcore.inputs.sources import ImageLike
from mhpatchcore.runtime.arrays import Array, Indices, Mask

MOST_SIDE = 1024  # of a bitmap
Corners = tuple[tuple[float, float], ...]
Extent = tuple[float, float, float, float]  # top, left, bottom, right


@dataclass(frozen=True)
class Polygons:
    """What lies in any of some polygons with corners (x, y): pixels, or shares of the image where none exceeds 1."""

    polygons: tuple[Corners, ...]

    @property
    def in_shares(self) -> bool:
        return all(0 <= value <= 1 for corners in self.polygons for corner in corners for value in corner)

    def over(self, box: Extent, height: int, width: int, size: tuple[int, int]) -> Mask:
        """Whether the middles of height × width cells over a box of an image of `size` lie inside: (height, width).

        >>> Polygons((((0, 0), (0.5, 0), (0.5, 1), (0, 1)),)).over((0, 0, 2, 4), 1, 4, (2, 4)).tolist()
        [[True, True, False, False]]
        """
        y, x = middles(box[0], box[2], height), middles(box[1], box[3], width)
        tall, wide = size if self.in_shares else (1, 1)
        found = np.zeros((height, width), bool)
        for corners in self.polygons:
            inside = np.zeros_like(found)
            for (x0, y0), (x1, y1) in zip(corners, (*corners[1:], corners[0]), strict=True):
                crossed = (y0 * tall <= y) != (y1 * tall <= y)  # rows that meet this edge
                share = (y[crossed] - y0 * tall) / ((y1 - y0) * tall or 1)
                inside[crossed] ^= x[None] >= ((x0 + share * (x1 - x0)) * wide)[:, None]
            found |= inside
        return found

    def of(self, image: ImageLike) -> Polygons:
        return self

    def __str__(self) -> str:
        number = sum(map(len, self.polygons))
        return f"polygon of {number} corners" if len(self.polygons) == 1 else f"{len(self.polygons)} polygons"


@dataclass(frozen=True)
class Bitmap:
    """A mask of rows × columns, stretched over the image; `bits` are packed, compressed, and in base64."""

    rows: int
    columns: int
    bits: str = field(repr=False)

    @staticmethod
    def of_mask(mask: Mask) -> Bitmap:
        """A mask (H, W); a large one becomes smaller, where only what lies inside with all its pixels counts."""
        small, (rows, columns) = mask, (min(side, MOST_SIDE) for side in mask.shape)
        for axis, (n, side) in enumerate(zip((rows, columns), mask.shape, strict=True)):
            found = _places(middles(0, side, side), n, side)
            small = np.logical_and.reduceat(small, np.searchsorted(found, np.arange(n)), axis=axis)
        packed = zlib.compress(np.packbits(small).tobytes(), 9)
        return Bitmap(rows, columns, base64.b64encode(packed).decode())

    @cached_property
    def mask(self) -> Mask:
        """The mask (rows, columns)."""
        number = self.rows * self.columns
        unpacked = zlib.decompressobj().decompress(base64.b64decode(self.bits), -(-number // 8))
        bits = np.unpackbits(np.frombuffer(unpacked, np.uint8), count=number)
        return bits.reshape(self.rows, self.columns).astype(bool)

    def over(self, box: Extent, height: int, width: int, size: tuple[int, int]) -> Mask:
        """Whether the middles of height × width cells over a box of an image of `size` lie inside: (height, width)."""
        y, x = middles(box[0], box[2], height), middles(box[1], box[3], width)
        rows, columns = _places(y, self.rows, size[0]), _places(x, self.columns, size[1])
        within = ((rows >= 0) & (rows < self.rows))[:, None] & ((columns >= 0) & (columns < self.columns))
        found: Mask = (
            self.mask[np.ix_(rows.clip(0, self.rows - 1), columns.clip(0, self.columns - 1))] & within
        )
        return found

    def of(self, image: ImageLike) -> Bitmap:
        return self

    def __str__(self) -> str:
        return f"mask of {self.columns} × {self.rows} pixels"


Area = Polygons | Bitmap


def middles(start: float, stop: float, n: int) -> Array:
    """The middles (n,) of n equal parts."""
    return start + (np.arange(n) + 0.5) * ((stop - start) / n)


def _places(at: Array, n: int, length: int) -> Indices:
    """In which of n equal parts of a length positions lie."""
    places: Indices = np.floor(at * n / length).astype(np.intp)
    return places
