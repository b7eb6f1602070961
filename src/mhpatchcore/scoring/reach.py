"""How far a bank row speaks: rows that stand alone in the bank stand for a wider neighbourhood.

Where normal patches are rare or vary much, bank rows lie far apart, and a normal patch is far from all of them. There
a distance means less. With s_m the mean distance from row m to its nearest rows and s̃ the median of all s_m,

    w_m = (s̃ / max(s_m, s̃))^(2p)        δ_w(u, m) = w_m · ‖z(u) − m‖²

shortens the distances to such rows and leaves the others as they are. p = 0 is the paper's plain distance.

The weights are for the image score, whose maximum would else be a rare normal patch. The map shows distances without
them: weighed ones pale where a defect resembles something rare, and its outline is lost. (Rows of similar weight are
searched together and share one weight to take off again, so the map's distances are plain but for some percent.)
"""

from __future__ import annotations

import numpy as np

from mhpatchcore.metric.distances import neighbour_table
from mhpatchcore.runtime.arrays import Doubles, Floats

NEIGHBOURS = 5
LEAST = 1e-12  # a weight of nothing would make its row equal to everything


def reach_weights(spacing: Doubles, power: float) -> Floats:
    """w_m of every bank row (K,) by its spacing s_m, at most 1.

    >>> reach_weights(np.array([1.0, 1.0, 1.0, 2.0]), 1.0).tolist()
    [1.0, 1.0, 1.0, 0.25]
    """
    typical = max(float(np.median(spacing)), 1e-12)
    ratio = typical / np.maximum(spacing, typical)
    return np.maximum(ratio ** (2 * power), LEAST).astype(np.float32)


def mean_spacing(bank: Floats) -> Doubles:
    """s_m: the mean distance of each row to its nearest other rows (K,); with fewer than three rows they are equal."""
    if len(bank) < 3:
        return np.ones(len(bank))
    others = neighbour_table(bank, NEIGHBOURS + 1)[:, 1:]
    spacing = np.empty(len(bank))
    for start in range(0, len(bank), 512):  # so that the gathered neighbours stay small
        piece = slice(start, start + 512)
        gaps = bank[others[piece]] - bank[piece, None]
        spacing[piece] = np.sqrt(np.einsum("ijk,ijk->ij", gaps, gaps)).mean(axis=1)
    return spacing
