"""Whitening: Euclidean distance after it is Mahalanobis distance under Σ_L, also on degenerate data."""

from __future__ import annotations

import numpy as np
import pytest
from made_up_descriptors import exact, sample, squared_distances

from mhpatchcore.backbone.session import aligned_rows
from mhpatchcore.errors import UserError
from mhpatchcore.metric.moments import Moments
from mhpatchcore.metric.reduction import Reduction, no_reduction, reduce_by
from mhpatchcore.metric.whitening import fit_whitening, jittered_cholesky, regularised
from mhpatchcore.runtime.parallel import one_blas_thread


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
    moments = Moments.of(u)
    # without reduction the covariance is not diagonal
    reduction = no_reduction(moments) if variance == "as it is" else reduce_by(moments, variance)
    whitening = fit_whitening(moments, reduction, lam)
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
    with pytest.raises(UserError, match="shrinkage="):
        jittered_cholesky(covariance)


def test_repr_tells_what_it_is() -> None:
    reduction = Reduction(np.eye(4)[:, :2], np.array([6.0, 3.0, 1.0, 0.0]))
    whitening = fit_whitening(Moments.of(sample(30, 4)), reduction, lam=0.07)
    assert repr(whitening) == "Whitening(d=4, k=2, retained=0.9000, lam=0.07)"


@pytest.mark.parametrize("dtype", [np.float16, np.float32])
@pytest.mark.parametrize("grids", [[(6, 7)], [(8, 6), (4, 3)], [(7, 9), (4, 5), (2, 1)]], ids=str)
def test_layers_are_whitened_on_their_own_grids_as_their_aligned_rows_are(
    grids: list[tuple[int, int]], dtype: type
) -> None:
    rng = np.random.default_rng(0)
    maps = [(20 + rng.normal(size=(4 + i, *grid))).astype(dtype) for i, grid in enumerate(grids)]
    rows = aligned_rows(maps)
    whitening = fit_whitening(Moments.of(rows), reduce_by(Moments.of(rows), 0.99), lam=0.07)
    z = whitening.of_maps(maps)
    assert z.shape == (grids[0][0] * grids[0][1], whitening.k) and z.dtype == np.float32
    assert np.allclose(z, exact(whitening, rows), atol=1e-3)


def test_descriptors_of_whitened_rows_whiten_to_them() -> None:
    u = sample(40, 7)
    whitening = fit_whitening(Moments.of(u), reduce_by(Moments.of(u), components=4), lam=0.07)
    z = np.random.default_rng(1).normal(size=(9, 4)).astype(np.float32)
    assert np.allclose(exact(whitening, whitening.inverse(z)), z, atol=1e-4)


def test_rows_do_not_depend_on_those_around_them() -> None:
    u = sample(3000, 6).astype(np.float16)
    whitening = fit_whitening(Moments.of(u), reduce_by(Moments.of(u), None), lam=0.07)
    with one_blas_thread():
        together = whitening(u)
        assert np.array_equal(together[1024:2048], whitening(u[1024:2048]))
