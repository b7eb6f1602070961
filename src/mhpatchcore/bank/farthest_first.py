"""Exact farthest-first selection (greedy k-center), made fast by speculation.

    z* ∈ argmax_z min_{c∈C} ‖z − c‖,   C ← C ∪ {z*}

One new centre at a time means one pass over all rows per centre, bound by memory. Here the rows that are
farthest now are taken as a block of likely next centres, their distances to all rows come from one matrix
product, and they are consumed one by one for as long as the true arg-max lies within the block. The selection
is the same; the products are fast ones.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from mhpatchcore.arrays import Doubles, Floats, Indices
from mhpatchcore.parallel import ordered_map

FIRST_BLOCK, LARGEST_BLOCK = 16, 256
ROWS_PER_TASK = 16384
# squared distances by ‖x‖² + ‖y‖² − 2xy are off by about this share of the largest norm
ROUNDING = 4e-6


def farthest_first(
    z: Floats,
    k: int,
    start: int = 0,
    covered: Floats | None = None,
    workers: int = 1,
    progress: Callable[[int, int], None] | None = None,
) -> Indices:
    """Indices of at most k rows of z (n, dim): row `start`, then always the row farthest from those chosen.

    Ties go to the lowest index. Stops early when every row is a duplicate of a chosen one. With `covered`
    (m, dim) those rows count as chosen already and the first pick is the row farthest from them.
    `progress(chosen, k)` hears of every block.

    >>> farthest_first(np.array([[0.0], [1.0], [10.0], [4.0]], np.float32), 3).tolist()
    [0, 2, 3]
    """
    n = len(z)
    if n == 0 or k <= 0:
        return np.empty(0, np.intp)
    z = np.ascontiguousarray(z, np.float32)
    norms = np.einsum("ij,ij->i", z, z)
    if covered is None:
        nearest = np.full(n, np.finfo(np.float32).max, np.float32)
        nearest[start] = np.inf  # so that it is the first pick
    else:
        nearest = distances_to_nearest(z, covered, workers)
    return _select(z, norms, nearest, min(k, n), workers, progress, covered)


def _select(
    z: Floats,
    norms: Floats,
    nearest: Floats,
    k: int,
    workers: int,
    progress: Callable[[int, int], None] | None,
    covered: Floats | None,
) -> Indices:
    """Farthest-first, given every row's squared distance to what is chosen already."""
    chosen: list[int] = []
    resolution = ROUNDING * float(norms.max(initial=0.0))
    size = FIRST_BLOCK
    while len(chosen) < k:
        if float(nearest.max()) <= resolution:
            return np.array(chosen + _select_closely(z, chosen, covered, k - len(chosen)), np.intp)
        size = min(size, k - len(chosen), len(z))
        block = np.argpartition(nearest, len(z) - size)[len(z) - size :]
        # the arg-max itself must be in the block whatever argpartition does with ties
        farthest = int(nearest.argmax())
        if farthest not in block:
            block[0] = farthest
        to_block = _squared_distances(z[block], norms[block], z, norms, workers)
        position = {int(row): i for i, row in enumerate(block)}
        used = 0
        while len(chosen) < k and farthest in position and float(nearest[farthest]) > resolution:
            np.minimum(nearest, to_block[position[farthest]], out=nearest)
            nearest[farthest] = 0.0
            chosen.append(farthest)
            used += 1
            farthest = int(nearest.argmax())
        if progress is not None:
            progress(len(chosen), k)
        # grow while most of the speculation pays, shrink when it does not
        size = min(size * 2, LARGEST_BLOCK) if used * 2 > len(block) else max(size // 2, FIRST_BLOCK)
    return np.array(chosen, np.intp)


def _select_closely(z: Floats, chosen: list[int], covered: Floats | None, k: int) -> list[int]:
    """The last picks, where all that is left is nearer than float32 products can tell: in float64.

    Only rows that differ in some bit from what is chosen are candidates.
    """
    known = z[chosen] if covered is None else np.concatenate([covered.astype(np.float32), z[chosen]])
    rows = np.concatenate([known, z]) + np.float32(0)  # + 0 makes −0 equal to 0
    _, first = np.unique(rows, axis=0, return_index=True)
    candidates = np.sort(first[first >= len(known)]) - len(known)
    if len(candidates) == 0:
        return []
    centre = z[candidates].mean(axis=0, dtype=np.float64)
    exact = _least_squares(z[candidates] - centre, known - centre)
    left = z[candidates].astype(np.float64)
    picks: list[int] = []
    while len(picks) < min(k, len(candidates)):
        farthest = int(exact.argmax())
        picks.append(int(candidates[farthest]))
        np.minimum(exact, ((left - left[farthest]) ** 2).sum(axis=1), out=exact)
        exact[farthest] = -1.0
    return picks


def _least_squares(x: Doubles, y: Doubles) -> Doubles:
    """Squared distance of every row of x (n, dim) to the nearest row of y, in float64; infinite without any y."""
    least = np.full(len(x), np.inf)
    for start in range(0, len(y), 256):
        piece = y[start : start + 256]
        products = (x**2).sum(axis=1)[:, None] + (piece**2).sum(axis=1) - 2 * (x @ piece.T)
        np.minimum(least, products.min(axis=1), out=least)
    return np.asarray(np.maximum(least, 0))


def distances_to_nearest(z: Floats, targets: Floats, workers: int = 1) -> Floats:
    """Squared distance of every row of z (n, dim) to the nearest row of targets (m, dim)."""
    norms = np.einsum("ij,ij->i", targets, targets)

    def nearest(start: int) -> Floats:
        rows = z[start : start + ROWS_PER_TASK // 8]
        products = rows @ targets.T
        products *= -2
        products += norms
        least: Floats = products.min(axis=1)
        least += np.einsum("ij,ij->i", rows, rows)
        return np.maximum(least, 0, out=least)

    return np.concatenate(list(ordered_map(nearest, range(0, len(z), ROWS_PER_TASK // 8), workers)))


def _squared_distances(x: Floats, x_norms: Floats, z: Floats, z_norms: Floats, workers: int) -> Floats:
    """‖x_i − z_j‖² (len(x), len(z)), in blocks of rows of z of fixed size."""
    out = np.empty((len(x), len(z)), np.float32)

    def fill(start: int) -> None:
        piece = slice(start, start + ROWS_PER_TASK)
        products = x @ z[piece].T
        products *= -2
        products += z_norms[piece]
        products += x_norms[:, None]
        np.maximum(products, 0, out=out[:, piece])

    for _ in ordered_map(fill, range(0, len(z), ROWS_PER_TASK), workers):
        pass
    return out
