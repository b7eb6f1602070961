"""How far a bank row speaks: rows that stand alone in the bank stand for a wider neighbourhood.

Where normal patches are rare or vary much, bank rows lie far apart, and a normal patch is far from all of them. There
a distance means less. With s_m the mean distance from row m to its nearest rows and s̃ the median of all s_m,

    w_m = (s̃ / max(s_m, s̃))^(2p)        δ_w(u, m) = w_m · ‖z(u) − m‖²

shortens the distances to such rows and leaves the others as they are. p = 0 is the paper's plain distance.
"""

from __future__ import annotations

import numpy as np

from mhpatchcore.arrays import Floats
from mhpatchcore.bank.search import neighbour_table

NEIGHBOURS = 5


def reach_weights(bank: Floats, power: float) -> Floats:
    """w_m of every bank row (K,), at most 1.

    >>> row = np.array([[0.0], [1.0], [2.0], [3.0], [4.0], [5.0], [20.0]], np.float32)
    >>> reach_weights(row, 1.0).round(2).tolist()[-1] < 0.1
    True
    """
    if power == 0 or len(bank) < 3:
        return np.ones(len(bank), np.float32)
    spacing = mean_spacing(bank)
    typical = max(float(np.median(spacing)), 1e-12)
    ratio = typical / np.maximum(spacing, typical)
    return np.asarray(ratio ** (2 * power), np.float32)


def mean_spacing(bank: Floats) -> Floats:
    """s_m: the mean distance of each row to its nearest other rows (K,)."""
    others = neighbour_table(bank, NEIGHBOURS + 1)[:, 1:]
    spacing = np.empty(len(bank))
    for start in range(0, len(bank), 512):  # so that the gathered neighbours stay small
        piece = slice(start, start + 512)
        gaps = bank[others[piece]] - bank[piece, None]
        spacing[piece] = np.sqrt(np.einsum("ijk,ijk->ij", gaps, gaps)).mean(axis=1)
    return spacing
