"""Names for array types, which tell a reader what is meant (numpy's own stubs are too loose to enforce more); halves as
float32; bilinear interpolation as matrices.

A resized map is P·X with P = R ⊗ C, rows and columns apart. The rows of P add up to 1, so resizing commutes with any
affine map of the channels: with centring and with whitening.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
Floats = NDArray[np.floating[Any]]  # float32 unless said otherwise
Doubles = NDArray[np.floating[Any]]  # float64
Indices = NDArray[np.integer[Any]]
Mask = NDArray[np.bool_]


def as_float32(u: Array) -> Floats:
    """Any floats as float32; finite float16, for which numpy converts one number at a time, several times faster.

    A half's exponent and fraction, moved to the places they have in a float32, mean a number 2¹¹² times too small.

    >>> as_float32(np.array([1.5, -0.25, 6e-8, -65504], np.float16)).tolist()
    [1.5, -0.25, 5.960464477539063e-08, -65504.0]
    """
    if u.dtype != np.float16:
        return np.asarray(u, np.float32)
    bits = u.view(np.int16).astype(np.int32)
    bits <<= 13
    bits &= -0x70002000  # of the copies of the sign only the first is one
    wide: Floats = bits.view(np.float32)
    wide *= np.float32(2**112)
    return wide


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
