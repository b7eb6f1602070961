"""What lies between known patches is known: the distance to what the nearest rows span, instead of to the nearest row.

A bank of a few thousand rows has gaps, and how near a normal patch comes to a row hangs on which patches happened to
be chosen. Normal looks vary smoothly, though, so the rows around a patch span looks that are normal too. With
m_1 … m_b the rows nearest to a patch, each of weight w_j (`reach.py`), and v_j = √w_j·(z − m_j),

    h(u) = min { ‖Σ c_j·v_j‖² + λ‖c‖² : Σ c_j = 1 } = 1 / (1ᵀ(V + λI)⁻¹1),   V_ij = v_i·v_j,   λ = ρ·tr V/b

b = 1 is the distance to the nearest row alone, as in the paper. λ keeps the weights c small where rows are much alike.
These are the weights of locally linear embedding (Roweis & Saul 2000); the distance to the plane through the nearest
rows is that of K-local hyperplanes (Vincent & Bengio 2001).

The image score hangs on the patches that are farthest from all rows, so only those are looked at in this way; the
others come nearer in the same proportion as these do together.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from mhpatchcore.metric.distances import BankPart, least_columns, search_queries
from mhpatchcore.runtime.arrays import Floats, Mask

RIDGE = 0.03
SHARE = 8  # one in so many patches
TINY = 1e-12


def rows_around(span: int, bank: Floats) -> int:
    """b: as many rows of the bank (K, k) as asked for, if there are; in few dimensions fewer would span everything.

    >>> [rows_around(9, np.zeros((5000, k))) for k in (62, 20, 3)]
    [9, 6, 1]
    """
    K, k = bank.shape
    return int(min(span, K, 1 + k // 4))


def looked_at(patches: int) -> int:
    """How many of an image's patches are compared with what rows span."""
    return max(1, patches // SHARE)


def spanned(
    nearest: Floats,
    z: Floats,
    bank: Floats,
    weights: Floats,
    parts: Sequence[BankPart],
    b: int,
    among: Mask | None = None,
) -> Floats:
    """The patches' distances (n,), which are `nearest` (n,) to the nearest row, to what the b nearest rows span.

    z (n, k) are the patches, bank (K, k) and weights (K,) the rows, `parts` the same ready for a search, and `among`
    (K,) marks those that count.
    """
    far = np.argsort(-nearest, kind="stable")[: looked_at(len(nearest))]
    queries, order = search_queries(z[far]), np.concatenate([part.rows for part in parts])
    distances = np.concatenate([queries @ part.targets.T for part in parts], axis=1)
    if among is not None:
        distances[:, ~among[order]] = np.inf
        b = min(b, int(among.sum()))
    rows = order[least_columns(distances, b)]
    found = span_distances(np.sqrt(weights[rows])[..., None] * (z[far, None] - bank[rows]))
    result: Floats = nearest * (found.sum() / max(nearest[far].sum(), TINY))
    result[far] = found
    return result


def span_distances(v: Floats) -> Floats:
    """h (n,) of the weighted differences v (n, b, k) between patches and their nearest rows.

    >>> beside = np.array([[[1.0, 1.0], [-1.0, 1.0]]])     # two rows, and a patch between and above them
    >>> span_distances(beside).round(2).tolist()
    [1.03]
    """
    V = v @ v.transpose(0, 2, 1)
    b = V.shape[1]
    ridge = RIDGE * np.trace(V, axis1=1, axis2=2) / b + TINY
    V += ridge[:, None, None] * np.eye(b, dtype=V.dtype)
    distances: Floats = 1 / np.linalg.solve(V, np.ones((len(V), b, 1), V.dtype)).sum(axis=(1, 2))
    return distances
