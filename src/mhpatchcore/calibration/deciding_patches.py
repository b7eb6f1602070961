"""The patches that decided a calibration image's scores, kept so that the scores can be taken again.

A stored score belongs to one metric and one bank. When a model grows, both change and the image is gone. But its score
came from the few patches around the peak of its map: those are kept in the model, and scored again with the rest
of the image as normal as a bank row. The new score misses a peak that appears elsewhere.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from mhpatchcore.runtime.arrays import Array, Floats, Indices

PER_MAP = 32  # a smoothed map's peak depends on some 5 × 5 cells
NOT_LEARNT = -1


@dataclass(frozen=True, eq=False)
class DecidingPatches:
    """For each scale the `cells` (t,) of the image's grid and their raw descriptors (t, d).

    `image` is its index in the model, or NOT_LEARNT.
    """

    image: int
    cells: tuple[Indices, ...]
    rows: tuple[Array, ...]


def deciding_cells(judged: Floats, nearest: Floats) -> Indices:
    """The grid cells (t,) in and around the peaks of both maps (h, w): the image score's and the pixels'."""
    first, second = _by_surroundings(judged), _by_surroundings(nearest)
    # the second map adds as many again, so that all images have the same number
    further = second[~np.isin(second, first[:PER_MAP])]
    return np.sort(np.concatenate([first[:PER_MAP], further[:PER_MAP]])).astype(np.int32)


def _by_surroundings(a: Floats) -> Indices:
    """All cells (h·w,) of a map (h, w): the highest first, which may decide alone, then by their surroundings."""
    padded = np.pad(a, 1, mode="edge")
    rows = padded[:-2] + padded[1:-1] + padded[2:]
    around = (rows[:, :-2] + rows[:, 1:-1] + rows[:, 2:]).ravel()
    around[a.argmax()] = np.inf
    return np.argsort(-around, kind="stable")


def stacked(deciding: Sequence[DecidingPatches], scale: int, dim: int) -> tuple[Indices, Array]:
    """Cells (n, t) and rows (n, t, d) of one scale, as a file keeps them."""
    if not deciding:
        return np.empty((0, 0), np.int32), np.empty((0, 0, dim), np.float16)
    cells, rows = zip(*((one.cells[scale], one.rows[scale]) for one in deciding), strict=True)
    return np.stack(cells), np.stack(rows)


def unstacked(
    images: Indices, cells: Sequence[Indices], rows: Sequence[Array]
) -> tuple[DecidingPatches, ...]:
    """The inverse: images (n,), and for each scale what `stacked` gave."""
    return tuple(
        DecidingPatches(int(image), tuple(c[i] for c in cells), tuple(r[i] for r in rows))
        for i, image in enumerate(images)
    )
