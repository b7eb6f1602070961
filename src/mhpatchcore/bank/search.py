"""Exact nearest-neighbour search as matrix products.

‖z − m‖² = ‖z‖² + ‖m‖² − 2 z·m is one product of [z, ‖z‖², 1] with [−2m, 1, ‖m‖²]: nothing but the product is formed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from mhpatchcore.arrays import Floats, Indices, Mask
from mhpatchcore.parallel import available_cores, ordered_map

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
    """Some rows of a bank, ready to be searched: their indices and targets (k + 2, rows)."""

    rows: Indices
    targets: Floats


def bank_parts(bank: Floats, weights: Floats, parts: int = 1) -> tuple[BankPart, ...]:
    """The bank (K, k) cut into interleaved parts: row i belongs to part i mod `parts`.

    `weights` (K,) multiply the squared distances to the rows; they go into the targets, so they cost nothing.
    """
    targets = weights[:, None] * search_targets(bank)
    cuts = [np.arange(part, len(bank), parts) for part in range(min(parts, len(bank)))]
    return tuple(BankPart(own, np.ascontiguousarray(targets[own].T)) for own in cuts)


def part_distances(z: Floats, parts: Sequence[BankPart], among: Mask | None = None) -> Floats:
    """The least weighted squared distance of z (n, k) to the rows of each part of the bank: (parts, n).

    `among` (K,) marks the rows that count; a part without any is left out.
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
        found.append(products.min(axis=1))
    return np.asarray(np.maximum(np.stack(found), 0))


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
    b = min(b, len(bank))

    def nearest(start: int) -> Indices:
        own = np.arange(start, min(start + QUERIES_PER_BLOCK, len(bank)))
        lines = own - start
        distances = search_queries(bank[own]) @ targets
        distances[lines, own] = -np.inf
        table = np.empty((len(own), b), np.int32)
        for column in range(b):  # a few passes of argmin are faster than one partition
            table[:, column] = distances.argmin(axis=1)
            distances[lines, table[:, column]] = np.inf
        return table

    blocks = range(0, len(bank), QUERIES_PER_BLOCK)
    return np.concatenate(list(ordered_map(nearest, blocks, available_cores())))
