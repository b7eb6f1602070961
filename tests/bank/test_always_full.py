"""The bank that is full: K rows or all that differ, in one tree of fixed shape."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from plain_selection import FARTHEST, chunks, distinct, doubles, pool_of

from mhpatchcore.bank.constructors import Patches, Stream, always_full, tree
from mhpatchcore.reference import farthest_first


@pytest.mark.parametrize("n_chunks", [1, 2, 9])
@pytest.mark.parametrize("high", [2, 3, 30])
@pytest.mark.parametrize("K", [5, 30, 200])
def test_it_returns_k_or_all_distinct_rows(n_chunks: int, high: int, K: int) -> None:
    made = chunks(n_chunks, high=high)
    bank = always_full(Stream(made), K, m_c=8)
    assert len(bank) == distinct(bank.z) == min(K, distinct(pool_of(made)))


@pytest.mark.parametrize("offset", [0.0, 1000.0])
def test_it_finds_the_few_rows_among_many_duplicates(offset: float) -> None:
    # every image is one constant but for three patches; rounding of products must not let duplicates in
    rng = np.random.default_rng(0)
    made = chunks(6, dim=20)
    for chunk in made:
        z = np.full_like(chunk.z, offset)
        z[rng.choice(len(z), 3, replace=False)] += rng.normal(size=(3, 20)).astype(np.float32)
        chunk.z[:] = z
    bank = always_full(Stream(made), K=100, m_c=2)
    assert len(bank) == distinct(bank.z) == distinct(pool_of(made)) == 19


def test_it_reads_the_stream_once_unless_duplicates_leave_it_short() -> None:
    passes = []

    class Counting(Stream):
        def nodes(self, *arguments: Any, **named: Any) -> list[Patches]:
            passes.append(arguments)
            return super().nodes(*arguments, **named)

    assert len(always_full(Counting(chunks(3, high=1000)), K=90, m_c=8)) == 90
    assert len(passes) == 1


def test_it_covers_better_than_the_tree() -> None:
    made = chunks(8, high=1000)
    z = pool_of(made)

    def radius(bank: Patches) -> float:
        return float(((z[:, None] - bank.z[None]) ** 2).sum(axis=2).min(axis=1).max())

    assert radius(always_full(Stream(made), 60, 16)) < radius(tree(Stream(made), 60, 16))


def plain_always_full(parts: list[np.ndarray], K: int, m_c: int) -> np.ndarray:
    """Its tree by recursion: four nodes make one, and only what exceeds K rows is reduced. No further passes."""
    local = max(m_c, -(-2 * K // len(parts)))

    def at_most(z: np.ndarray) -> np.ndarray:
        return z if len(z) <= K else farthest_first(z, K)

    def node(parts: list[np.ndarray]) -> np.ndarray:
        """Of 4ⁿ summaries."""
        if len(parts) == 1:
            return parts[0]
        quarter = len(parts) // 4
        return at_most(np.concatenate([node(parts[i * quarter : (i + 1) * quarter]) for i in range(4)]))

    left, nodes, size = [farthest_first(part, local) for part in parts], [], 4**8
    while left:
        while len(left) < size:
            size //= 4
        nodes.append(node(left[:size]))
        left = left[size:]
    return at_most(at_most(np.concatenate(nodes)))


@pytest.mark.parametrize("n_chunks", [1, 2, 3, 4, 5, 7, 16, 21])
@pytest.mark.parametrize(("K", "m_c"), [(25, 8), (60, 10), (12, 40)])
def test_its_tree_has_one_shape(n_chunks: int, K: int, m_c: int) -> None:
    made = chunks(n_chunks, high=1000)
    bank = always_full(Stream(made), K, m_c, FARTHEST)
    wanted = plain_always_full(doubles(made), K, m_c)
    assert len(wanted) == min(K, 40 * n_chunks)
    assert np.array_equal(bank.z, wanted)


@pytest.mark.parametrize("K", [10, 50, 100, 400])
def test_old_rows_compete_and_fill_up(K: int) -> None:
    one, other = (chunks(1, high=1000, seed=seed)[0] for seed in (7, 8))
    made = chunks(4, high=1000)
    bank = always_full(Stream(made, earlier=(one, other)), K, 8)
    everything = {row.tobytes() for row in pool_of([one, other, *made])}
    assert len(bank) == distinct(bank.z) == min(K, 240)
    assert {row.tobytes() for row in bank.z} <= everything
    alone = always_full(Stream([], earlier=(one, other)), K, 8, FARTHEST)
    both = pool_of([one, other])
    assert np.array_equal(alone.z, farthest_first(both.astype(float), K) if K < 80 else both)
