"""Merge-reduce k-center in bounded memory: chunks become farthest-first summaries, summaries are merged.

`tree` is the paper's: a binary counter whose every node holds at most m_c rows. It is short of K rows
whenever few nodes remain at the end. `always_full` keeps one pool instead and returns min(K, distinct) rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial

import numpy as np

from mhpatchcore.bank.farthest_first import farthest_first
from mhpatchcore.bank.patches import Patches, Stream
from mhpatchcore.bank.pool import gathered
from mhpatchcore.bank.sample import Lottery


def tree(stream: Stream, K: int, m_c: int) -> Patches:
    """C_{ℓ+1} = Reduce(C_ℓ⁽¹⁾ ∪ C_ℓ⁽²⁾, m_c); what remains at the end is reduced to at most K rows."""
    nodes = merged_levels(stream.map(lambda chunk: reduce(chunk, m_c)), m_c)
    return finish([*stream.past_rows, *nodes], K, stream.workers)


def always_full(stream: Stream, K: int, m_c: int, dense: float = 0.0, seed: int = 0) -> Patches:
    """min(K, distinct) rows: a `dense` share drawn at random, the rest by coverage of what the draw left out.

    Coverage alone spends its rows on the fringe of the normal patches; a random draw stands where most of them are.
    Chunk summaries gather in one pool, which is reduced whenever it exceeds four times its share of K. A summary is
    larger than m_c where few chunks have to fill K. If the pool still ends short of K (duplicates), further passes
    add the rows farthest from it, until none is left. Banks of the past are in the draw and in the pool from the start.
    """
    draw = Lottery(round(dense * K), seed)
    covering = K - draw.size
    local = max(m_c, -(-2 * covering // max(stream.n_chunks, 1)))
    limit = 4 * max(covering, m_c)

    def summaries() -> Iterator[Patches]:
        yield from (draw.add_past(past) for past in stream.past)
        for tickets, summary in stream.map(lambda chunk: (draw.tickets(chunk), reduce(chunk, local))):
            draw.add(tickets)
            yield summary

    # to K rows, more than will be taken: should a drawn row be among them, another pass would have to replace it
    pool = gathered(summaries(), limit, lambda whole: reduce(whole, K, stream.workers))
    bank = distinct(draw.winners()) if draw.size else pool.take(np.empty(0, np.intp))
    bank = _filled(bank, pool, K, stream.workers)
    while len(bank) < K and stream.n_chunks:
        uncovered = partial(_uncovered, bank=bank, size=K - len(bank))
        before = len(bank)
        bank = _filled(bank, gathered(stream.map(uncovered), limit, uncovered), K, stream.workers)
        if len(bank) == before:
            break
    return bank


def distinct(patches: Patches) -> Patches:
    """Without rows whose z occurs before."""
    _, first = np.unique(patches.z, axis=0, return_index=True)
    return patches.take(np.sort(first))


def _filled(bank: Patches, pool: Patches, K: int, workers: int) -> Patches:
    """The bank with rows of the pool that are farthest from it, up to K."""
    covered = bank.z if len(bank) else None
    rows = farthest_first(pool.z, K - len(bank), covered=covered, workers=workers)
    return Patches.concat([bank, pool.take(rows)])


def reduce(patches: Patches, size: int, workers: int = 1) -> Patches:
    """Greedy farthest-first selection of at most `size` rows."""
    return patches.take(farthest_first(patches.z, size, workers=workers))


def merged_levels(summaries: Iterable[Patches], m_c: int) -> list[Patches]:
    """The binary counter: two nodes of one level become one node of the next, of at most m_c rows."""
    levels: list[Patches | None] = []
    for node in summaries:
        level = 0
        while level < len(levels) and (sibling := levels[level]) is not None:
            node = reduce(Patches.concat([sibling, node]), m_c)
            levels[level] = None
            level += 1
        levels[level : level + 1] = [node]
    return [node for node in levels if node is not None]


def finish(nodes: list[Patches], K: int, workers: int = 1) -> Patches:
    """The final reduction of the remaining nodes to at most K rows."""
    return reduce(Patches.concat(nodes), K, workers)


def _uncovered(chunk: Patches, bank: Patches, size: int) -> Patches:
    rows = farthest_first(chunk.z, size, covered=bank.z)
    return chunk.take(np.sort(rows))
