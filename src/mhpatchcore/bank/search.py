"""Exact nearest-neighbour search as matrix products.

argmin over bank rows m of ‖z − m‖² = ‖z‖² + (‖m‖² − 2 z·m): the bracket is one product, and ‖z‖² is added to
the winner alone.
"""

from __future__ import annotations

import numpy as np

from mhpatchcore.arrays import Floats, Indices, Mask

QUERIES_PER_BLOCK = 1024


def nearest_rows(z: Floats, bank: Floats, among: Mask | None = None) -> tuple[Indices, Floats]:
    """For each row of z (n, k): the index of the nearest bank row and the squared distance to it.

    `among` (m,) marks the bank rows that count.

    >>> nearest_rows(np.array([[0.9]], np.float32), np.array([[0.0], [1.0]], np.float32))[0].tolist()
    [1]
    """
    norms = np.einsum("ij,ij->i", bank, bank)
    if among is not None:
        norms = np.where(among, norms, np.float32(np.inf))
    index = np.empty(len(z), np.intp)
    distance = np.empty(len(z), np.float32)
    for start in range(0, len(z), QUERIES_PER_BLOCK):
        piece = slice(start, start + QUERIES_PER_BLOCK)
        brackets = z[piece] @ (-2 * bank.T)
        brackets += norms
        index[piece] = brackets.argmin(axis=1)
        distance[piece] = np.take_along_axis(brackets, index[piece][:, None], axis=1)[:, 0]
    distance += np.einsum("ij,ij->i", z, z)
    return index, np.maximum(distance, 0, out=distance)


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
