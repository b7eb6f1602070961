"""Farthest-first by speculation: the naive loop's selection, ties, duplicates and all."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from mhpatchcore.bank.farthest_first import farthest_first


def naive(z: np.ndarray, k: int, start: int = 0, covered: np.ndarray | None = None) -> list[int]:
    """One centre at a time, in float64; argmax takes the lowest index of a tie."""
    rows = z.astype(np.float64)

    def to(row: np.ndarray) -> np.ndarray:
        return ((rows - row) ** 2).sum(axis=1)

    chosen: list[int] = []
    if covered is None:
        if min(k, len(z)) == 0:
            return []
        chosen, nearest = [start], to(rows[start])
    else:
        nearest = np.min([to(row) for row in covered.astype(np.float64)], axis=0)
    while len(chosen) < k and nearest.max() > 0:
        chosen.append(int(nearest.argmax()))
        nearest = np.minimum(nearest, to(rows[chosen[-1]]))
    return chosen


def integers(n: int, dim: int, high: int, seed: int = 0) -> np.ndarray:
    """Whole numbers, for which float32 distances are exact; small `high` makes ties and duplicates."""
    return np.random.default_rng(seed).integers(0, high, (n, dim)).astype(np.float32)


small = st.tuples(st.integers(1, 40), st.integers(1, 3)).flatmap(
    lambda shape: arrays(np.float32, shape, elements=st.integers(0, 4).map(float), fill=st.nothing())
)


@settings(max_examples=100, deadline=None)
@given(small, st.integers(0, 50), st.data())
def test_same_as_the_naive_loop(z: np.ndarray, k: int, data: st.DataObject) -> None:
    start = data.draw(st.integers(0, len(z) - 1))
    assert farthest_first(z, k, start).tolist() == naive(z, k, start)


@settings(max_examples=100, deadline=None)
@given(small, st.integers(0, 50), st.data())
def test_same_as_the_naive_loop_with_covered_rows(z: np.ndarray, k: int, data: st.DataObject) -> None:
    rows = data.draw(st.lists(st.integers(0, len(z) - 1), min_size=1, max_size=5))
    covered = z[rows] + data.draw(st.sampled_from([0.0, 1.0]))
    assert farthest_first(z, k, covered=covered).tolist() == naive(z, k, covered=covered)


@pytest.mark.parametrize(("dim", "high"), [(1, 500), (2, 30), (5, 6), (40, 3), (150, 2)])
@pytest.mark.parametrize("k", [17, 400])
def test_same_as_the_naive_loop_over_many_blocks(dim: int, high: int, k: int) -> None:
    z = integers(1000, dim, high, seed=dim)
    assert farthest_first(z, k, start=7).tolist() == naive(z, k, start=7)


@pytest.mark.parametrize(("n", "dim", "offset"), [(3000, 8, 0.0), (2000, 70, 0.0), (1000, 20, 10.0)])
def test_every_pick_is_farthest_up_to_rounding(n: int, dim: int, offset: float) -> None:
    z = (offset + np.random.default_rng(n).normal(size=(n, dim))).astype(np.float32)
    rows = z.astype(np.float64)
    tolerance = 1e-6 * (rows**2).sum(axis=1).max()
    picks = farthest_first(z, 500).tolist()
    nearest = ((rows - rows[picks[0]]) ** 2).sum(axis=1)
    for pick in picks[1:]:
        assert nearest[pick] >= nearest.max() - tolerance
        nearest = np.minimum(nearest, ((rows - rows[pick]) ** 2).sum(axis=1))
    assert len(set(picks)) == 500


def test_clear_gaps_leave_no_choice() -> None:
    # rows at powers of a base: the farthest is never in doubt
    z = (1.5 ** np.random.default_rng(0).permutation(40)[:, None] * np.ones(3)).astype(np.float32)
    assert farthest_first(z, 25).tolist() == naive(z, 25)


def test_ties_go_to_the_lowest_index() -> None:
    z = np.array([[0, 0], [1, 0], [0, 1], [-1, 0], [0, -1]], np.float32)
    assert farthest_first(z, 5).tolist() == [0, 1, 2, 3, 4]
    assert farthest_first(z, 3, start=4).tolist() == [4, 2, 1]


@pytest.mark.parametrize("dim", [1, 64, 1024])
@pytest.mark.parametrize(("offset", "spread"), [(0, 1), (10, 1), (1000, 1), (1000, 1e-3)])
def test_no_duplicate_while_distinct_rows_remain(dim: int, offset: float, spread: float) -> None:
    rng = np.random.default_rng(dim)
    distinct = np.unique((offset + spread * rng.normal(size=(60, dim))).astype(np.float32), axis=0)
    z = distinct[rng.integers(0, len(distinct), 200)]
    picks = farthest_first(z, len(z))
    assert len(picks) == len(np.unique(z[picks], axis=0)) == len(np.unique(z, axis=0))


def test_one_bit_apart_is_not_a_duplicate() -> None:
    z = np.full((6, 10), 100, np.float32)
    z[3, 4] = np.nextafter(np.float32(100), np.float32(101))
    z[5, 0] = 7
    assert farthest_first(z, 6).tolist() == [0, 5, 3]


@pytest.mark.parametrize("offset", [0.0, 1000.0])
def test_covered_rows_are_never_picked_again(offset: float) -> None:
    z = (offset + np.random.default_rng(0).normal(size=(50, 30))).astype(np.float32)
    assert farthest_first(z, 10, covered=z).tolist() == []
    assert farthest_first(z, 50, covered=z[::-1][:47]).tolist() == naive(z, 50, covered=z[3:])
    assert farthest_first(z[[5, 5, 5]], 3, covered=z[:5]).tolist() == [0]


def test_first_pick_is_farthest_from_what_is_covered() -> None:
    z = np.array([[0.0], [4.0], [10.0], [7.0]], np.float32)
    covered = np.array([[1.0], [9.0]], np.float32)
    assert farthest_first(z, 2, covered=covered).tolist() == [1, 3]


def test_workers_change_nothing() -> None:
    z = np.random.default_rng(1).normal(size=(20000, 6)).astype(np.float32)
    alone = farthest_first(z, 40)
    assert np.array_equal(alone, farthest_first(z, 40, workers=4))
    beyond = farthest_first(z, 40, covered=z[:100] / 2)
    assert np.array_equal(beyond, farthest_first(z, 40, covered=z[:100] / 2, workers=4))


def test_more_than_there_are_gives_all() -> None:
    z = integers(30, 4, 100)
    assert sorted(farthest_first(z, 99).tolist()) == list(range(30))


@pytest.mark.parametrize(("n", "k"), [(0, 5), (5, 0), (5, -1)])
def test_nothing_asked_or_nothing_there(n: int, k: int) -> None:
    assert farthest_first(np.ones((n, 3), np.float32), k).tolist() == []


def test_the_input_is_left_alone() -> None:
    z = integers(100, 3, 9)
    before = z.copy()
    farthest_first(z, 50, covered=z[:2])
    assert np.array_equal(z, before)
