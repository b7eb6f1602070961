"""Shrinkage intensities: against scikit-learn where the formulas agree, against transcriptions where they do not."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn import covariance as reference

from mhpatchcore.errors import UserError
from mhpatchcore.metric.shrinkage import POLICIES, ledoit_wolf, oas, parse_shrinkage, rblw, shrink


def sample(n: int, d: int, seed: int = 0, spread: float = 3.0) -> np.ndarray:
    """Centred rows (n, d) of a correlated distribution whose variances fall by exp(−spread)."""
    rng = np.random.default_rng(seed)
    u = rng.standard_t(6, size=(n, d)) * np.exp(-spread * np.arange(d) / d)
    u = u @ np.linalg.qr(rng.normal(size=(d, d)))[0]
    return u - u.mean(axis=0)


def covariance_of(u: np.ndarray, ddof: int = 0) -> np.ndarray:
    return u.T @ u / (len(u) - ddof)


def spectrum(u: np.ndarray) -> np.ndarray:
    return np.linalg.eigvalsh(covariance_of(u))


def literal_oas(S: np.ndarray, N: int) -> float:
    d = len(S)
    square, trace = np.trace(S @ S), np.trace(S)
    return ((1 - 2 / d) * square + trace**2) / ((N + 1 - 2 / d) * (square - trace**2 / d))


def literal_rblw(S: np.ndarray, N: int) -> float:
    d = len(S)
    square, trace = np.trace(S @ S), np.trace(S)
    return ((N - 2) / N * square + trace**2) / ((N + 2) * (square - trace**2 / d))


@pytest.mark.parametrize(("n", "d"), [(200, 5), (50, 20), (30, 60)])
def test_oas_and_rblw_are_the_papers_formulas(n: int, d: int) -> None:
    S = covariance_of(sample(n, d), ddof=1)
    eigenvalues = np.linalg.eigvalsh(S)
    assert 0 < literal_oas(S, n) < 1 and 0 < literal_rblw(S, n) < 1
    assert oas(eigenvalues, n) == pytest.approx(literal_oas(S, n), rel=1e-10)
    assert rblw(eigenvalues, n) == pytest.approx(literal_rblw(S, n), rel=1e-10)


@pytest.mark.parametrize("d", [10, 100])
def test_oas_differs_from_scikit_learn_by_its_terms_in_one_over_d(d: int) -> None:
    # scikit-learn's form drops the two 2/d: ((1)·tr(S²) + tr(S)²) / ((n + 1)·(tr(S²) − tr(S)²/d))
    n, u = 300, sample(300, d)
    S = covariance_of(u)
    square, trace = np.trace(S @ S), np.trace(S)
    theirs = reference.oas(u, assume_centered=True)[1]
    terms = (1 - (2 / d) * square / (square + trace**2)) * (n + 1) / (n + 1 - 2 / d)
    assert oas(spectrum(u), n) == pytest.approx(theirs * terms, rel=1e-9)
    assert oas(spectrum(u), n) == pytest.approx(theirs, rel=2 / d)


@pytest.mark.parametrize(("n", "d"), [(400, 3), (60, 25), (20, 40)])
def test_ledoit_wolf_is_scikit_learns(n: int, d: int) -> None:
    u = sample(n, d, seed=d)
    fourth_moment = float(((u**2).sum(axis=1) ** 2).mean())
    theirs = reference.ledoit_wolf_shrinkage(u, assume_centered=True)
    assert 0 < theirs < 1
    assert ledoit_wolf(spectrum(u), n, fourth_moment) == pytest.approx(theirs, rel=1e-9)


def test_shrunk_covariance_is_scikit_learns() -> None:
    u = sample(80, 12)
    values, vectors = np.linalg.eigh(covariance_of(u))
    ours = (vectors * shrink(values, 0.07)) @ vectors.T
    assert np.allclose(ours, reference.shrunk_covariance(covariance_of(u), 0.07), rtol=1e-10, atol=1e-12)


def test_shrinking_keeps_the_trace() -> None:
    values = np.array([5.0, 1.0, 0.0])
    assert shrink(values, 0.0).tolist() == values.tolist()
    assert shrink(values, 1.0).tolist() == [2.0, 2.0, 2.0]
    assert shrink(values, 0.3).sum() == pytest.approx(values.sum())


@pytest.mark.parametrize("policy", [oas, rblw])
def test_few_rows_clip_at_one(policy: object) -> None:
    S = covariance_of(sample(3, 50, spread=0.1), ddof=1)
    literal = {oas: literal_oas, rblw: literal_rblw}[policy]
    nearly_spherical = np.linalg.eigvalsh(S) + 100
    assert literal(np.diag(nearly_spherical), 3) > 1
    assert policy(nearly_spherical, 3) == 1.0


def test_a_fourth_moment_below_the_covariance_clips_at_zero() -> None:
    assert ledoit_wolf(np.array([4.0, 1.0]), 100, fourth_moment=1.0) == 0.0


@pytest.mark.parametrize("values", [np.full(6, 2.5), np.zeros(4), np.array([3.0])])
def test_spherical_covariance_takes_one(values: np.ndarray) -> None:
    assert oas(values, 40) == rblw(values, 40) == ledoit_wolf(values, 40, 100.0) == 1.0


def test_more_rows_shrink_less() -> None:
    values = np.array([9.0, 3.0, 1.0, 0.5])
    for policy in (oas, rblw):
        intensities = [policy(values, n) for n in (10, 100, 1000, 10**6)]
        assert intensities == sorted(intensities, reverse=True)
        assert intensities[-1] < 1e-5


def test_every_policy_parses_to_itself() -> None:
    assert [parse_shrinkage(name) for name in POLICIES] == list(POLICIES)


@pytest.mark.parametrize(("given", "lam"), [("0.07", 0.07), (0, 0.0), (1, 1.0), ("1e-3", 0.001)])
def test_numbers_parse(given: str | float, lam: float) -> None:
    assert parse_shrinkage(given) == lam


@pytest.mark.parametrize("given", ["auto", "", "-0.1", 1.01, float("nan"), float("inf")])
def test_anything_else_lists_the_choices(given: str | float) -> None:
    with pytest.raises(UserError, match=r"number from 0 to 1 .* oas, rblw, ledoit-wolf, none"):
        parse_shrinkage(given)
