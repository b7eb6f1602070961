"""Bilinear alignment by its definition."""

from __future__ import annotations

import numpy as np


def aligned(maps: np.ndarray, height: int, width: int) -> np.ndarray:
    """(…, h, w) → (…, height, width), bilinear between pixel centres, clamped at the border."""
    for axis, side in ((-2, height), (-1, width)):
        n = maps.shape[axis]
        centre = np.clip((np.arange(side) + 0.5) * n / side - 0.5, 0, n - 1)
        low = np.floor(centre).astype(int)
        weight = (centre - low).reshape((-1, 1) if axis == -2 else (-1,))
        maps = (1 - weight) * maps.take(low, axis) + weight * maps.take(np.minimum(low + 1, n - 1), axis)
    return maps
