"""The local geometry of the bank: the distance to what rows span against its definition, and the weights of rows."""

from __future__ import annotations

import numpy as np
import pytest
from plain_scoring import RIDGE, span_distance
from scipy.optimize import minimize

from mhpatchcore.scoring import local
from mhpatchcore.scoring.local import compared, rows_around, spacing_weights


def gaussian(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def test_the_twin_has_the_same_constants() -> None:
    assert local.RIDGE == RIDGE
    assert [compared(n) for n in (1, 7, 8, 17, 784)] == [1, 1, 1, 2, 98]


@pytest.mark.parametrize("b", [2, 5])
def test_the_closed_form_is_the_least_over_all_weights(b: int) -> None:
    for one in gaussian(4, b, 7).astype(np.float64):
        ridge = RIDGE * (one**2).sum() / b

        def cost(free: np.ndarray, one: np.ndarray = one, ridge: float = ridge) -> float:
            c = np.append(free, 1 - free.sum())
            return float(((c @ one) ** 2).sum() + ridge * (c @ c))

        least = minimize(cost, np.full(b - 1, 1 / b), tol=1e-12).fun
        assert span_distance(one) == pytest.approx(least, rel=1e-5)


def test_no_more_rows_than_there_are_or_than_dimensions_bear() -> None:
    assert rows_around(9, 5000, 62) == 9
    assert rows_around(9, 5, 62) == 5
    assert rows_around(9, 5000, 12) == 4
    assert rows_around(1, 5000, 62) == rows_around(9, 1, 62) == rows_around(9, 5000, 1) == 1


def plain_weights(bank: np.ndarray) -> np.ndarray:
    distances = np.sqrt(((bank[:, None].astype(np.float64) - bank) ** 2).sum(axis=2))
    spacing = np.sort(distances, axis=1)[:, 1:6].mean(axis=1)
    typical = np.median(spacing)
    return (typical / np.maximum(spacing, typical)) ** 2


@pytest.mark.parametrize("K", [3, 4, 40, 300])
def test_weights_are_their_definition(K: int) -> None:
    bank = gaussian(K, 5)
    assert np.allclose(spacing_weights(bank), plain_weights(bank), rtol=1e-3)
    assert spacing_weights(bank).dtype == np.float32


def test_rows_that_stand_alone_weigh_less_and_half_of_all_weigh_one() -> None:
    bank = np.concatenate([gaussian(100, 3), 20 + gaussian(2, 3, seed=1)])
    weights = spacing_weights(bank)
    assert weights[-2:].max() < 0.1 and (weights == 1).mean() >= 0.5 and (weights > 0).all()
    assert np.allclose(spacing_weights(5 * bank), weights, rtol=1e-3)


def test_tiny_and_constant_banks() -> None:
    assert spacing_weights(gaussian(1, 3)).tolist() == [1.0]
    assert spacing_weights(gaussian(2, 3)).tolist() == [1.0, 1.0]
    assert (spacing_weights(np.ones((20, 3), np.float32)) == 1).all()
    alone = np.concatenate([np.zeros((20, 3), np.float32), np.full((1, 3), 1e6, np.float32)])
    assert spacing_weights(alone).min() > 0


def test_workers_change_nothing() -> None:
    bank = gaussian(400, 6)
    assert np.array_equal(spacing_weights(bank), spacing_weights(bank, workers=3))
