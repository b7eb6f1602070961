"""Exact nearest-neighbour search as matrix products.

With bank rows m and weights w, the least w·‖z − m‖² is the least of w·‖z‖² + w·‖m‖² − 2w·z·m, which is one product
of [z, ‖z‖², 1] with [−2w·m, w, w·‖m‖²]: nothing but the product is formed.
"""

from __future__ import annotations

import numpy as np

from mhpatchcore.arrays import Floats, Indices, Mask

QUERIES_PER_BLOCK = 1024


def nearest_rows(
    z: Floats, bank: Floats, among: Mask | None = None, weights: Floats | None = None
) -> tuple[Indices, Floats]:
    """For each row of z (n, k): the index of the nearest bank row and the squared distance to it.

    `among` (K,) marks the bank rows that count; `weights` (K,) multiply the squared distances to them.

    >>> nearest_rows(np.array([[0.9]], np.float32), np.array([[0.0], [1.0]], np.float32))[0].tolist()
    [1]
    """
    targets = weighted_targets(bank, weights).T
    if among is not None:
        targets[-1] = np.where(among, targets[-1], np.float32(np.inf))
    index = np.empty(len(z), np.intp)
    distance = np.empty(len(z), np.float32)
    for start in range(0, len(z), QUERIES_PER_BLOCK):
        queries = z[start : start + QUERIES_PER_BLOCK]
        squares = np.einsum("ij,ij->i", queries, queries)[:, None]
        products = np.concatenate([queries, squares, np.ones_like(squares)], axis=1) @ targets
        nearest = products.argmin(axis=1)
        index[start : start + QUERIES_PER_BLOCK] = nearest
        distance[start : start + QUERIES_PER_BLOCK] = np.take_along_axis(products, nearest[:, None], axis=1)[
            :, 0
        ]
    return index, np.maximum(distance, 0, out=distance)


def weighted_targets(bank: Floats, weights: Floats | None = None) -> Floats:
    """The rows [−2w·m, w, w·‖m‖²] (K, k + 2) that queries [z, ‖z‖², 1] are multiplied with."""
    w = np.ones((len(bank), 1), np.float32) if weights is None else weights[:, None].astype(np.float32)
    norms = np.einsum("ij,ij->i", bank, bank)[:, None]
    return np.concatenate([-2 * w * bank, w, w * norms], axis=1).astype(np.float32)


def neighbour_table(bank: Floats, b: int) -> Indices:
    """For each bank row its b nearest bank rows (K, min(b, K)), itself first."""
    norms = np.einsum("ij,ij->i", bank, bank)
    b = min(b, len(bank))
    table = np.empty((len(bank), b), np.int32)
    for start in range(0, len(bank), QUERIES_PER_BLOCK):
        stop = min(start + QUERIES_PER_BLOCK, len(bank))
        distances = norms - 2 * (bank[start:stop] @ bank.T)
        distances[np.arange(stop - start), np.arange(start, stop)] = -np.inf
        nearest = np.argpartition(distances, b - 1, axis=1)[:, :b]
        order = np.argsort(np.take_along_axis(distances, nearest, axis=1), axis=1, kind="stable")
        table[start:stop] = np.take_along_axis(nearest, order, axis=1)
    return table
