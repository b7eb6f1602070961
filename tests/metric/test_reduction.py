"""Reduction: how many directions are kept, which ones, and that incremental PCA finds the same."""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from made_up_descriptors import exact, sample, squared_distances

from mhpatchcore.metric.moments import Moments
from mhpatchcore.metric.reduction import (
    Reduction,
    no_reduction,
    principal_directions,
    reduce_by,
    reduce_by_ipca,
    retained_dimension,
)
from mhpatchcore.metric.whitening import fit_whitening


def pieces(u: np.ndarray, batch: int) -> list[np.ndarray]:
    return [u[start : start + batch] for start in range(0, len(u), batch)]


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


@pytest.mark.parametrize(
    ("n", "batch", "components"), [(300, 40, 4), (300, 100, None), (300, 3, None), (15, 15, None)]
)
def test_pca_and_ipca_agree(n: int, batch: int, components: int | None) -> None:
    d, u = 10, sample(n, 10, seed=1)
    moments = Moments.of(u)
    ours = reduce_by(moments, None, components)
    theirs = reduce_by_ipca(pieces(u, batch), None, components)
    assert ours.W.shape == theirs.W.shape == (d, components or d)
    assert np.allclose(ours.W @ ours.W.T, theirs.W @ theirs.W.T, atol=1e-6)
    distances = [
        squared_distances(exact(fit_whitening(moments, reduction, 0.07), u)) for reduction in (ours, theirs)
    ]
    assert np.allclose(*distances, rtol=1e-6, atol=1e-9)


def test_pca_and_ipca_keep_the_same_number_by_variance() -> None:
    u = sample(300, 10, seed=2)
    theirs = reduce_by_ipca(pieces(u, 50), 0.95, None)
    assert reduce_by(Moments.of(u), 0.95).W.shape == theirs.W.shape


def test_without_reduction_the_directions_are_the_channels() -> None:
    u = sample(50, 5)
    reduction = no_reduction(Moments.of(u))
    assert np.array_equal(reduction.W, np.eye(5))
    assert np.allclose(reduction.variances, u.var(axis=0, ddof=1)) and reduction.retained == 1.0


def test_the_retained_share() -> None:
    assert Reduction(np.eye(4)[:, :2], np.array([6.0, 3.0, 1.0, 0.0])).retained == 0.9
    assert Reduction(np.eye(2)[:, :1], np.zeros(2)).retained == 1.0


def test_scikit_learn_uses_one_thread_though_its_blas_is_loaded_late() -> None:
    script = """
from threadpoolctl import threadpool_info
from mhpatchcore.runtime.parallel import one_blas_thread
from mhpatchcore.metric.reduction import reduce_by_ipca
import numpy as np
with one_blas_thread():
    def threads():
        return {one["num_threads"] for one in threadpool_info() if one["user_api"] == "blas"}
    seen = []
    from sklearn.decomposition import IncrementalPCA
    fit = IncrementalPCA.partial_fit
    IncrementalPCA.partial_fit = lambda pca, rows: seen.append(threads()) or fit(pca, rows)
    reduce_by_ipca([np.random.default_rng(0).normal(size=(9, 4))], None, None)
assert seen == [{1}], seen
assert threads() == {2}, threads()
"""
    environment = {**os.environ, "OPENBLAS_NUM_THREADS": "2"}
    subprocess.run([sys.executable, "-c", script], check=True, env=environment)


def test_channels_at_unit_spread_are_reduced_alike_whatever_their_units() -> None:
    u = np.random.default_rng(3).normal(size=(400, 12)) @ np.random.default_rng(4).normal(size=(12, 12))
    units = np.array([1e4, 1, 1e-3, 1, 1, 50, 1, 1, 1, 1, 1, 1])
    plain, scaled = (reduce_by(Moments.of(rows), 0.9, unit_spread=True) for rows in (u, u * units))
    np.testing.assert_allclose(scaled.variances, plain.variances)
    np.testing.assert_allclose(np.abs(scaled.W * units[:, None]), np.abs(plain.W), rtol=1e-6)
    assert plain.W.shape[1] > 5 > reduce_by(Moments.of(u * units), 0.9).W.shape[1] == 1
    # in units of spread they are principal directions: uncorrelated, with the variances that they name
    covariance = plain.W.T @ Moments.of(u).covariance @ plain.W
    np.testing.assert_allclose(covariance, np.diag(plain.variances[: len(covariance)]), atol=1e-9)


def test_a_constant_channel_has_no_say_in_the_correlation() -> None:
    u = np.random.default_rng(5).normal(size=(50, 4))
    u[:, 2] = 7
    assert not reduce_by(Moments.of(u), 1.0, unit_spread=True).W[2].any()
