"""Exact nearest-neighbour search as matrix products.

‖z − m‖² = ‖z‖² + ‖m‖² − 2 z·m is one product of [z, ‖z‖², 1] with [−2m, 1, ‖m‖²]: nothing but the product is formed,
and of that only a block at a time, in a buffer that is used again. Blocks stay in the cache, and memory that the
system has to hand out anew for every product costs more than the product itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from mhpatchcore.runtime.arrays import Floats, Indices, Mask
from mhpatchcore.runtime.parallel import available_cores, one_blas_thread, ordered_map

QUERIES_PER_BLOCK = 128
RUN = 32
TARGETS_PER_BLOCK = 8 * RUN


def nearest_rows(z: Floats, bank: Floats) -> tuple[Indices, Floats]:
    """For each row of z (n, k): the index of the nearest bank row and the squared distance to it.

    >>> nearest_rows(np.array([[0.9]], np.float32), np.array([[0.0], [1.0]], np.float32))[0].tolist()
    [1]
    """
    targets = search_targets(bank).T
    index = np.empty(len(z), np.intp)
    distance = np.empty(len(z), np.float32)
    buffer = np.empty((min(QUERIES_PER_BLOCK, len(z)), len(bank)), np.float32)
    for start in range(0, len(z), QUERIES_PER_BLOCK):
        piece = slice(start, start + QUERIES_PER_BLOCK)
        queries = search_queries(z[piece])
        products = np.matmul(queries, targets, out=buffer[: len(queries)])
        index[piece] = products.argmin(axis=1)
        distance[piece] = np.take_along_axis(products, index[piece][:, None], axis=1)[:, 0]
    return index, np.maximum(distance, 0, out=distance)


@dataclass(frozen=True, eq=False)
class BankPart:
    """Some rows of a bank, ready to be searched: their indices and weighted targets (rows, k + 2).

    `relief` (runs,) takes the weight of each RUN rows off again, for the map; None where all weights are 1.
    """

    rows: Indices
    targets: Floats
    relief: Floats | None = None


def bank_parts(bank: Floats, weights: Floats, parts: int = 1) -> tuple[BankPart, ...]:
    """The bank (K, k) cut into interleaved parts: row i belongs to part i mod `parts`.

    `weights` (K,) multiply the squared distances to the rows, for the image score; they go into the targets, so they
    cost nothing. Rows of similar weight stand together, so that a run of them can be relieved of it for the map.
    """
    targets = weights[:, None] * search_targets(bank)
    cuts = [np.arange(part, len(bank), parts) for part in range(min(parts, len(bank)))]
    if (weights == 1).all():
        return tuple(BankPart(rows, targets[rows]) for rows in cuts)
    cuts = [rows[np.argsort(weights[rows], kind="stable")] for rows in cuts]
    return tuple(BankPart(rows, targets[rows], _of_runs(1 / weights[rows])) for rows in cuts)


def _of_runs(values: Floats) -> Floats:
    """The median of every RUN values."""
    runs = [np.median(values[start : start + RUN]) for start in range(0, len(values), RUN)]
    return np.array(runs, np.float32)


def part_distances(z: Floats, parts: Sequence[BankPart], among: Mask | None = None) -> tuple[Floats, Floats]:
    """The least weighted squared distances of z (n, k) to the rows of each part of the bank: (parts, n).

    Those for the image score, and those for the map. `among` (K,) marks the rows that count; a part without any is
    left out.
    """
    queries = search_queries(z)
    found = []
    for part in parts:
        targets = part.targets
        if among is not None:
            if not among[part.rows].any():
                continue
            targets = targets.copy()
            targets[~among[part.rows], -1] = np.inf  # a norm that no patch is near to
        found.append(least_products(targets, queries, relief=part.relief))
    for_image, for_map = (np.maximum(np.stack(least), 0) for least in zip(*found, strict=True))
    return for_image, for_map


def least_products(
    targets: Floats,
    queries: Floats,
    offsets: Floats | None = None,
    relief: Floats | None = None,
) -> tuple[Floats, Floats]:
    """min over the targets (m, e) of their products with each of the queries (n, e), and of relief · product: 2 × (n,).

    `offsets` (m,) are added to the products. Every RUN targets share a relief; without any both minima are the same.

    >>> least_products(np.array([[3.0], [-2.0]], np.float32), np.array([[1.0], [-1.0]], np.float32))[0].tolist()
    [-2.0, -3.0]
    """
    least = np.full(len(queries), np.inf, np.float32)
    relieved = least if relief is None else least.copy()
    buffer = np.empty((min(TARGETS_PER_BLOCK, len(targets)), len(queries)), np.float32)
    for start in range(0, len(targets), TARGETS_PER_BLOCK):
        block = slice(start, start + TARGETS_PER_BLOCK)
        # queries in columns: the minimum then runs along memory
        products = np.matmul(targets[block], queries.T, out=buffer[: len(targets[block])])
        if offsets is not None:
            products += offsets[block, None]
        if relief is None:
            np.minimum(least, products.min(axis=0), out=least)
            continue
        for run in range(0, len(products), RUN):
            of_run = products[run : run + RUN].min(axis=0)
            np.minimum(least, of_run, out=least)
            np.minimum(relieved, relief[(start + run) // RUN] * of_run, out=relieved)
    return least, relieved


def search_targets(bank: Floats) -> Floats:
    """The rows [−2m, 1, ‖m‖²] (K, k + 2)."""
    norms = squared_norms(bank)[:, None]
    return np.concatenate([-2 * bank, np.ones_like(norms), norms], axis=1).astype(np.float32)


def search_queries(z: Floats) -> Floats:
    """The rows [z, ‖z‖², 1] (n, k + 2)."""
    norms = squared_norms(z)[:, None]
    return np.concatenate([z, norms, np.ones_like(norms)], axis=1)


def squared_norms(z: Floats) -> Floats:
    """‖z‖² of every row of z (n, k): (n,)."""
    return np.asarray(np.einsum("ij,ij->i", z, z))


def neighbour_table(bank: Floats, b: int) -> Indices:
    """For each bank row its b nearest bank rows (K, min(b, K)), itself first."""
    targets = search_targets(bank).T
    b = min(b, len(bank))

    def nearest(start: int) -> Indices:
        own = np.arange(start, min(start + QUERIES_PER_BLOCK, len(bank)))
        lines = own - start
        distances = search_queries(bank[own]) @ targets
        distances[lines, own] = -np.inf
        return least_columns(distances, b)

    blocks = range(0, len(bank), QUERIES_PER_BLOCK)
    with one_blas_thread():
        return np.concatenate(list(ordered_map(nearest, blocks, available_cores())))


def least_columns(values: Floats, b: int) -> Indices:
    """The columns (n, b) of the b least values in each row of (n, m), the least first. Writes over the values.

    >>> least_columns(np.array([[3.0, 1.0, 2.0]]), 2).tolist()
    [[1, 2]]
    """
    columns = np.empty((len(values), b), np.int32)
    for i in range(b):  # a few passes of argmin are faster than one partition
        columns[:, i] = values.argmin(axis=1)
        values[np.arange(len(values)), columns[:, i]] = np.inf
    return columns
