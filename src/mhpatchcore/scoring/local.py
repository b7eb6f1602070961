"""The local geometry of the bank: what a row knows around itself. An addition to the paper; `local` = 1 is without.

A bank of a few thousand rows has gaps, and how near a normal patch comes to a row is partly chance. But normal patches
vary smoothly, so the rows around a patch span patches that are normal too; and where rows lie far apart, normal patches
are rare or vary much, and a distance means less. With m_1 … m_b the rows nearest to a patch, s_j the mean distance of
row m_j to its own nearest rows, s̃ the median of all s_j, and v_j = √w_j·(z − m_j),

    w_j = (s̃ / max(s_j, s̃))²
    h(u) = min { ‖Σ c_j·v_j‖² + λ‖c‖² : Σ c_j = 1 } = 1 / (1ᵀ(V + λI)⁻¹1),   V_ij = v_i·v_j,   λ = RIDGE·tr V/b

These are the weights of locally linear embedding (Roweis & Saul 2000); the distance to the plane through the nearest
rows is that of K-local hyperplanes (Vincent & Bengio 2001). λ keeps the weights c small where rows are much alike.

Only the image score uses h, and only the patches that are farthest from all rows decide it: a share of 1/SHARE of
them is compared in this way, and the others come nearer in the same proportion as these do together.

The map shows plain distances. Which row is the nearest is partly chance there too, so the map takes the mean over
MAP_PARTS parts of the bank of the distance to the nearest row in each: run i of rows belongs to part i mod MAP_PARTS.
"""

from __future__ import annotations

import numpy as np

from mhpatchcore.metric.distances import neighbour_table
from mhpatchcore.runtime.arrays import Floats

RIDGE = 0.03
SHARE = 8  # one in so many patches
SPACING_NEIGHBOURS = 5
MAP_PARTS = 3
MOST_RUN = 64
LEAST_WEIGHT = 1e-12  # a weight of zero would make its row equal to everything


def rows_around(local: int, rows: int, dimensions: int) -> int:
    """b: as many rows as asked for, if there are; in few dimensions so many would span everything.

    >>> [rows_around(9, 5000, k) for k in (62, 20, 3)]
    [9, 6, 1]
    """
    return min(local, rows, 1 + dimensions // 4)


def rows_per_run(rows: int) -> int:
    """How many rows make a run: the largest divisor of their number that is not too large.

    >>> rows_per_run(5000), rows_per_run(2000), rows_per_run(37)
    (50, 50, 37)
    """
    return next(n for n in range(min(MOST_RUN, rows), 0, -1) if rows % n == 0)


def map_parts(local: int, rows: int) -> int:
    """Into how many parts the bank is cut for the map; small banks, and the paper's, are one part.

    >>> map_parts(9, 5000), map_parts(1, 5000), map_parts(9, 100)
    (3, 1, 1)
    """
    return MAP_PARTS if local > 1 and rows // rows_per_run(rows) >= 2 * MAP_PARTS else 1


def compared(patches: int) -> int:
    """How many of an image's patches are compared with what rows span."""
    return max(1, patches // SHARE)


def spacing_weights(bank: Floats, workers: int = 1) -> Floats:
    """w of every bank row (K,), at most 1; with fewer than three rows they are equal."""
    if len(bank) < 3:
        return np.ones(len(bank), np.float32)
    _, squares = neighbour_table(bank, SPACING_NEIGHBOURS, workers)
    spacing = np.sqrt(np.maximum(squares, 0)).mean(axis=1)
    typical = max(float(np.median(spacing)), 1e-12)
    ratio = typical / np.maximum(spacing, typical)
    weights: Floats = np.maximum(ratio**2, LEAST_WEIGHT).astype(np.float32)
    return weights
