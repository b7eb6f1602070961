"""The paper's merge-reduce tree, against the reference."""

from __future__ import annotations

import numpy as np
import pytest
from plain_selection import FARTHEST, chunks, doubles

from mhpatchcore import reference
from mhpatchcore.bank.constructors import Patches, Stream, tree
from mhpatchcore.bank.farthest_first import Start


@pytest.mark.parametrize("n_chunks", [1, 2, 3, 7, 8, 11])
@pytest.mark.parametrize(("K", "m_c"), [(50, 10), (12, 10), (6, 25)])
def test_tree_is_the_papers(n_chunks: int, K: int, m_c: int) -> None:
    made = chunks(n_chunks)
    bank = tree(Stream(made), K, m_c, FARTHEST)
    assert np.array_equal(bank.z, reference.merge_reduce(doubles(made), K, m_c))
    assert len(bank) <= min(K, m_c * n_chunks.bit_count())


def test_old_rows_compete_with_the_remaining_nodes() -> None:
    old, made = chunks(1, seed=5)[0].take(np.arange(12)), chunks(5)
    bank = tree(Stream(made, earlier=(old,)), 20, 10, FARTHEST)
    both = np.concatenate([old.z.astype(float), *reference.nodes(doubles(made), 10)])
    assert np.array_equal(bank.z, reference.farthest_first(both, 20))


def test_of_old_rows_alone_a_bank_can_be_made() -> None:
    one, other = (chunks(1, seed=seed)[0] for seed in (1, 2))
    bank = tree(Stream([], earlier=(one, other)), 15, 10, FARTHEST)
    assert np.array_equal(bank.z, reference.farthest_first(Patches.concat([one, other]).z.astype(float), 15))


def test_the_start_reaches_every_node() -> None:
    made = chunks(5, high=1000)
    banks = [tree(Stream(made), 30, 10, Start(rule)).z for rule in ("first", "farthest", "random")]
    assert len({bank.tobytes() for bank in banks}) == 3
