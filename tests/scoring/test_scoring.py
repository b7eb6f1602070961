"""Scores: nearest rows against brute force, the reweighted score against its formula."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import softmax

from mhpatchcore.config import Config
from mhpatchcore.metric.distances import bank_parts, nearest_rows, neighbour_table, part_distances
from mhpatchcore.scoring.maps import view_map
from mhpatchcore.scoring.reach import mean_spacing, reach_weights
from mhpatchcore.scoring.rules import Scorer, reweighted


def gaussian(n: int, k: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(n, k)).astype(np.float32)


def squared_distances(z: np.ndarray, bank: np.ndarray) -> np.ndarray:
    return ((z[:, None].astype(np.float64) - bank[None]) ** 2).sum(axis=2)


@pytest.mark.parametrize(("n", "K", "k"), [(1, 1, 1), (2500, 40, 5), (300, 500, 70)])
def test_nearest_rows_are_those_of_brute_force(n: int, K: int, k: int) -> None:
    z, bank = gaussian(n, k), gaussian(K, k, seed=1)
    index, distance = nearest_rows(z, bank)
    exact = squared_distances(z, bank)
    assert np.allclose(distance, exact.min(axis=1), rtol=1e-4, atol=1e-5)
    assert np.allclose(exact[np.arange(n), index], exact.min(axis=1), rtol=1e-4, atol=1e-5)
    assert np.mean(index == exact.argmin(axis=1)) > 0.999


def test_ties_go_to_the_first_row() -> None:
    bank = np.repeat(np.arange(20, dtype=np.float32), 2)[:, None]
    index, distance = nearest_rows(bank, bank)
    assert index.tolist() == [i - i % 2 for i in range(40)]
    assert not distance.any()


def test_rounding_makes_no_distance_negative() -> None:
    far = 1000 + gaussian(200, 30)
    assert nearest_rows(far, far)[1].min() >= 0


def test_only_marked_rows_count() -> None:
    z, bank = gaussian(200, 4), gaussian(50, 4, seed=1)
    among = np.random.default_rng(2).random(50) < 0.4
    [nearest], _ = part_distances(z, bank_parts(bank, np.ones(50, np.float32)), among)
    exact = np.where(among, squared_distances(z, bank), np.inf)
    assert np.allclose(nearest, exact.min(axis=1), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("K", [30, 2300])
def test_neighbour_table_lists_the_nearest_in_order(K: int) -> None:
    bank = gaussian(K, 6)
    table = neighbour_table(bank, 9)
    some = np.arange(0, K, 7)
    assert table.shape == (K, 9)
    assert np.array_equal(table[some], np.argsort(squared_distances(bank[some], bank), axis=1)[:, :9])


def test_a_row_is_its_own_first_neighbour_also_among_duplicates() -> None:
    bank = np.repeat(gaussian(5, 3), 4, axis=0)
    table = neighbour_table(bank, 4)
    assert table[:, 0].tolist() == list(range(20))
    assert all(len(set(row)) == 4 and len({i // 4 for i in row}) == 1 for row in table.tolist())


def test_a_small_bank_has_fewer_neighbours() -> None:
    assert neighbour_table(gaussian(3, 2), 9).shape == (3, 3)


def literal_score(z: np.ndarray, bank: np.ndarray, b: int) -> float:
    """The paper's equations, without stabilisation, in float64."""
    delta = squared_distances(z, bank)
    u = delta.min(axis=1).argmax()
    m = delta[u].argmin()
    N = np.argsort(squared_distances(bank[m : m + 1], bank)[0])[:b]
    weight = 1 - np.exp(delta[u, m]) / np.exp(delta[u, N]).sum()
    return weight * delta[u, m]


def scorer(bank: np.ndarray, score: str, b: int = 9) -> Scorer:
    return Scorer(bank, (4, 5), Config(score=score, size=32, neighbours=b, sigma=2.0, reach=0.0, parts=1))


@pytest.mark.parametrize("b", [2, 9, 100])
@pytest.mark.parametrize("seed", range(5))
def test_reweighted_is_the_papers_formula(b: int, seed: int) -> None:
    z, bank = gaussian(20, 3, seed), 0.3 * gaussian(40, 3, seed + 100)
    wanted = literal_score(z, bank, b)
    assert scorer(bank, "reweighted", b)(z).score == pytest.approx(wanted, rel=1e-4, abs=1e-6)


def test_equidistant_neighbours_share_the_weight() -> None:
    bank = np.array([[1, 0], [-1, 0], [0, 1], [0, -1]], np.float32)
    score = reweighted(np.zeros(2, np.float32), 1.0, bank)
    assert score == pytest.approx(1 - 1 / 4)


@pytest.mark.parametrize("scale", [30.0, 1e4, 1e8])
def test_huge_distances_do_not_overflow(scale: float) -> None:
    z, bank = scale * gaussian(20, 3), scale * 0.3 * gaussian(40, 3, seed=1)
    delta = squared_distances(z, bank)
    u = delta.min(axis=1).argmax()
    N = np.argsort(squared_distances(bank[[delta[u].argmin()]], bank)[0])[:9]
    with np.errstate(over="raise", invalid="raise", divide="raise"):
        score = scorer(bank, "reweighted")(z).score
    assert score == pytest.approx((1 - softmax(delta[u, N])[0]) * delta[u].min(), rel=1e-3)


def test_max_is_the_largest_patch_score() -> None:
    z, bank = gaussian(20, 3), gaussian(40, 3, seed=1)
    scored = scorer(bank, "max")(z)
    delta = squared_distances(z, bank)
    assert scored.a.shape == (4, 5)
    assert np.allclose(scored.a.ravel(), delta.min(axis=1), rtol=1e-4, atol=1e-5)
    assert scored.score == scored.a.max()


@pytest.mark.parametrize("score", ["max", "reweighted", "map-max"])
def test_peak_is_the_maximum_of_the_smoothed_map(score: str) -> None:
    scored = scorer(gaussian(40, 3, seed=1), score)(gaussian(20, 3))
    assert scored.peak == view_map(scored.a, 32, 32, 2.0).max()
    assert (scored.score == scored.peak) == (score == "map-max")


def test_scoring_among_some_rows_ignores_the_others() -> None:
    z, bank = gaussian(20, 3), gaussian(40, 3, seed=1)
    among = np.arange(40) % 3 > 0
    some, alone = scorer(bank, "max")(z, among), scorer(bank[among], "max")(z)
    assert np.allclose(some.a, alone.a, rtol=1e-5)


def test_neighbours_of_the_reweighted_score_are_among_the_rows_that_count() -> None:
    z, bank = gaussian(20, 3), 0.3 * gaussian(40, 3, seed=1)
    among = np.arange(40) % 3 > 0
    alone = scorer(bank[among], "reweighted")(z).score
    assert scorer(bank, "reweighted")(z, among).score == pytest.approx(alone, rel=1e-5)
    assert scorer(bank, "reweighted")(z).score != pytest.approx(alone, rel=1e-5)


def test_weights_multiply_squared_distances() -> None:
    z, bank = gaussian(50, 4), gaussian(30, 4, seed=1)
    weights = np.random.default_rng(2).uniform(0.2, 1, 30).astype(np.float32)
    [nearest], _ = part_distances(z, bank_parts(bank, weights))
    assert np.allclose(nearest, (squared_distances(z, bank) * weights).min(axis=1), rtol=1e-4)


def test_rows_that_stand_alone_reach_farther() -> None:
    bank = np.concatenate([gaussian(100, 3), 20 + gaussian(2, 3, seed=1)])
    spacing = mean_spacing(bank)
    weights = reach_weights(spacing, 1.0)
    assert weights[-2:].max() < 0.1 and np.median(weights) == pytest.approx(1.0, abs=0.05)
    assert np.allclose(reach_weights(spacing, 2.0), weights**2, rtol=1e-5)
    assert np.array_equal(reach_weights(spacing, 0.0), np.ones(102))
    assert np.allclose(reach_weights(mean_spacing(5 * bank), 1.0), weights, rtol=1e-4)


def test_the_image_score_weighs_rows_and_the_map_does_not() -> None:
    dense, sparse = np.arange(64.0), 200 + 5 * np.arange(64.0)
    bank = np.concatenate([dense, sparse])[:, None].astype(np.float32)
    z = np.concatenate([dense[20:30] + 0.3, sparse[20:30] + 2])[:, None].astype(np.float32)
    one = Scorer(bank, (4, 5), Config(score="max", size=32, sigma=2.0, parts=1))
    scored, exact = one(z), squared_distances(z, bank)
    assert np.allclose(scored.a.ravel(), exact.min(axis=1), rtol=1e-2)
    assert np.allclose(scored.nearest.ravel(), (exact * one.weights).min(axis=1), rtol=1e-2)
    assert (one.weights[84:94] < 0.5).all() and (one.weights[20:30] == 1).all()


def test_the_map_is_the_mean_over_parts_and_the_image_score_that_of_the_nearest_rows() -> None:
    z, bank = gaussian(20, 3), gaussian(25, 3, seed=1)
    exact = squared_distances(z, bank)
    scored = Scorer(bank, (4, 5), Config(score="max", size=32, sigma=2.0, reach=0.0, parts=3))(z)
    wanted = np.mean([exact[:, part::3].min(axis=1) for part in range(3)], axis=0)
    assert np.allclose(scored.a.ravel(), wanted, rtol=1e-4, atol=1e-5)
    assert scored.score == pytest.approx(exact.min(axis=1).max(), rel=1e-4)


def test_a_part_without_rows_that_count_is_left_out() -> None:
    z, bank = gaussian(30, 3), gaussian(20, 3, seed=1)
    among = np.arange(20) % 3 == 1
    [nearest], _ = part_distances(z, bank_parts(bank, np.ones(20, np.float32), 3), among)
    assert np.allclose(nearest, squared_distances(z, bank)[:, among].min(axis=1), rtol=1e-4, atol=1e-5)


def test_reach_of_tiny_and_of_constant_banks() -> None:
    assert reach_weights(mean_spacing(gaussian(1, 3)), 1.0).tolist() == [1.0]
    assert np.isfinite(reach_weights(mean_spacing(np.ones((20, 3), np.float32)), 1.0)).all()
    assert reach_weights(np.array([1.0, 1.0, 9.0]), 100.0).min() > 0
