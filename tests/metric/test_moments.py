"""Moments: equal to a two-pass computation on badly scaled data, over any split, merged in any order."""

from __future__ import annotations

from functools import reduce
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from plain_alignment import aligned

from mhpatchcore.backbone.session import aligned_rows
from mhpatchcore.metric.moments import Moments

SCALES = np.array([1e-3, 1.0, 30.0, 1e3])


def badly_scaled(n: int, seed: int) -> np.ndarray:
    """Correlated rows (n, 4) far from zero, with columns of very different spread."""
    rng = np.random.default_rng(seed)
    mixed = rng.normal(size=(n, 4)) @ (np.eye(4) + 0.3 * rng.normal(size=(4, 4)))
    return 1e6 + mixed * SCALES


def assert_two_pass(moments: Moments, u: np.ndarray, rel: float = 1e-10) -> None:
    """Mean and M2 as two passes give them; entries of M2 are measured against the columns' own spread."""
    exact = u.astype(np.longdouble)
    mean = exact.mean(axis=0)
    centred = exact - mean
    M2 = centred.T @ centred
    spread = np.sqrt(np.diag(M2))
    assert moments.n == len(u)
    assert np.all(np.abs(moments.mean - mean) <= rel * np.abs(mean))
    assert np.all(np.abs(moments.M2 - M2) <= rel * np.outer(spread, spread))


def pieces(u: np.ndarray, cuts: list[int]) -> list[np.ndarray]:
    return np.split(u, sorted(cut % (len(u) + 1) for cut in cuts))


def merged(parts: list[Moments], rng: np.random.Generator) -> Moments:
    """Merge a list by joining two random parts, in random order, until one is left."""
    parts = list(parts)
    while len(parts) > 1:
        i, j = rng.choice(len(parts), 2, replace=False)
        joined = parts[i].merge(parts[j])
        parts = [part for position, part in enumerate(parts) if position not in (i, j)] + [joined]
    return parts[0]


def test_one_batch_is_two_pass() -> None:
    u = badly_scaled(500, 0)
    assert_two_pass(Moments.of(u), u, rel=1e-13)
    assert np.allclose(Moments.of(u).covariance, np.cov(u.T), rtol=1e-9)


@pytest.mark.parametrize("batch", [1, 2, 7, 64, 499])
def test_equal_batches_are_two_pass(batch: int) -> None:
    u = badly_scaled(500, 1)
    moments = Moments.empty(4)
    for start in range(0, len(u), batch):
        moments = moments.update(u[start : start + batch])
    assert_two_pass(moments, u)


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10**6), st.integers(2, 120), st.lists(st.integers(0, 10**4), max_size=20))
def test_any_split_is_two_pass(seed: int, n: int, cuts: list[int]) -> None:
    u = badly_scaled(n, seed)
    parts = [Moments.of(piece) for piece in pieces(u, cuts)]
    assert_two_pass(reduce(Moments.merge, parts), u)


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10**6), st.integers(2, 120), st.lists(st.integers(0, 10**4), min_size=1, max_size=20))
def test_any_merge_order_is_two_pass(seed: int, n: int, cuts: list[int]) -> None:
    u = badly_scaled(n, seed)
    parts = [Moments.of(piece) for piece in pieces(u, cuts)]
    assert_two_pass(merged(parts, np.random.default_rng(seed)), u)


def test_merging_far_apart_groups() -> None:
    near, far = badly_scaled(40, 2), badly_scaled(3, 3) - 2e6
    assert_two_pass(Moments.of(near).merge(Moments.of(far)), np.concatenate([near, far]))


@pytest.mark.parametrize("dtype", [np.float16, np.float32])
def test_narrow_types_are_summed_in_double(dtype: type) -> None:
    u = (100 + np.random.default_rng(4).normal(size=(5000, 3))).astype(dtype)
    moments = Moments.of(u[:1000]).update(u[1000:])
    assert moments.mean.dtype == moments.M2.dtype == np.float64
    assert_two_pass(moments, u.astype(np.float64), rel=1e-12)


def test_empty_is_neutral() -> None:
    u = badly_scaled(10, 5)
    some, none = Moments.of(u), Moments.of(u[:0])
    assert (none.n, none.d) == (0, 4)
    assert not none.mean.any() and not none.covariance.any()
    for moments in (some.merge(none), none.merge(some), some.update(u[:0])):
        assert_two_pass(moments, u)


def test_one_row_has_no_spread() -> None:
    moments = Moments.of(np.array([[3.0, -1e6]]))
    assert moments.mean.tolist() == [3.0, -1e6]
    assert moments.covariance.tolist() == [[0, 0], [0, 0]]


@pytest.mark.parametrize("constant", [0.0, 0.1, 1e6 + 0.1])
def test_constant_columns_have_no_variance(constant: float) -> None:
    u = badly_scaled(50, 6)
    u[:, 1] = constant
    moments = Moments.empty(4)
    for piece in pieces(u, [3, 20, 21]):
        moments = moments.update(piece)
    assert moments.mean[1] == pytest.approx(constant, rel=1e-15)
    # what is left is the square of rounding, far below anything that could be mistaken for variance
    assert np.abs(moments.covariance[1, 1]) <= (4e-16 * constant) ** 2
    assert_two_pass(
        Moments(moments.n, moments.mean[[0, 2]], moments.M2[np.ix_([0, 2], [0, 2])]), u[:, [0, 2]]
    )


def test_updating_leaves_the_old_value_alone() -> None:
    u = badly_scaled(20, 7)
    first = Moments.of(u[:10])
    before = first.n, first.mean.copy(), first.M2.copy()
    first.update(u[10:])
    assert first.n == before[0]
    assert np.array_equal(first.mean, before[1]) and np.array_equal(first.M2, before[2])


def test_repr_tells_n_and_d() -> None:
    assert repr(Moments.of(np.zeros((7, 3)))) == "Moments(n=7, d=3)"


def made_up_maps(grids: list[tuple[int, int]], images: int = 5, offset: float = 0.0) -> list[np.ndarray]:
    """Layers (N, C, h, w) as halves, around an offset, with channels of different spread."""
    rng = np.random.default_rng(len(grids))
    layers = []
    for i, grid in enumerate(grids):
        spread = np.geomspace(0.1, 3, 3 + i)[:, None, None]
        layers.append((offset + spread * rng.normal(size=(images, 3 + i, *grid))).astype(np.float16))
    return layers


def rows_of(maps: list[np.ndarray]) -> np.ndarray:
    """All aligned patches (N·h·w, d) of images whose layers (N, C, h, w) are given, in float64."""
    exact = [layer.astype(np.float64) for layer in maps]
    height, width = exact[0].shape[2:]
    each = [aligned(layer, height, width) for layer in exact]
    return np.moveaxis(np.concatenate(each, axis=1), 1, -1).reshape(-1, sum(layer.shape[1] for layer in maps))


GRIDS = [
    [(6, 8)],
    [(8, 8), (4, 4)],
    [(7, 9), (4, 5)],
    [(7, 5), (7, 5), (3, 2)],
    [(9, 4), (5, 4), (2, 1), (1, 1)],
]


@pytest.mark.parametrize("grids", GRIDS, ids=str)
@pytest.mark.parametrize("offset", [0.0, 30.0, 2000.0])
def test_moments_of_layers_are_those_of_aligned_rows(grids: list[tuple[int, int]], offset: float) -> None:
    maps = made_up_maps(grids, offset=offset)
    moments, rows = Moments.of_maps(maps), rows_of(maps)
    assert_two_pass(moments, rows, rel=1e-11)
    # the rows that the bank takes are the same, in float32
    assert np.allclose(
        np.concatenate([aligned_rows(list(one)) for one in zip(*maps, strict=True)]), rows, rtol=1e-5
    )


@pytest.mark.parametrize("grids", GRIDS[1:], ids=str)
@settings(max_examples=15, deadline=None)
@given(st.lists(st.integers(0, 11), max_size=5))
def test_moments_of_layers_over_any_split(grids: list[tuple[int, int]], cuts: list[int]) -> None:
    maps = made_up_maps(grids, images=11, offset=100.0)
    edges = sorted({0, 11, *cuts})
    parts = [Moments.of_maps([layer[a:b] for layer in maps]) for a, b in pairwise(edges)]
    assert_two_pass(reduce(Moments.merge, parts), rows_of(maps), rel=1e-11)


def test_moments_of_one_cell_have_no_spread() -> None:
    moments = Moments.of_maps(made_up_maps([(1, 1), (1, 1)], images=1, offset=50.0))
    assert moments.n == 1 and not moments.M2.any()


def test_symmetry_is_exact() -> None:
    moments = Moments.of_maps(made_up_maps([(7, 9), (4, 5)]))
    off_diagonal = moments.M2[:3, 3:]
    assert off_diagonal.any() and np.array_equal(off_diagonal, moments.M2[3:, :3].T)
