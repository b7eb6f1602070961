"""From patch scores on the grid to maps: upsampling, smoothing and the way back to the original image.

All three are linear and separable, so a map P(a) is P_rows · a · P_columnsᵀ with two small matrices: bilinear
interpolation from the grid to the view, Gaussian smoothing in the view, bilinear interpolation onto the
original's pixels.

Tiles overlap, and a region of interest has patches that do not count. With b the blending of a tile, which falls
towards its edges, and i = 1 for patches that count, else 0, the map of a scale is Σ b·P(i·a) / Σ b·P(i) over its views.
Beyond the edge of the region it falls to zero.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache, reduce
from itertools import groupby
from math import ceil, floor
from typing import NamedTuple

import numpy as np

from mhpatchcore.inputs.regions import Extent, middles
from mhpatchcore.inputs.views import Geometry
from mhpatchcore.runtime.arrays import Array, Doubles, Floats, Indices, Mask, interpolation, upsampling
from mhpatchcore.runtime.parallel import one_blas_thread

STRIP = 2**17  # multiplications; OpenBLAS takes further threads from twice as many on
TINY = 1e-6
ANOMALY = "anomaly"  # a region that has no name
LEAST_SHARE = 0.5  # of what lies around a pixel: with less it is beyond the edge


class Box(NamedTuple):
    """A rectangle of pixels; bottom and right are the first row and column behind it.

    >>> box = Box(top=10, left=20, bottom=14, right=50)
    >>> box.xyxy, box.xywh
    ((20, 10, 50, 14), (20, 10, 30, 4))
    """

    top: int
    left: int
    bottom: int
    right: int

    @property
    def xyxy(self) -> tuple[int, int, int, int]:
        """Left, top, right, bottom, as Pillow and supervision have it."""
        return self.left, self.top, self.right, self.bottom

    @property
    def xywh(self) -> tuple[int, int, int, int]:
        """Left, top, width, height, as OpenCV and COCO have it."""
        return self.left, self.top, self.right - self.left, self.bottom - self.top


@dataclass(frozen=True)
class Region:
    """A connected area of a mask: its box, pixels, and where (row, column) the map peaks in it.

    `name` is that of the known defect it looks like, or "unknown", and `sure` how sure that is, from 0 to 1;
    both are None for a model that knows no defects.
    """

    box: Box
    area: int
    peak: float
    peak_at: tuple[int, int]
    name: str | None = None
    sure: float | None = None

    @property
    def label(self) -> str:
        """Its name, or "anomaly" where the model knows no defects."""
        return self.name or ANOMALY


@dataclass(frozen=True, eq=False)
class ViewScores:
    """The distances (h, w) of one view's patches to the bank, and where the view lies.

    `size` is the view's height and width, `scale` the index of its scale; the map is smoothed by `sigma` pixels of the
    view. Only patches inside (h, w) count; None: all of them. `known` (n, h, w) is how like they are to each of n known
    defects, from −1 to 1; None where the model knows none.
    """

    distances: Floats
    geometry: Geometry
    size: tuple[int, int]
    sigma: float
    scale: int = 0
    inside: Mask | None = None
    known: Floats | None = None

    @property
    def is_plain(self) -> bool:
        """Whether it has the map of its scale for itself, and all its patches count."""
        return self.inside is None and not any(self.geometry.overlaps)

    @property
    def counted(self) -> Floats:
        """The distances (h, w), zero for patches that do not count."""
        return self.distances if self.inside is None else self.distances * self.inside

    def cells_in(self, box: Extent) -> tuple[slice, slice] | None:
        """The rows and columns of its grid in a box of the original image; None where it does not see the box."""
        seen = self.geometry.box
        if not (seen[0] < box[2] and box[0] < seen[2] and seen[1] < box[3] and box[1] < seen[3]):
            return None
        rows, columns = (
            _cells(box[axis] - seen[axis], box[axis + 2] - seen[axis], seen[axis + 2] - seen[axis], n)
            for axis, n in enumerate(self.distances.shape)
        )
        return rows, columns


def combined_map(views: Sequence[ViewScores], box: Extent, height: int, width: int) -> Floats:
    """The mean of the maps of all scales over a box of the original image, at height × width places in it."""
    scales = [list(of_scale) for _, of_scale in groupby(views, lambda view: view.scale)]
    total = reduce(np.add, (_scale_map(scale, box, height, width) for scale in scales))
    return total if len(scales) == 1 else total / np.float32(len(scales))


def _scale_map(views: Sequence[ViewScores], box: Extent, height: int, width: int) -> Floats:
    """The map of one scale, of all its views."""
    if len(views) == 1 and views[0].is_plain:
        view = views[0]
        return original_map(view.distances, *view.size, view.sigma, view.geometry.within(box, height, width))
    total, inside, blended = np.zeros((3, height, width), np.float32)
    y, x = middles(box[0], box[2], height), middles(box[1], box[3], width)
    for view in views:
        where = view.geometry.within(box, height, width)
        rows, columns = _covered(where.top, where.bottom, height), _covered(where.left, where.right, width)
        if rows.start >= rows.stop or columns.start >= columns.stop:
            continue
        part = np.s_[rows, columns]
        place = where.moved(-rows.start, -columns.start, rows.stop - rows.start, columns.stop - columns.start)
        blending = view.geometry.blending(y[rows], x[columns])
        blended[part] += blending
        total[part] += blending * original_map(view.counted, *view.size, view.sigma, place)
        if view.inside is not None:
            blending *= original_map(view.inside.astype(np.float32), *view.size, view.sigma, place)
        inside[part] += blending
    heat: Floats = total / np.maximum(inside, LEAST_SHARE * blended + np.float32(TINY))
    return heat


def contributions(view: ViewScores, y: float, x: float) -> Floats:
    """What the patches (h, w) of a view add to the map of their scale at a place of the original image."""
    where = view.geometry.within((y - 0.5, x - 0.5, y + 0.5, x + 0.5), 1, 1)
    (height, width), grid = view.size, view.distances.shape
    rows = way_back(1, where.top, where.bottom, height, grid[0], view.sigma)[0]
    columns = way_back(1, where.left, where.right, width, grid[1], view.sigma)[0]
    return view.geometry.blending(np.array([y]), np.array([x])) * view.counted * np.outer(rows, columns)


def surroundings(a: Floats) -> Floats:
    """How much the cells of a map (h, w) decide: as much as lies around them; the highest may decide alone."""
    padded = np.pad(a, 1, mode="edge")
    rows = padded[:-2] + padded[1:-1] + padded[2:]
    around: Floats = rows[:, :-2] + rows[:, 1:-1] + rows[:, 2:]
    around.flat[a.argmax()] = np.inf
    return around


def _cells(start: float, stop: float, length: float, n: int) -> slice:
    """The cells of n over `length` pixels whose centres lie within start … stop, or the one nearest to its middle.

    >>> _cells(10, 30, 100, 10), _cells(11, 14, 100, 10)
    (slice(1, 3, None), slice(1, 2, None))
    """
    first, last = np.ceil(start * n / length - 0.5), np.ceil(stop * n / length - 0.5)
    if last <= first:
        first = np.floor((start + stop) / 2 * n / length)
    low = int(np.clip(first, 0, n - 1))
    return slice(low, max(low + 1, int(min(last, n))))


def _covered(start: float, stop: float, n: int) -> slice:
    """The pixels of n whose middles lie between start and stop."""
    return slice(max(0, ceil(start - 0.5)), min(n, floor(stop - 0.5) + 1))


def view_map(scores: Floats, height: int, width: int, sigma: float) -> Floats:
    """Patch scores (h, w) → smoothed map (height, width) of the view."""
    rows, columns = (
        smooth_upsampling(n, m, sigma) for n, m in zip((height, width), scores.shape, strict=True)
    )
    return _product(_product(rows, scores), columns.T)


def original_map(scores: Floats, height: int, width: int, sigma: float, where: Geometry) -> Floats:
    """Patch scores (h, w) → smoothed map over the original image; zero where the view does not reach."""
    rows = way_back(where.height, where.top, where.bottom, height, scores.shape[0], sigma)
    columns = way_back(where.width, where.left, where.right, width, scores.shape[1], sigma)
    return _product(_product(rows, scores), columns.T)


def regions_in(bands: Iterable[Floats], limit: float) -> tuple[Region, ...]:
    """Connected regions (8 neighbours) of a map above a limit, highest peak first.

    The map comes in bands of rows from top to bottom, so that it is never held whole. What is above the limit is made
    of runs, pixels side by side in one row; those of neighbouring rows that touch are of one region.
    """
    found, top = [_no_runs()], 0
    for heat in bands:
        found.append(_runs(heat, limit, top))
        top += len(heat)
    row, start, stop, peak, column = map(np.concatenate, zip(*found, strict=True))
    first, of_run = np.unique(_first_touching(row, start, stop), return_inverse=True)
    n, area = len(first), np.bincount(of_run, stop - start)
    bottom, left, right = np.zeros(n, int), np.full(n, np.iinfo(int).max), np.zeros(n, int)
    highest = np.full(n, -np.inf, peak.dtype)
    for into, values, keep in (
        (bottom, row + 1, np.maximum),
        (left, start, np.minimum),
        (right, stop, np.maximum),
        (highest, peak, np.maximum),
    ):
        keep.at(into, of_run, values)
    at_peak = np.flatnonzero(peak == highest[of_run])
    _, first_at_peak = np.unique(of_run[at_peak], return_index=True)  # one run of each region
    at_peak = at_peak[first_at_peak]
    boxes = np.stack([row[first], left, bottom, right], axis=1).tolist()
    places = np.stack([row[at_peak], column[at_peak]], axis=1).tolist()
    regions = [
        Region(Box(*box), int(pixels), float(value), (y, x))
        for box, pixels, value, (y, x) in zip(boxes, area, highest, places, strict=True)
    ]
    return tuple(sorted(regions, key=lambda region: -region.peak))


def _runs(heat: Floats, limit: float, top: int) -> tuple[Array, ...]:
    """The runs of a band in reading order: row, start and stop, peak and the first column that has it; (n,) each."""
    inside = heat > limit
    edges = np.diff(inside, axis=1, prepend=False, append=False)
    row, ends = np.nonzero(edges)
    row, start, stop = row[::2], ends[::2], ends[1::2]
    if not len(row):
        return _no_runs()
    values, lengths = heat[inside], stop - start
    before = np.cumsum(lengths) - lengths
    peak = np.maximum.reduceat(values, before)
    at_peak = np.flatnonzero(values == np.repeat(peak, lengths))
    column = start + at_peak[np.searchsorted(at_peak, before)] - before
    return row + top, start, stop, peak, column


def _no_runs() -> tuple[Array, ...]:
    return tuple(np.empty(0, kind) for kind in (int, int, int, np.float32, int))


def _first_touching(row: Indices, start: Indices, stop: Indices) -> Indices:
    """For each run (n,) in reading order, the first one of its region."""
    n, width = len(row), stop.max(initial=0) + 2
    # the runs in the row above that end behind the start of a run, or at it, and begin before its end, or at it
    after = np.searchsorted(row * width + stop, (row - 1) * width + start)
    before = np.searchsorted(row * width + start, (row - 1) * width + stop, side="right")
    count = np.maximum(before - after, 0)
    below = np.repeat(np.arange(n), count)
    above = np.arange(len(below)) - np.repeat(np.cumsum(count) - count - after, count)
    first = np.arange(n)
    while (apart := first[below] != first[above]).any():
        one, other = first[below[apart]], first[above[apart]]
        np.minimum.at(first, np.maximum(one, other), np.minimum(one, other))
        while (first != first[first]).any():
            first = first[first]
    return first


def smoothing(n: int, sigma: float) -> Doubles:
    """Gaussian smoothing of n values, mirrored at the ends, as a matrix (n, n); cut off at 4 σ.

    >>> smoothing(3, 0.5).round(2)
    array([[0.89, 0.11, 0.  ],
           [0.11, 0.79, 0.11],
           [0.  , 0.11, 0.89]])
    """
    radius = int(4 * sigma + 0.5)
    kernel = np.exp(-0.5 * (np.arange(-radius, radius + 1) / max(sigma, 1e-12)) ** 2)
    mirrored = np.pad(np.arange(n), radius, mode="symmetric")
    matrix = np.zeros((n, n))
    for offset, weight in enumerate(kernel / kernel.sum()):
        matrix[np.arange(n), mirrored[offset : offset + n]] += weight
    return matrix


@lru_cache(maxsize=64)
def smooth_upsampling(n_view: int, n_grid: int, sigma: float) -> Floats:
    """From the grid to the view, smoothed: the matrix (n_view, n_grid)."""
    with one_blas_thread():
        return (smoothing(n_view, sigma) @ upsampling(n_view, n_grid)).astype(np.float32)


@lru_cache(maxsize=64)
def way_back(n: int, start: float, stop: float, n_view: int, n_grid: int, sigma: float) -> Floats:
    """From the grid to the n original pixels, of which the view covers start … stop."""
    centres = np.arange(n) + 0.5
    to_view = interpolation((centres - start) * n_view / (stop - start) - 0.5, n_view)
    to_view[(centres < start) | (centres > stop)] = 0
    return (to_view @ smooth_upsampling(n_view, n_grid, sigma)).astype(np.float32)


def _product(a: Floats, b: Floats) -> Floats:
    """a @ b in strips so small that BLAS does not spread them over threads.

    Its threads would go on turning for a while in the hope of more work, and take the cores from the next image.
    """
    rows = max(1, STRIP // (b.shape[0] * b.shape[1]))
    return np.concatenate([a[start : start + rows] @ b for start in range(0, len(a), rows)])
