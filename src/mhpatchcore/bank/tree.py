"""Merge-reduce k-center in bounded memory, the paper's: chunks become farthest-first summaries, summaries merge.

    C_{ℓ+1} = Reduce(C_ℓ⁽¹⁾ ∪ C_ℓ⁽²⁾, m_c)

A binary counter whose every node holds at most m_c rows. It is short of K rows whenever few nodes remain at the end;
`always_full.py` is not.
"""

from __future__ import annotations

from functools import partial

from mhpatchcore.bank.farthest_first import FIRST, Start, farthest_first
from mhpatchcore.bank.patches import Growth, Patches, Stream


def tree(stream: Stream, K: int, m_c: int, start: Start = FIRST) -> Patches:
    """At most K rows: what remains of the counter at the end is reduced once more."""
    return reduced(joined([*stream.earlier, *counter(stream, m_c, start)]), K, start, stream.workers)


def counter(stream: Stream, m_c: int, start: Start) -> list[Patches]:
    """The nodes that remain when all chunks have been merged."""
    summarised = partial(reduced, size=m_c, start=start)
    return stream.nodes(Growth(2, summarised, summarised))


def reduced(patches: Patches, size: int, start: Start = FIRST, workers: int = 1) -> Patches:
    """Greedy farthest-first selection of at most `size` rows; as they are where there are no more."""
    return patches.take(farthest_first(patches.z, size, start.of(patches.z), workers=workers))


joined = Patches.concat
