"""Bilinear interpolation as matrices, and with it the alignment of coarser layers to the finest grid.

An aligned layer is P·X with P = R ⊗ C, rows and columns apart. The rows of P add up to 1, so alignment commutes with
any affine map of the channels: with centring and with whitening.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import numpy as np

from mhpatchcore.runtime.arrays import Array, Doubles, Floats, as_float32


def interpolation(positions: Doubles, n_in: int) -> Doubles:
    """The matrix (len(positions), n_in) of linear interpolation at positions, held constant beyond the ends.

    >>> interpolation(np.array([-1.0, 0.25, 1.0]), 2)
    array([[1.  , 0.  ],
           [0.75, 0.25],
           [0.  , 1.  ]])
    """
    positions = np.clip(positions, 0, n_in - 1)
    low = np.minimum(positions.astype(int), max(n_in - 2, 0))
    matrix = np.zeros((len(positions), n_in))
    rows = np.arange(len(positions))
    matrix[rows, low] = 1 - (positions - low)
    if n_in > 1:
        matrix[rows, low + 1] = positions - low
    return matrix


@lru_cache(maxsize=64)
def upsampling(n_out: int, n_in: int) -> Doubles:
    """Bilinear resizing with aligned pixel edges (align_corners=False), as a matrix (n_out, n_in)."""
    return interpolation((np.arange(n_out) + 0.5) * n_in / n_out - 0.5, n_in)


def resized(maps: Array, grid: tuple[int, int]) -> Floats:
    """Maps (…, h, w) → (…, *grid), bilinear, in float32."""
    maps = as_float32(maps)
    height, width = maps.shape[-2:]
    if (height, width) == grid:
        return maps
    rows = upsampling(grid[0], height).astype(np.float32)
    columns = upsampling(grid[1], width).astype(np.float32)
    result: Floats = rows @ (maps @ columns.T)
    return result


def aligned_rows(maps: Sequence[Array]) -> Floats:
    """Descriptors (h·w, d) of one image from its layers (C_l, h_l, w_l), on the grid of the first."""
    grid = maps[0].shape[-2:]
    return np.concatenate([resized(layer, grid).reshape(len(layer), -1) for layer in maps]).T
