"""From patch scores on the grid to maps: upsampling, smoothing and the way back to the original image.

All three are linear and separable, so a map is P_rows · a · P_columnsᵀ with two small matrices: bilinear
interpolation from the grid to the view, Gaussian smoothing in the view, bilinear interpolation onto the
original's pixels.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from mhpatchcore.backbone.alignment import interpolation, upsampling
from mhpatchcore.inputs.views import Geometry
from mhpatchcore.runtime.arrays import Doubles, Floats, Mask
from mhpatchcore.runtime.parallel import one_blas_thread

STRIP = 2**17  # multiplications; OpenBLAS takes further threads from twice as many on


@dataclass(frozen=True)
class Region:
    """A connected area of a mask: its box (top, left, bottom, right), pixels, and where the map peaks in it."""

    box: tuple[int, int, int, int]
    area: int
    peak: float
    peak_at: tuple[int, int]


def view_map(scores: Floats, height: int, width: int, sigma: float) -> Floats:
    """Patch scores (h, w) → smoothed map (height, width) of the view."""
    rows = smooth_upsampling(height, scores.shape[0], sigma)
    columns = smooth_upsampling(width, scores.shape[1], sigma)
    return _product(_product(rows, scores), columns.T)


def original_map(scores: Floats, height: int, width: int, sigma: float, where: Geometry) -> Floats:
    """Patch scores (h, w) → smoothed map over the original image; zero where the view does not reach."""
    rows = _way_back(where.height, where.top, where.bottom, height, scores.shape[0], sigma)
    columns = _way_back(where.width, where.left, where.right, width, scores.shape[1], sigma)
    return _product(_product(rows, scores), columns.T)


def regions_of(mask: Mask, heat: Floats, first_row: int = 0, first_column: int = 0) -> tuple[Region, ...]:
    """Connected regions (8 neighbours) of a mask (H, W), highest peak first.

    The mask may be a part of the image that begins at `first_row` and `first_column`.
    """
    from scipy import ndimage

    labels, count = ndimage.label(mask, structure=np.ones((3, 3)))
    regions = []
    for label, box in enumerate(ndimage.find_objects(labels, count), start=1):
        inside = labels[box] == label
        peak = np.unravel_index(np.where(inside, heat[box], -np.inf).argmax(), inside.shape)
        top, left = first_row + box[0].start, first_column + box[1].start
        regions.append(
            Region(
                box=(top, left, top + inside.shape[0], left + inside.shape[1]),
                area=int(inside.sum()),
                peak=float(heat[box][peak]),
                peak_at=(top + int(peak[0]), left + int(peak[1])),
            )
        )
    return tuple(sorted(regions, key=lambda region: -region.peak))


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
def _way_back(n: int, start: float, stop: float, n_view: int, n_grid: int, sigma: float) -> Floats:
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
