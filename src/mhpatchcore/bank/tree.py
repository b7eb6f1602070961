"""Merge-reduce k-center in bounded memory, the paper's: chunks become farthest-first summaries, summaries merge.

    C_{ℓ+1} = Reduce(C_ℓ⁽¹⁾ ∪ C_ℓ⁽²⁾, m_c)

A binary counter whose every node holds at most m_c rows. It is short of K rows whenever few nodes remain at the end;
`always_full.py` is not.
"""

from __future__ import annotations

from functools import partial

from mhpatchcore.bank.farthest_first import farthest_first
from mhpatchcore.bank.patches import Growth, Patches, Stream


def tree(stream: Stream, K: int, m_c: int) -> Patches:
    """At most K rows: what remains of the counter at the end is reduced once more."""
    return reduced(joined([*stream.earlier, *counter(stream, m_c)]), K, stream.workers)


def counter(stream: Stream, m_c: int) -> list[Patches]:
    """The nodes that remain when all chunks have been merged."""
    summarised = partial(reduced, size=m_c)
    return stream.nodes(Growth(2, summarised, summarised))


def reduced(patches: Patches, size: int, workers: int = 1) -> Patches:
    """Greedy farthest-first selection of at most `size` rows; as they are where there are no more."""
    return patches.take(farthest_first(patches.z, size, workers=workers))


joined = Patches.concat
