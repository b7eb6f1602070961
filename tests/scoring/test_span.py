"""Distances to what the nearest rows span: against their definition, and what they mean."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy.optimize import minimize

from mhpatchcore.config import Config
from mhpatchcore.metric.distances import bank_parts
from mhpatchcore.scoring.rules import Scorer
from mhpatchcore.scoring.span import RIDGE, looked_at, span_distances, spanned


def gaussian(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


@pytest.mark.parametrize("b", [2, 5])
def test_the_closed_form_is_the_least_over_all_weights(b: int) -> None:
    v = gaussian(4, b, 7).astype(np.float64)
    for one, found in zip(v, span_distances(v.copy()), strict=True):
        ridge = RIDGE * (one**2).sum() / b

        def cost(free: np.ndarray, one: np.ndarray = one, ridge: float = ridge) -> float:
            c = np.append(free, 1 - free.sum())
            return float(((c @ one) ** 2).sum() + ridge * (c @ c))

        assert found == pytest.approx(minimize(cost, np.full(b - 1, 1 / b), tol=1e-12).fun, rel=1e-5)


def test_equal_rows_are_no_obstacle() -> None:
    assert np.isfinite(span_distances(np.zeros((2, 9, 4), np.float32))).all()
    twice = np.repeat(gaussian(1, 1, 4), 9, axis=1)
    assert span_distances(twice)[0] == pytest.approx((twice[0, 0] ** 2).sum() * (1 + RIDGE / 9), rel=1e-4)


def line(positions: np.ndarray, dimensions: int = 12) -> np.ndarray:
    """Rows (n, dimensions) along one direction."""
    return np.outer(positions, np.ones(dimensions)).astype(np.float32)


def test_what_lies_between_rows_is_nearer_than_what_lies_beside_them() -> None:
    bank = line(np.arange(40.0))
    between, beside = line(np.array([20.5])), line(np.array([20.0]))
    beside[0, ::2] += 0.5
    beside[0, 1::2] -= 0.5  # as far from its nearest row as the other, but off the line
    scorer = Scorer(bank, (1, 1), Config(score="max", size=32, reach=0.0, parts=1))
    assert scorer.around == 4  # few, because there are few dimensions
    plain = Scorer(bank, (1, 1), replace(scorer.config, span=1))
    assert plain(between).score == pytest.approx(plain(beside).score, rel=1e-5)
    assert scorer(between).score < 0.3 * scorer(beside).score
    assert scorer(between).a == plain(between).a  # the map shows plain distances


@pytest.mark.parametrize("parts", [1, 3])
def test_only_the_farthest_patches_are_looked_at_and_the_rest_follows(parts: int) -> None:
    z, bank, weights = gaussian(80, 16), gaussian(300, 16, seed=1), np.ones(300, np.float32)
    nearest = ((z[:, None] - bank) ** 2).sum(axis=2).min(axis=1)
    found = spanned(nearest, z, bank, weights, bank_parts(bank, weights, parts), 5)
    far = np.argsort(-nearest)[: looked_at(80)]
    order = np.argsort(((z[far, None] - bank) ** 2).sum(axis=2), axis=1)[:, :5]
    assert np.allclose(found[far], span_distances(z[far, None] - bank[order]), rtol=1e-4)
    rest = np.setdiff1d(np.arange(80), far)
    assert np.allclose(found[rest] / nearest[rest], found[far].sum() / nearest[far].sum(), rtol=1e-4)


def test_rows_that_do_not_count_span_nothing() -> None:
    z, bank = gaussian(20, 16), gaussian(60, 16, seed=1)
    config = Config(score="max", size=32, reach=0.0, parts=3)
    for among in (np.arange(60) % 3 > 0, np.arange(60) < 4):
        some = Scorer(bank, (4, 5), config)(z, among)
        alone = Scorer(bank[among], (4, 5), config)(z)
        assert np.allclose(some.nearest, alone.nearest, rtol=1e-4)


def test_weights_shorten_what_their_rows_span() -> None:
    z, bank = gaussian(16, 16), gaussian(50, 16, seed=1)
    nearest = ((z[:, None] - bank) ** 2).sum(axis=2).min(axis=1)
    plain, short = (
        spanned(
            w * nearest, z, bank, np.full(50, w, np.float32), bank_parts(bank, np.full(50, w, np.float32)), 5
        )
        for w in (1.0, 0.25)
    )
    assert np.allclose(short, 0.25 * plain, rtol=1e-4)
