"""Exact nearest-neighbour search as matrix products.

‖z − m‖² = ‖z‖² + ‖m‖² − 2 z·m is one product of [z, ‖z‖², 1] with [−2m, 1, ‖m‖²]: nothing but the product is formed.
"""

from __future__ import annotations

import numpy as np

from mhpatchcore.arrays import Floats, Indices, Mask

QUERIES_PER_BLOCK = 1024


def nearest_rows(z: Floats, bank: Floats) -> tuple[Indices, Floats]:
    """For each row of z (n, k): the index of the nearest bank row and the squared distance to it.

    >>> nearest_rows(np.array([[0.9]], np.float32), np.array([[0.0], [1.0]], np.float32))[0].tolist()
    [1]
    """
    targets = search_targets(bank).T
    index = np.empty(len(z), np.intp)
    distance = np.empty(len(z), np.float32)
    for start in range(0, len(z), QUERIES_PER_BLOCK):
        piece = slice(start, start + QUERIES_PER_BLOCK)
        products = search_queries(z[piece]) @ targets
        index[piece] = products.argmin(axis=1)
        distance[piece] = np.take_along_axis(products, index[piece][:, None], axis=1)[:, 0]
    return index, np.maximum(distance, 0, out=distance)


def mean_of_parts(
    z: Floats, bank: Floats, weights: Floats, parts: int = 1, among: Mask | None = None
) -> tuple[Floats, Floats]:
    """The least squared distance to each interleaved part of the bank, averaged over the parts: plain and weighted.

    Row i belongs to part i mod `parts`; one part gives the plain nearest distance. Several are steadier, since no
    single row decides, and cost nothing more. `weights` (K,) multiply the distances to the rows; `among` (K,) marks
    the rows that count. Two arrays (n,) for z (n, k).
    """
    rows = np.arange(len(bank)) if among is None else np.flatnonzero(among)
    members = [own for own in (rows[rows % parts == part] for part in range(parts)) if len(own)]
    plain, weighted = np.zeros(len(z), np.float32), np.zeros(len(z), np.float32)
    for own in members:
        targets = search_targets(bank[own]).T
        for start in range(0, len(z), QUERIES_PER_BLOCK):
            piece = slice(start, start + QUERIES_PER_BLOCK)
            products = search_queries(z[piece]) @ targets
            plain[piece] += np.maximum(products.min(axis=1), 0)
            products *= weights[own]
            weighted[piece] += np.maximum(products.min(axis=1), 0)
    return plain / np.float32(len(members)), weighted / np.float32(len(members))


def search_targets(bank: Floats) -> Floats:
    """The rows [−2m, 1, ‖m‖²] (K, k + 2)."""
    norms = np.einsum("ij,ij->i", bank, bank)[:, None]
    return np.concatenate([-2 * bank, np.ones_like(norms), norms], axis=1).astype(np.float32)


def search_queries(z: Floats) -> Floats:
    """The rows [z, ‖z‖², 1] (n, k + 2)."""
    norms = np.einsum("ij,ij->i", z, z)[:, None]
    return np.concatenate([z, norms, np.ones_like(norms)], axis=1)


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
