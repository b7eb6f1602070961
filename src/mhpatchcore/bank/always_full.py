"""A merge-reduce bank that ends with min(K, distinct) rows, where the paper's tree falls short.

Nodes may hold up to K rows instead of m_c. Every four nodes make one, so that a patch is judged anew only a few times
on its way up, and a node is reduced only where it holds more than K rows.
"""

from __future__ import annotations

from functools import partial

import numpy as np

from mhpatchcore.bank.farthest_first import FIRST, Start, farthest_first
from mhpatchcore.bank.patches import Growth, Patches, Stream
from mhpatchcore.bank.tree import joined, reduced

FAN_IN = 4


def always_full(stream: Stream, K: int, m_c: int, start: Start = FIRST) -> Patches:
    """min(K, distinct) rows.

    A chunk's summary is larger than m_c where few chunks have to fill K. If the bank still ends short of K (chunks with
    many duplicates), further passes add the rows farthest from it, until none is left.
    """
    local = max(m_c, -(-2 * K // max(len(stream.chunks), 1)))
    at_most = partial(_at_most, K=K, start=start)
    nodes = stream.nodes(Growth(FAN_IN, partial(reduced, size=local, start=start), at_most))
    bank = at_most(joined([*stream.earlier, *_root(nodes, K, start, stream.workers)]), workers=stream.workers)
    while len(bank) < K and stream.chunks:
        free = K - len(bank)
        nodes = stream.nodes(Growth(FAN_IN, partial(uncovered, size=free), at_most, against=bank))
        (found,) = _root(nodes, K, start, stream.workers)
        further = uncovered(found, bank, free)
        if len(further) == 0:
            break
        bank = joined([bank, further])
    return bank


def uncovered(patches: Patches, bank: Patches, size: int) -> Patches:
    """At most `size` patches that are farthest from the bank."""
    return patches.take(np.sort(farthest_first(patches.z, size, covered=bank.z)))


def _root(nodes: list[Patches], K: int, start: Start, workers: int) -> list[Patches]:
    """What remains of the tree as one node of at most K rows; none where there were no chunks."""
    return [_at_most(joined(nodes), K, start, workers)] if nodes else []


def _at_most(patches: Patches, K: int, start: Start, workers: int = 1) -> Patches:
    return _distinct(patches) if len(patches) <= K else reduced(patches, K, start, workers)


def _distinct(patches: Patches) -> Patches:
    """Without duplicates, in their order: a node that is not reduced may hold equal patches of several chunks."""
    _, first = np.unique(patches.z + np.float32(0), axis=0, return_index=True)  # + 0 makes −0 equal to 0
    return patches.take(np.sort(first))
