"""Exact farthest-first selection (greedy k-center), made fast by looking at blocks.

    z* ∈ argmax_z min_{c∈C} ‖z − c‖,   C ← C ∪ {z*}

One new centre at a time means one pass over all rows per centre, bound by memory. Here the rows that are farthest now
form a block. Distances only fall, so no row outside can overtake the farthest of the rest, τ: as long as the block
holds a row beyond τ, that row is the next centre. Within the block a pick costs next to nothing, and all rows
then learn of all picks at once, in one matrix product. The selection is the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np

from mhpatchcore.metric.distances import distances_to_nearest, squared_distances, squared_norms
from mhpatchcore.runtime.arrays import Doubles, Floats, Indices

BLOCK, SMALL_BLOCK = 512, 128
# squared distances by ‖x‖² + ‖y‖² − 2xy are off by about this share of the largest norm
ROUNDING = 4e-6
ANCHORS = 10
ROWS_AT_ONCE = 4096


class Start(NamedTuple):
    """Where a selection begins, which the paper leaves open.

    `first`: row 0. `farthest`: the row farthest from the mean, as in the authors' release. `random`: as in the original
    PatchCore no row is chosen beforehand, and all rows are as far away as they are from ten random ones in the mean.
    """

    rule: str = "first"
    seed: int = 0

    def of(self, z: Floats) -> int | Floats:
        """The first row of z (n, dim), or the squared distances (n,) that all rows begin with."""
        if self.rule == "farthest" and len(z):
            mean = z.mean(axis=0, dtype=np.float64)
            return int(np.concatenate([squared_norms(piece - mean) for piece in _pieces(z)]).argmax())
        if self.rule == "random" and len(z):
            rng = np.random.default_rng(self.seed)
            anchors = z[rng.choice(len(z), min(ANCHORS, len(z)), replace=False)]
            means = [np.sqrt(squared_distances(piece, anchors)).mean(axis=1) for piece in _pieces(z)]
            return np.concatenate(means).astype(np.float32) ** 2
        return 0


FIRST = Start()


def _pieces(z: Floats) -> Iterator[Floats]:
    return (z[i : i + ROWS_AT_ONCE] for i in range(0, len(z), ROWS_AT_ONCE))


def farthest_first(
    z: Floats,
    k: int,
    start: int | Floats = 0,
    covered: Floats | None = None,
    workers: int = 1,
    progress: Callable[[int, int], None] | None = None,
) -> Indices:
    """Indices of at most k rows of z (n, dim): row `start`, then always the row farthest from those chosen.

    Where `start` is an array (n,), those are the squared distances to begin with. Ties go to the lowest index. Stops
    early when every row is a duplicate of a chosen one. With `covered` (m, dim) those rows count as chosen already and
    the first pick is the row farthest from them.
    `progress(chosen, k)` hears of every block.

    >>> farthest_first(np.array([[0.0], [1.0], [10.0], [4.0]], np.float32), 3).tolist()
    [0, 2, 3]
    """
    n = len(z)
    if n == 0 or k <= 0:
        return np.empty(0, np.intp)
    z = np.ascontiguousarray(z, np.float32)
    squares = squared_norms(z)
    resolution = ROUNDING * float(squares.max())
    chosen: list[int] = []
    if covered is not None:
        nearest = distances_to_nearest(z, covered, workers, squares)
    elif isinstance(start, int):
        chosen = [start]
        nearest = distances_to_nearest(z, z[chosen], workers, squares)
        nearest[chosen] = 0.0
    else:
        nearest = start.copy()
    k = min(k, n)
    while len(chosen) < k:
        block, tau = _farthest_block(nearest)
        if float(nearest[block].max()) <= resolution:
            return np.array(chosen + _select_closely(z, chosen, covered, k - len(chosen)), np.intp)
        picks = block[_select_within(z[block], nearest[block], max(tau, resolution), k - len(chosen))]
        np.minimum(nearest, distances_to_nearest(z, z[picks], workers, squares), out=nearest)
        nearest[picks] = 0.0
        chosen.extend(int(row) for row in picks)
        if progress is not None:
            progress(len(chosen), k)
    return np.array(chosen, np.intp)


def _farthest_block(nearest: Floats) -> tuple[Indices, float]:
    """The rows that are farthest now, by rising index, and τ, the largest distance among all others.

    Where there are few rows, telling them of picks costs less than comparing a large block with itself.
    """
    n = len(nearest)
    size = min(BLOCK, max(SMALL_BLOCK, n // 32))
    if n <= size:
        return np.arange(n), -1.0
    order = np.argpartition(nearest, [n - size - 1, n - 1])
    tau = float(nearest[order[n - size - 1]])
    if nearest[order[-1]] == tau:
        # more rows than a block holds are equally far: those of lowest index come first, until one of them is nearer
        return np.flatnonzero(nearest == tau)[:size], float(np.nextafter(np.float32(tau), np.float32(0)))
    return np.flatnonzero(nearest > tau), tau


def _select_within(z: Floats, nearest: Floats, tau: float, k: int) -> Indices:
    """Picks of a block z (t, dim), for as long as its farthest row is beyond τ."""
    between = squared_distances(z, z)
    picks: list[int] = []
    farthest = int(nearest.argmax())
    while len(picks) < k and nearest[farthest] > tau:
        picks.append(farthest)
        np.minimum(nearest, between[farthest], out=nearest)
        nearest[farthest] = -1.0
        farthest = int(nearest.argmax())
    return np.array(picks, np.intp)


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
        np.minimum(exact, squared_norms(left - left[farthest]), out=exact)
        exact[farthest] = -1.0
    return picks


def _least_squares(x: Doubles, y: Doubles) -> Doubles:
    """Squared distance of every row of x (n, dim) to the nearest row of y, in float64; infinite without any y."""
    least = np.full(len(x), np.inf)
    for start in range(0, len(y), 256):
        np.minimum(least, squared_distances(x, y[start : start + 256]).min(axis=1), out=least)
    return least
