"""Whitening: Euclidean distance after it is Mahalanobis distance under Σ_L, also on degenerate data."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.decomposition import IncrementalPCA

from mhpatchcore.errors import UserError
from mhpatchcore.metric.moments import Moments
from mhpatchcore.metric.whitening import (
    Reduction,
    Whitening,
    fit_whitening,
    jittered_cholesky,
    principal_directions,
    reduce_by,
    reduce_by_ipca,
    regularised,
    retained_dimension,
)


def sample(n: int, d: int, seed: int = 0) -> np.ndarray:
    """Rows (n, d) around a mean of their own, with variances over two decades along oblique directions."""
    rng = np.random.default_rng(seed)
    directions = np.linalg.qr(rng.normal(size=(d, d)))[0]
    return rng.normal(size=d) + (rng.normal(size=(n, d)) * np.geomspace(1, 0.1, d)) @ directions


def exact(whitening: Whitening, u: np.ndarray) -> np.ndarray:
    """z = A(u − mean) in float64."""
    return (u - whitening.mean) @ whitening.A.T


def squared_distances(z: np.ndarray) -> np.ndarray:
    return ((z[:, None] - z[None]) ** 2).sum(axis=2)


def mahalanobis(u: np.ndarray, W: np.ndarray, lam: float, jitter: float = 0.0) -> np.ndarray:
    """(ũ − ṽ)ᵀ Σ_L⁻¹ (ũ − ṽ) for all pairs, straight from the paper, with an explicit inverse."""
    reduced = (u - u.mean(axis=0)) @ W
    S = np.atleast_2d(np.cov(reduced.T))
    k = len(S)
    inverse = np.linalg.inv((1 - lam) * S + (lam * np.trace(S) / k + jitter) * np.eye(k))
    delta = reduced[:, None] - reduced[None]
    return np.einsum("ijk,kl,ijl->ij", delta, inverse, delta)


@pytest.mark.parametrize("lam", [0.0, 0.07, 1.0])
@pytest.mark.parametrize("variance", [0.9, 1.0, None, "as it is"])
def test_whitened_distance_is_mahalanobis_distance(lam: float, variance: float | str | None) -> None:
    u = sample(60, 8)
    if variance == "as it is":  # without reduction the covariance is not diagonal
        reduction = Reduction(np.eye(8), np.diag(Moments.of(u).covariance))
    else:
        reduction = reduce_by(Moments.of(u), variance)
    whitening = fit_whitening(Moments.of(u), reduction, lam)
    wanted = mahalanobis(u, reduction.W, lam, whitening.jitter)
    assert np.allclose(squared_distances(exact(whitening, u)), wanted, rtol=1e-8, atol=1e-10)
    assert np.allclose(squared_distances(whitening(u)), wanted, rtol=2e-4, atol=1e-5)


def test_unshrunk_whitening_makes_unit_covariance() -> None:
    u = sample(300, 6)
    whitening = fit_whitening(Moments.of(u), reduce_by(Moments.of(u), None), lam=0.0)
    z = exact(whitening, u)
    assert np.allclose(z.mean(axis=0), 0, atol=1e-12)
    assert np.allclose(np.cov(z.T), np.eye(6), atol=1e-10)


def test_euclidean_metric_is_the_plain_projection() -> None:
    u = sample(50, 7)
    reduction = reduce_by(Moments.of(u), components=4)
    whitening = fit_whitening(Moments.of(u), reduction, lam=0.07, metric="euclidean")
    assert np.allclose(whitening(u), (u - u.mean(axis=0)) @ reduction.W, atol=1e-5)
    assert (whitening.lam, whitening.jitter) == (0.0, 0.0)


@settings(max_examples=100, deadline=None)
@given(
    st.lists(st.integers(0, 50), min_size=1, max_size=30),
    st.integers(1, 100),
    st.sampled_from([1, 0.1, 3.7e-9]),
)
def test_retained_dimension_is_minimal(variances: list[int], percent: int, unit: float) -> None:
    variances = sorted(variances, reverse=True)
    total = sum(variances)
    enough = [q for q in range(1, len(variances) + 1) if 100 * sum(variances[:q]) >= percent * total]
    assert retained_dimension(unit * np.array(variances), percent / 100) == enough[0]


@pytest.mark.parametrize("d", [3, 152, 1024])
def test_rounding_of_sums_keeps_no_further_direction(d: int) -> None:
    assert [retained_dimension(np.full(d, 0.1), q / d) for q in range(1, d + 1)] == list(range(1, d + 1))


@pytest.mark.parametrize("d", [3, 152, 1024])
def test_full_variance_keeps_every_direction_that_has_some(d: int) -> None:
    variances = np.sort(np.random.default_rng(d).uniform(0.1, 1, d))[::-1]
    assert retained_dimension(variances, 1.0) == d
    assert retained_dimension(np.append(variances, np.zeros(5)), 1.0) == d


def test_reduction_by_number_by_variance_or_not_at_all() -> None:
    moments = Moments.of(sample(100, 6))
    assert reduce_by(moments, components=2).W.shape == (6, 2)
    assert reduce_by(moments, components=99).W.shape == (6, 6)
    assert reduce_by(moments, None).W.shape == (6, 6)
    kept = reduce_by(moments, 0.9)
    assert 1 < kept.W.shape[1] < 6 and 0.9 <= kept.retained < 1
    assert np.allclose(kept.W.T @ kept.W, np.eye(kept.W.shape[1]), atol=1e-12)


def test_directions_fall_in_variance_and_have_one_sign() -> None:
    covariance = Moments.of(sample(100, 6)).covariance
    variances, directions = principal_directions(covariance)
    assert np.all(np.diff(variances) <= 0)
    assert np.allclose(directions @ np.diag(variances) @ directions.T, covariance, atol=1e-12)
    assert np.all(directions[np.abs(directions).argmax(axis=0), np.arange(6)] > 0)


@pytest.mark.parametrize(("n", "batch", "components"), [(300, 40, 4), (300, 100, None), (15, 15, None)])
def test_pca_and_ipca_agree(n: int, batch: int, components: int | None) -> None:
    d, u = 10, sample(n, 10, seed=1)
    moments = Moments.of(u)
    ipca = IncrementalPCA(batch_size=batch).fit(u)
    ours, theirs = reduce_by(moments, None, components), reduce_by_ipca(ipca, None, components)
    assert ours.W.shape == theirs.W.shape == (d, components or d)
    assert np.allclose(ours.W @ ours.W.T, theirs.W @ theirs.W.T, atol=1e-6)
    distances = [
        squared_distances(exact(fit_whitening(moments, reduction, 0.07), u)) for reduction in (ours, theirs)
    ]
    assert np.allclose(*distances, rtol=1e-6, atol=1e-9)


def test_pca_and_ipca_keep_the_same_number_by_variance() -> None:
    u = sample(300, 10, seed=2)
    ipca = IncrementalPCA(batch_size=50).fit(u)
    assert reduce_by(Moments.of(u), 0.95).W.shape == reduce_by_ipca(ipca, 0.95).W.shape


@pytest.mark.parametrize("lam", [0.0, 0.07])
@pytest.mark.parametrize("variance", [0.99, 1.0, None])
def test_fewer_rows_than_dimensions(lam: float, variance: float | None) -> None:
    u = sample(5, 12)
    reduction = reduce_by(Moments.of(u), variance)
    z = exact(fit_whitening(Moments.of(u), reduction, lam), u)
    assert np.isfinite(z).all()
    if variance is None:
        assert z.shape[1] == 12
    else:
        assert z.shape[1] == 4 if variance == 1.0 else z.shape[1] <= 4
        assert np.allclose(squared_distances(z), mahalanobis(u, reduction.W, lam), rtol=1e-6)


def test_one_row_whitens_to_the_origin() -> None:
    moments = Moments.of(np.array([[1.0, 2.0, 3.0]]))
    whitening = fit_whitening(moments, reduce_by(moments, 0.99), lam=0.07)
    assert whitening.k == 1
    assert np.isfinite(whitening.A).all()
    assert np.allclose(exact(whitening, moments.mean[None]), 0)


def test_constant_columns_do_not_matter() -> None:
    u = sample(80, 5)
    padded = np.insert(u, [0, 3], [7.0, 1e3], axis=1)
    plain, wide = (
        exact(fit_whitening(moments, reduce_by(moments, 1.0), lam=0.07), rows)
        for moments, rows in ((Moments.of(u), u), (Moments.of(padded), padded))
    )
    assert wide.shape == plain.shape
    assert np.allclose(squared_distances(wide), squared_distances(plain), rtol=1e-6)


def test_floor_lifts_small_eigenvalues_only() -> None:
    floored = regularised(np.diag([8.0, 4.0, 1e-9, -1e-12]), lam=0.0, floor=0.01)
    assert np.allclose(np.diag(floored), [8.0, 4.0, 0.03, 0.03])
    assert np.allclose(regularised(np.zeros((2, 2)), lam=0.07, floor=0.5), 0.5e-12 * np.eye(2), atol=1e-20)


def test_floor_acts_after_shrinkage() -> None:
    result = regularised(np.diag([3.0, 1.0]), lam=0.5, floor=0.9)
    assert np.allclose(result, np.diag([2.5, 1.8]))


@pytest.mark.parametrize(("smallest", "jitter"), [(1.0, 0.0), (-5e-12, 1e-11), (-5e-4, 1e-3), (-0.5, 1.0)])
def test_jitter_is_the_first_of_its_sequence_that_suffices(smallest: float, jitter: float) -> None:
    covariance = np.diag([2.0, smallest])
    L, used = jittered_cholesky(covariance)
    assert used == pytest.approx(jitter, rel=1e-9, abs=0)
    assert np.allclose(L @ L.T, covariance + used * np.eye(2), rtol=1e-12)
    assert np.array_equal(L, np.tril(L))


@pytest.mark.parametrize("covariance", [np.diag([1.0, -5.0]), np.full((2, 2), np.nan)])
def test_what_cannot_be_factored_says_what_to_change(covariance: np.ndarray) -> None:
    with pytest.raises(UserError, match="--shrinkage"):
        jittered_cholesky(covariance)


def test_reprs_and_retained_share() -> None:
    reduction = Reduction(np.eye(4)[:, :2], np.array([6.0, 3.0, 1.0, 0.0]))
    assert reduction.retained == 0.9
    assert Reduction(np.eye(2)[:, :1], np.zeros(2)).retained == 1.0
    whitening = fit_whitening(Moments.of(sample(30, 4)), reduction, lam=0.07)
    assert repr(whitening) == "Whitening(d=4, k=2, retained=0.9000, lam=0.07)"
