"""Near-duplicates: copies, files saved again, frames of one still part. Together they say no more than one of them.

A thumbnail is the view in SIDE × SIDE gray values, less their mean and divided by their spread. Saving a picture
again, noise and brightness hardly move it, while two parts differ, however well they are aligned. Channels count as
they do in brightness: by equal shares, two frames of which one is the negative of the other would leave nothing.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from mhpatchcore.inputs.pixels import BRIGHTNESS
from mhpatchcore.metric.distances import squared_distances
from mhpatchcore.runtime.arrays import Array, Floats, Indices

SIDE = 8
# how far two thumbnails of one part are apart at most: a share of what two images typically are, within these bounds
MOST_OF_TYPICAL, LEAST_LIMIT, MOST_LIMIT = 0.15, 0.005, 0.02
TYPICAL_PAIRS = 2000
MOST_IMAGES = 50_000  # comparing all pairs of more would take minutes
BLOCK = 1024


def thumbnail(view: Array) -> Floats:
    """A view (H, W, 3) as a thumbnail (SIDE²,), in halves."""
    gray = np.asarray(view, np.float32) @ BRIGHTNESS.astype(np.float32)
    rows, columns = (np.linspace(0, side, SIDE + 1).astype(int) for side in gray.shape)
    small = np.add.reduceat(np.add.reduceat(gray, rows[:-1], axis=0), columns[:-1], axis=1)
    small /= np.outer(np.diff(rows), np.diff(columns))
    small -= small.mean()
    result: Floats = (small / max(float(small.std()), 1.0)).ravel().astype(np.float16)
    return result


def near_duplicate_groups(thumbnails: Floats) -> Indices:
    """A number (n,) for each of the thumbnails (n, SIDE²): that of the first image it is a near-duplicate of.

    >>> flat, edge = np.zeros(64, np.float16), np.repeat([-1, 1], 32).astype(np.float16)
    >>> near_duplicate_groups(np.stack([edge, flat, edge, edge + np.float16(0.004)])).tolist()
    [0, 1, 0, 0]
    """
    groups = np.arange(len(thumbnails))
    if len(thumbnails) <= MOST_IMAGES:
        for rows, columns in _near_pairs(thumbnails, thumbnails, thumbnails):
            later = columns > rows
            for pair in zip(rows[later].tolist(), columns[later].tolist(), strict=True):
                first, second = sorted(groups[list(pair)])
                groups[groups == second] = first
    return groups


def near_duplicates(thumbnails: Floats, known: Floats) -> Indices:
    """Indices of the thumbnails (n, SIDE²) that are near-duplicates of one of the `known` (m, SIDE²)."""
    pairs = _near_pairs(thumbnails, known, np.concatenate([thumbnails, known]))
    return np.unique(np.concatenate([np.empty(0, np.intp), *(rows for rows, _ in pairs)]))


def _near_pairs(some: Floats, others: Floats, every: Floats) -> Iterator[tuple[Indices, Indices]]:
    """The rows (p,) of some thumbnails and of others that show one part; `every` says how far images are apart."""
    if len(some) == 0 or len(others) == 0:
        return
    limit = _limit(every)
    for start in range(0, len(some), BLOCK):
        rows, columns = np.nonzero(_apart(some[start : start + BLOCK], others) <= limit)
        yield rows + start, columns


def _apart(one: Floats, other: Floats) -> Floats:
    """Root mean squared differences (n, m)."""
    squares = squared_distances(one.astype(np.float64), other.astype(np.float64))
    distances: Floats = np.sqrt(squares / one.shape[1])
    return distances


def _limit(thumbnails: Floats) -> float:
    """How far two thumbnails of one part may be apart among these."""
    pairs = np.random.default_rng(0).integers(len(thumbnails), size=(2, TYPICAL_PAIRS))
    some = thumbnails[pairs[0]].astype(np.float64) - thumbnails[pairs[1]]
    distances = np.sqrt((some[pairs[0] != pairs[1]] ** 2).mean(axis=1))
    typical = float(np.median(distances)) if len(distances) else 0.0
    return float(np.clip(MOST_OF_TYPICAL * typical, LEAST_LIMIT, MOST_LIMIT))
