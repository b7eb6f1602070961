"""The region of interest: where in an image to look. What lies outside takes part in nothing.

    10,20,300,400        a rectangle: top, left, bottom, right, in pixels; in shares of the image where none exceeds 1
    polygon.json         corners [[x, y], …], likewise, or the shapes of a labelme file
    mask.png             a picture that is black outside, stretched over the image
    masks/, regions.csv  a region for each image: masks of its name, or lines `image,roi`

All but the last are kept in the model itself: their files are not needed any more.
"""

from __future__ import annotations

import base64
import csv
import json
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from itertools import product
from pathlib import Path, PurePath
from typing import Any

import numpy as np

from mhpatchcore.errors import ImageError, UserError
from mhpatchcore.inputs.decode import decoded
from mhpatchcore.inputs.places import SUFFIXES
from mhpatchcore.inputs.sources import ImageLike
from mhpatchcore.runtime.arrays import Array, Indices, Mask

MOST_SIDE = 1024  # of a bitmap
Corners = tuple[tuple[float, float], ...]
Extent = tuple[float, float, float, float]  # top, left, bottom, right
MOST_CORNERS = 10_000
MASK_ENDINGS = ("", "_mask", "_roi")
EDGES = ("top", "left", "bottom", "right")


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
        seen: Mask = self.mask[np.ix_(rows.clip(0, self.rows - 1), columns.clip(0, self.columns - 1))]
        return seen & within

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


@dataclass(frozen=True)
class AreaOfEach:
    """Every image has a region of its own: a mask of its name in a folder, or a line in a CSV file."""

    source: str = field(compare=False)

    def of(self, image: ImageLike) -> Area:
        """The region of an image, which is found by the longest end of its path that a region is there for."""
        if not isinstance(image, str | Path):
            raise ImageError(
                f"an array has no name by which its region can be found in {self.source}: "
                "give its own region, with_roi(mask)"
            )
        path = PurePath(image)
        tails = [PurePath(*path.parts[i:]) for i in range(path.is_absolute(), len(path.parts))]
        found = self._in_table(tails) if _is_table(self.source) else self._in_folder(tails)
        if found is None:
            raise ImageError(
                f"there is no region of interest for {image} in {self.source}: add it, or name another place "
                "(`roi=PLACE`)"
            )
        return found

    def _in_folder(self, tails: Sequence[PurePath]) -> Area | None:
        names = (
            Path(self.source, tail.parent, f"{tail.stem}{ending}{suffix}")
            for tail, ending, suffix in product(tails, MASK_ENDINGS, SUFFIXES)
        )
        mask = next((name for name in names if name.is_file()), None)
        return None if mask is None else _from_mask(mask)

    def _in_table(self, tails: Sequence[PurePath]) -> Area | None:
        table = Path(self.source)
        try:
            status = table.stat()
        except OSError as error:
            raise UserError(
                f"cannot read {table}: {error.strerror}; name another place (`roi=PLACE`)"
            ) from error
        regions = _read_table(table, status.st_mtime_ns, status.st_size)
        return next((regions[name] for name in map(PurePath.as_posix, tails) if name in regions), None)

    def __str__(self) -> str:
        return f"a region for each image, from {self.source}"


Roi = Polygons | Bitmap | AreaOfEach


def parse_roi(value: Any) -> Roi | None:
    """A region of interest from whatever a user gives; see above. Arrays are masks, lists are numbers or corners.

    >>> print(parse_roi("0.1,0.1,0.9,0.9"))
    polygon of 4 corners
    """
    if value is None or isinstance(value, Polygons | Bitmap | AreaOfEach):
        return value
    if isinstance(value, np.ndarray) and value.ndim == 2 and value.dtype in (bool, np.uint8):
        return _bitmap(value > 0, "this mask")
    if isinstance(value, Mapping):
        return _from_json(value)
    if not isinstance(value, str | Path):
        return _from_numbers(value)
    path, suffix = Path(value), Path(value).suffix.lower()
    if path.is_dir() or _is_table(str(value)):
        if not path.exists():
            raise UserError(f"there is no file {path}; check the path")
        return AreaOfEach(str(path.absolute()))
    if suffix == ".json":
        return _from_file(path)
    if suffix in SUFFIXES:
        return _from_mask(path)
    return _from_numbers(str(value).split(","), given=str(value))


def _from_numbers(value: Any, given: str = "") -> Polygons:
    """Four numbers, the corners of one polygon, or several polygons; `given` is the text that they come from."""
    try:
        nesting = np.ndim(value[0])
        if nesting == 0:
            top, left, bottom, right = edges = [float(edge) for edge in value]
            if not (top < bottom and left < right):
                raise UserError(
                    f"a rectangle is top, left, bottom, right, such as 10,20,300,400; {edges} is empty"
                )
            return Polygons((_corners([(left, top), (right, top), (right, bottom), (left, bottom)]),))
        return Polygons(tuple(map(_corners, [value] if nesting == 1 else value)))
    except (TypeError, ValueError, KeyError, IndexError):
        raise _unknown(given or value) from None


def _corners(given: Any) -> Corners:
    try:
        corners = np.array(given, np.float64)
    except (TypeError, ValueError):  # some have more numbers than others
        corners = np.empty(0)
    plane = corners.ndim == 2 and corners.shape[1] == 2 and bool(np.isfinite(corners).all())
    if not plane or not 3 <= len(corners) <= MOST_CORNERS:
        raise UserError(
            f"a polygon has 3 to {MOST_CORNERS} corners of two numbers, [x, y]; not {given!r:.60}"
        )
    return tuple((float(x), float(y)) for x, y in corners)


def _from_file(path: Path) -> Polygons:
    """Corners, polygons, or the shapes of labelme, whose rectangles have two corners."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        if isinstance(content, dict):
            content = [_corners_of_shape(shape) for shape in content["shapes"]]
        return _from_numbers(content)
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror}; check the path") from error
    except (UserError, KeyError, TypeError, ValueError, RecursionError):
        raise UserError(
            f"{path} wants corners such as [[x, y], [x, y], [x, y]], or shapes of labelme, in JSON"
        ) from None


def _corners_of_shape(shape: Mapping[str, Any]) -> list[list[float]]:
    corners: list[list[float]] = shape["points"]
    if shape.get("shape_type") != "rectangle":
        return corners
    (x0, y0), (x1, y1) = corners[0], corners[-1]
    return [[x0, y0], [x1, y0], [x1, y1], [x0, y1]]


def _from_mask(path: Path) -> Bitmap:
    values = np.asarray(decoded(path).values)
    return _bitmap((values if values.ndim == 2 else values.max(axis=2)) > 0, f"the mask {path}")


def _bitmap(mask: Mask, name: str) -> Bitmap:
    bitmap = Bitmap.of_mask(mask)
    if not bitmap.mask.any():
        raise ImageError(f"{name} is black all over: the region of interest is where it is not")
    return bitmap


def _from_json(fields: Mapping[str, Any]) -> Roi:
    """A region as a model file holds it."""
    try:
        match fields:
            case {"polygons": polygons}:
                return _from_numbers(polygons)
            case {"source": str(source)}:
                return AreaOfEach(source)
            case {"rows": int(rows), "columns": int(columns), "bits": str(bits)}:
                bitmap = Bitmap(rows, columns, bits)
                if 0 < rows <= MOST_SIDE and 0 < columns <= MOST_SIDE and bitmap.mask.any():
                    return bitmap
    except (ValueError, zlib.error):
        pass
    raise _unknown(fields)


def _unknown(value: object) -> UserError:
    return UserError(
        "a region of interest is a rectangle such as 10,20,300,400 (top, left, bottom, right), a .json file of "
        f"corners, a mask picture, or a folder or .csv file with one for each image, not {value!r:.60}"
    )


def _is_table(name: str) -> bool:
    return name.lower().endswith(".csv")


@lru_cache(maxsize=8)
def _read_table(table: Path, *_: int) -> dict[str, Area]:
    """The lines of a table: `image,roi`, or `image,top,left,bottom,right`. It is read again when it has changed."""
    with table.open(newline="", encoding="utf-8-sig") as file:
        lines = list(csv.DictReader(file))
    found: dict[str, Area] = {}
    for number, line in enumerate(lines, start=2):
        try:
            edges = [line[edge] for edge in (("roi",) if "roi" in line else EDGES)]
            beside = table.parent / edges[0]
            area = parse_roi(str(beside) if beside.is_file() else ",".join(edges))
            if not isinstance(area, Polygons | Bitmap):
                raise UserError("a line names one region")
            found[PurePath(line["image"]).as_posix()] = area
        except KeyError as error:
            raise UserError(
                f"{table} has no column {error}: it wants image,roi or image,top,left,bottom,right"
            ) from None
        except (UserError, TypeError) as error:
            raise UserError(f"{table}, line {number}: {error}") from error
    return found
