"""Squared Euclidean distances between whitened rows, as matrix products: the one place where they are computed.

‖z − m‖² = ‖z‖² + ‖m‖² − 2 z·m is one product of [z, ‖z‖², 1] with [−2m, 1, ‖m‖²]: nothing but the product is formed,
and of that only a block at a time, in a buffer that is used again. Blocks stay in the cache, and memory that the
system has to hand out anew for every product costs more than the product itself.
"""

from __future__ import annotations

import numpy as np

from mhpatchcore.runtime.arrays import Floats, Indices
from mhpatchcore.runtime.parallel import ordered_map

ROWS_PER_TASK = 1024
QUERIES_PER_BLOCK = 128
TARGETS_PER_BLOCK = 256


def search_targets(bank: Floats) -> Floats:
    """The rows [−2m, 1, ‖m‖²] (K, k + 2)."""
    norms = squared_norms(bank)[:, None]
    return np.concatenate([-2 * bank, np.ones_like(norms), norms], axis=1)


def search_queries(z: Floats) -> Floats:
    """The rows [z, ‖z‖², 1] (n, k + 2)."""
    norms = squared_norms(z)[:, None]
    return np.concatenate([z, norms, np.ones_like(norms)], axis=1)


def squared_norms(z: Floats) -> Floats:
    """‖z‖² of every row of z (n, k): (n,)."""
    return np.asarray(np.einsum("ij,ij->i", z, z))


def squared_distances(z: Floats, bank: Floats) -> Floats:
    """All squared distances (n, m) between the rows of z (n, k) and those of a small bank (m, k).

    >>> squared_distances(np.array([[0.0, 0.0]]), np.array([[3.0, 4.0], [0.0, 1.0]])).tolist()
    [[25.0, 1.0]]
    """
    return np.maximum(search_queries(z) @ search_targets(bank).T, 0)


def distances_to_nearest(
    z: Floats, targets: Floats, workers: int = 1, squares: Floats | None = None
) -> Floats:
    """Squared distance of every row of z (n, k) to the nearest row of targets (m, k): (n,), in tasks of fixed size.

    For repeated calls, pass `squares` (n,), the squared norms of z.
    """
    squares = squared_norms(z) if squares is None else squares
    doubled, norms = -2 * targets, squared_norms(targets)

    def nearest(start: int) -> Floats:
        piece = slice(start, start + ROWS_PER_TASK)
        least = _least_products(doubled, norms, z[piece])
        least += squares[piece]
        return np.maximum(least, 0, out=least)

    return np.concatenate(list(ordered_map(nearest, range(0, len(z), ROWS_PER_TASK), workers)))


def neighbour_table(bank: Floats, b: int, workers: int = 1) -> tuple[Indices, Floats]:
    """For each bank row its b nearest other bank rows (K, b), nearest first, and the squared distances to them."""
    targets = search_targets(bank).T
    b = min(b, len(bank) - 1)

    def nearest(start: int) -> tuple[Indices, Floats]:
        own = np.arange(start, min(start + QUERIES_PER_BLOCK, len(bank)))
        distances = search_queries(bank[own]) @ targets
        distances[own - start, own] = np.inf
        return least_columns(distances, b)

    found = list(ordered_map(nearest, range(0, len(bank), QUERIES_PER_BLOCK), workers))
    return np.concatenate([rows for rows, _ in found]), np.concatenate([squares for _, squares in found])


def least_columns(values: Floats, b: int) -> tuple[Indices, Floats]:
    """The columns (n, b) of the b least values in each row of (n, m), the least first, and those values.

    Writes over the values: a few passes of argmin are faster than one partition.

    >>> columns, least = least_columns(np.array([[3.0, 1.0, 2.0]]), 2)
    >>> columns.tolist(), least.tolist()
    ([[1, 2]], [[1.0, 2.0]])
    """
    lines = np.arange(len(values))
    columns = np.empty((len(values), b), np.intp)
    least = np.empty((len(values), b), values.dtype)
    for i in range(b):
        columns[:, i] = values.argmin(axis=1)
        least[:, i] = values[lines, columns[:, i]]
        values[lines, columns[:, i]] = np.inf
    return columns, least


def _least_products(targets: Floats, offsets: Floats, queries: Floats) -> Floats:
    """min over the targets (m, k) of their product with each query (n, k) plus their offset (m,): (n,)."""
    least = np.full(len(queries), np.inf, np.float32)
    buffer = np.empty((min(TARGETS_PER_BLOCK, len(targets)), len(queries)), np.float32)
    for start in range(0, len(targets), TARGETS_PER_BLOCK):
        block = slice(start, start + TARGETS_PER_BLOCK)
        # queries in columns: the minimum then runs along memory
        products = np.matmul(targets[block], queries.T, out=buffer[: len(targets[block])])
        products += offsets[block, None]
        np.minimum(least, products.min(axis=0), out=least)
    return least
