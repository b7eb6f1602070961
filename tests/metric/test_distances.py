"""Squared distances: against brute force, in any tasks, with ties and duplicates, never below zero."""

from __future__ import annotations

import numpy as np
import pytest

from mhpatchcore.metric.distances import (
    distances_to_nearest,
    least_columns,
    neighbour_table,
    search_queries,
    search_targets,
    squared_distances,
)
from mhpatchcore.runtime.parallel import one_blas_thread


def gaussian(n: int, k: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(n, k)).astype(np.float32)


def integers(n: int, dim: int, high: int, seed: int = 0) -> np.ndarray:
    """Whole numbers, for which float32 distances are exact."""
    return np.random.default_rng(seed).integers(0, high, (n, dim)).astype(np.float32)


def brute_force(z: np.ndarray, bank: np.ndarray) -> np.ndarray:
    return ((z[:, None].astype(np.float64) - bank[None]) ** 2).sum(axis=2)


@pytest.mark.parametrize(("n", "K", "k"), [(1, 1, 1), (50, 40, 5), (30, 80, 70)])
def test_all_distances_are_those_of_brute_force(n: int, K: int, k: int) -> None:
    z, bank = gaussian(n, k), gaussian(K, k, seed=1)
    assert np.allclose(squared_distances(z, bank), brute_force(z, bank), rtol=1e-4, atol=1e-4)
    assert np.allclose(search_queries(z) @ search_targets(bank).T, brute_force(z, bank), rtol=1e-4, atol=1e-4)


def test_rounding_makes_no_distance_negative() -> None:
    far = 1000 + gaussian(200, 30)
    assert distances_to_nearest(far, far).min() >= 0
    assert squared_distances(far, far).min() >= 0
    assert distances_to_nearest(far, far).min() >= 0


def test_distances_to_nearest() -> None:
    z, targets = integers(5000, 3, 20), integers(640, 3, 20, seed=1)
    wanted = brute_force(z, targets).min(axis=1)
    assert np.array_equal(distances_to_nearest(z, targets), wanted)
    assert np.array_equal(distances_to_nearest(z, targets, workers=3), wanted)
    assert np.array_equal(distances_to_nearest(z, targets, squares=(z**2).sum(axis=1)), wanted)


def test_workers_change_no_bit() -> None:
    z, targets = gaussian(5000, 33), gaussian(700, 33, seed=1)
    with one_blas_thread():
        assert np.array_equal(distances_to_nearest(z, targets), distances_to_nearest(z, targets, workers=4))
        for one, other in zip(
            neighbour_table(targets, 5), neighbour_table(targets, 5, workers=4), strict=True
        ):
            assert np.array_equal(one, other)


@pytest.mark.parametrize("K", [30, 700])
def test_the_neighbour_table_lists_the_nearest_others_in_order(K: int) -> None:
    bank = gaussian(K, 6)
    table, squares = neighbour_table(bank, 9)
    some = np.arange(0, K, 7)
    exact = brute_force(bank[some], bank)
    assert table.shape == squares.shape == (K, 9)
    assert np.array_equal(table[some], np.argsort(exact, axis=1)[:, 1:10])
    assert np.allclose(squares[some], np.sort(exact, axis=1)[:, 1:10], rtol=1e-3, atol=1e-4)


def test_a_row_is_not_its_own_neighbour_also_among_duplicates() -> None:
    table, squares = neighbour_table(np.repeat(integers(5, 3, 50), 4, axis=0), 3)
    assert not (table == np.arange(20)[:, None]).any() and not squares.any()
    assert all(
        len(set(row)) == 3 and {i // 4 for i in row} == {own // 4} for own, row in enumerate(table.tolist())
    )


@pytest.mark.parametrize(("K", "found"), [(3, 2), (1, 0)])
def test_a_small_bank_has_fewer_neighbours(K: int, found: int) -> None:
    table, squares = neighbour_table(gaussian(K, 2), 9)
    assert table.shape == squares.shape == (K, found)


@pytest.mark.parametrize("b", [0, 1, 4, 12])
def test_the_least_of_every_row_in_order(b: int) -> None:
    values = np.random.default_rng(0).integers(0, 5, (40, 12)).astype(np.float32)  # with many ties
    columns, least = least_columns(values.copy(), b)
    assert columns.shape == least.shape == (40, b)
    assert np.array_equal(least, np.sort(values, axis=1)[:, :b])
    assert np.array_equal(np.take_along_axis(values, columns, axis=1), least)
    assert all(len(set(row)) == b for row in columns.tolist())
