"""Exact nearest-neighbour search as matrix products.

‖z − m‖² = ‖z‖² + ‖m‖² − 2 z·m is one product of [z, ‖z‖², 1] with [−2m, 1, ‖m‖²]: nothing but the product is formed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

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


@dataclass(frozen=True, eq=False)
class BankPart:
    """Some rows of a bank, ready to be searched: their indices, targets (k + 2, rows) and weights (rows,)."""

    rows: Indices
    targets: Floats
    weights: Floats


def bank_parts(bank: Floats, weights: Floats, parts: int = 1) -> tuple[BankPart, ...]:
    """The bank (K, k) cut into interleaved parts: row i belongs to part i mod `parts`."""
    cuts = [np.arange(part, len(bank), parts) for part in range(min(parts, len(bank)))]
    return tuple(
        BankPart(own, np.ascontiguousarray(search_targets(bank[own]).T), weights[own]) for own in cuts
    )


def mean_of_parts(z: Floats, parts: Sequence[BankPart], among: Mask | None = None) -> tuple[Floats, Floats]:
    """The least squared distance to each part of the bank, averaged over the parts: plain and weighted.

    One part gives the plain nearest distance. Several are steadier, since no single row decides, and cost nothing
    more. `among` (K,) marks the rows that count; a part without any is left out. Two arrays (n,) for z (n, k).
    """
    queries = search_queries(z)
    found = []
    for part in parts:
        out = None if among is None else ~among[part.rows]
        if out is not None and out.all():
            continue
        products = queries @ part.targets
        if out is not None:
            products[:, out] = np.inf
        plain = products.min(axis=1)
        products *= part.weights
        found.append((np.maximum(plain, 0), np.maximum(products.min(axis=1), 0)))
    share = np.float32(1 / len(found))
    plain, weighted = (sum(column) * share for column in zip(*found, strict=True))
    return plain, weighted


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
    targets = search_targets(bank).T
    table = np.empty((len(bank), min(b, len(bank))), np.int32)
    for start in range(0, len(bank), QUERIES_PER_BLOCK):
        stop = min(start + QUERIES_PER_BLOCK, len(bank))
        distances = search_queries(bank[start:stop]) @ targets
        own = np.arange(stop - start)
        distances[own, np.arange(start, stop)] = -np.inf
        for column in range(table.shape[1]):  # a few passes of argmin are faster than one partition
            nearest = distances.argmin(axis=1)
            table[start:stop, column] = nearest
            distances[own, nearest] = np.inf
    return table
