"""A merge-reduce bank that ends with min(K, distinct) rows, where the paper's tree falls short.

Nodes may hold up to K rows instead of m_c. Every four nodes make one, so that a patch is judged anew only a few times
on its way up, and a node is reduced only where it holds more than K rows.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial

import numpy as np

from mhpatchcore.bank.farthest_first import farthest_first
from mhpatchcore.bank.patches import Patches, Stream
from mhpatchcore.bank.tree import joined, reduced
from mhpatchcore.runtime.trees import tree_reduce

FAN_IN = 4


def always_full(stream: Stream, K: int, m_c: int) -> Patches:
    """min(K, distinct) rows.

    A chunk's summary is larger than m_c where few chunks have to fill K. If the bank still ends short of K (chunks with
    many duplicates), further passes add the rows farthest from it, until none is left.
    """
    local = max(m_c, -(-2 * K // max(len(stream.chunks), 1)))
    summaries = stream.map(partial(reduced, size=local))
    bank = _merged([*stream.earlier], summaries, K, stream.workers)
    while len(bank) < K and stream.chunks:
        found = _merged([], stream.map(partial(uncovered, bank=bank, size=K - len(bank))), K, stream.workers)
        further = uncovered(found, bank, K - len(bank))
        if len(further) == 0:
            break
        bank = joined([bank, further])
    return bank


def uncovered(patches: Patches, bank: Patches, size: int) -> Patches:
    """At most `size` patches that are farthest from the bank."""
    return patches.take(np.sort(farthest_first(patches.z, size, covered=bank.z)))


def _merged(first: list[Patches], summaries: Iterable[Patches], K: int, workers: int) -> Patches:
    """The fixed-shape tree over all summaries, and what is there already, in at most K rows."""
    close = partial(_at_most, K=K, workers=workers)
    whole = tree_reduce(summaries, FAN_IN, lambda a, b: joined([a, b]), close)
    nodes = [*first, *([] if whole is None else [whole])]
    return close(joined(nodes))


def _at_most(patches: Patches, K: int, workers: int) -> Patches:
    return _distinct(patches) if len(patches) <= K else reduced(patches, K, workers)


def _distinct(patches: Patches) -> Patches:
    """Without duplicates, in their order: a node that is not reduced may hold equal patches of several chunks."""
    _, first = np.unique(patches.z + np.float32(0), axis=0, return_index=True)  # + 0 makes −0 equal to 0
    return patches.take(np.sort(first))
