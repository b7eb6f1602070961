"""Thresholds keep their promise: by simulation with exchangeable scores, and at the edges."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mhpatchcore.calibration.conformal import Calibration, calibrate, conformal_quantile
from mhpatchcore.errors import UserError

TRIALS = 20000


def calibrated(scores: np.ndarray | list[float], false_alarm: float) -> Calibration:
    return calibrate(np.asarray(scores), 2 * np.asarray(scores), false_alarm, "cross-image")


def exceedances(n: int, false_alarm: float, seed: int, decimals: int = 6) -> int:
    """In how many of many trials a new normal image exceeds the threshold made from n others."""
    rng = np.random.default_rng(seed)
    # skewed, and all images of a trial share a scale: exchangeable, not independent
    scores = rng.lognormal(size=(TRIALS, n + 1)) * rng.gamma(1.0, size=(TRIALS, 1))
    scores = scores.round(decimals).astype(np.float32)
    return sum(float(row[-1]) > conformal_quantile(np.sort(row[:-1]), false_alarm) for row in scores)


@pytest.mark.parametrize(("n", "false_alarm"), [(99, 0.01), (40, 0.1), (37, 0.2)])
def test_false_alarms_come_at_the_stated_rate(n: int, false_alarm: float) -> None:
    # without ties the rate is ⌊α(n+1)⌋/(n+1), which is at most α
    rate = np.floor(false_alarm * (n + 1) + 1e-9) / (n + 1)
    assert 0 < rate <= false_alarm
    deviation = 4 * np.sqrt(TRIALS * rate * (1 - rate))
    assert abs(exceedances(n, false_alarm, seed=n) - TRIALS * rate) < deviation


def test_ties_only_lower_the_rate() -> None:
    assert exceedances(39, 0.1, seed=0, decimals=0) < 0.1 * TRIALS + 4 * np.sqrt(TRIALS * 0.09)


def test_too_few_images_promise_less_and_say_so() -> None:
    calibration = calibrated([3.0, 1.0, 2.0, 5.0, 4.0], 0.01)
    assert calibration.threshold == 5.0
    assert calibration.pixel_threshold == 10.0
    assert calibration.supported_rate == pytest.approx(1 / 6)
    expected, deviation = TRIALS / 6, 4 * np.sqrt(TRIALS * 5 / 36)
    assert abs(exceedances(5, 0.01, seed=1) - expected) < deviation


def test_supported_rate_is_the_stated_one_where_images_suffice() -> None:
    assert calibrated(np.arange(99), 0.01).supported_rate == 0.01
    assert calibrated(np.arange(98), 0.01).supported_rate == pytest.approx(1 / 99)


@pytest.mark.parametrize("percent", [1, 5, 10, 20, 42, 70, 90])
@pytest.mark.parametrize("n", [1, 9, 19, 99, 100, 399])
def test_threshold_is_the_conformal_rank(n: int, percent: int) -> None:
    rank = -(-(n + 1) * (100 - percent) // 100)  # ⌈(n+1)(1−α)⌉ in whole numbers
    scores = np.random.default_rng(n).permutation(np.arange(1, n + 1)).astype(np.float32)
    assert calibrated(scores, percent / 100).threshold == min(rank, n)


def test_p_value_counts_scores_at_least_as_large() -> None:
    calibration = calibrated([1.0, 2.0, 2.0, 3.0], 0.2)
    assert [calibration.p_value(score) for score in (0.5, 1.0, 2.0, 2.5, 3.0, 3.5)] == [
        1,
        1,
        0.8,
        0.4,
        0.4,
        0.2,
    ]


@settings(max_examples=100, deadline=None)
@given(st.lists(st.integers(0, 30), min_size=1, max_size=150), st.integers(-1, 31), st.integers(1, 99))
def test_above_the_threshold_means_p_at_most_the_rate(scores: list[int], score: int, percent: int) -> None:
    calibration = calibrated([float(value) for value in scores], percent / 100)
    if percent * (len(scores) + 1) < 100:
        return  # too few images for the rate
    at_least = sum(value >= score for value in scores)
    assert (score > calibration.threshold) == (100 * (1 + at_least) <= percent * (len(scores) + 1))
    assert calibration.p_value(score) == (1 + at_least) / (len(scores) + 1)


def test_without_images_nothing_is_promised() -> None:
    calibration = calibrated([], 0.01)
    assert calibration.n == 0
    assert calibration.threshold == calibration.pixel_threshold == float("inf")
    assert calibration.supported_rate == 1.0
    assert calibration.p_value(1e9) == 1.0


def test_another_rate_needs_no_refit() -> None:
    strict = calibrated(np.arange(1, 200), 0.01)
    loose = strict.at_rate(0.1)
    assert (strict.threshold, loose.threshold) == (198.0, 180.0)
    assert (loose.pixel_threshold, loose.false_alarm, loose.method) == (360.0, 0.1, "cross-image")
    assert strict.threshold == 198.0


@pytest.mark.parametrize("rate", [0.0, 1.0, -0.1, 2.0, float("nan")])
def test_a_rate_lies_between_zero_and_one(rate: float) -> None:
    with pytest.raises(UserError, match="false-alarm rate"):
        calibrated([1.0, 2.0], rate)
    with pytest.raises(UserError, match="false-alarm rate"):
        calibrated([1.0, 2.0], 0.1).at_rate(rate)


def test_two_calibrations_together_are_one_of_all_their_scores() -> None:
    ours, theirs = calibrated([3.0, 1.0], 0.2), calibrate(np.array([2.0]), np.array([9.0]), 0.4, "held-out")
    both = ours.together(theirs)
    assert both.scores.tolist() == [3.0, 1.0, 2.0] and both.peaks.tolist() == [6.0, 2.0, 9.0]
    assert (both.false_alarm, both.method) == (0.2, "cross-image and held-out")


def test_nine_of_ten_thresholds_realise_a_rate_within_the_interval() -> None:
    rng = np.random.default_rng(0)
    for n, rate in ((99, 0.01), (200, 0.05)):
        low, high = calibrated(rng.random(n), rate).interval
        # of uniform scores the realised rate is what lies above the threshold
        realised = [1 - conformal_quantile(rng.random(n).astype(np.float32), rate) for _ in range(4000)]
        assert np.mean([rate_ < low for rate_ in realised]) == pytest.approx(0.05, abs=0.015)
        assert np.mean([rate_ > high for rate_ in realised]) == pytest.approx(0.05, abs=0.015)


def test_an_image_that_decides_alone_is_told() -> None:
    scores = np.concatenate([np.linspace(10, 20, 60), [39.0]])
    told = calibrated(np.roll(scores, 7), 0.01).decided_alone
    assert told is not None
    assert told[0] == int(np.roll(scores, 7).argmax()) and told[1] == 20.0
    assert calibrated(np.linspace(10, 20, 60), 0.01).decided_alone is None
    assert calibrated([1.0, 100.0], 0.01).decided_alone is None  # two images say nothing of each other
    assert calibrate(scores, scores, 0.01, "held-out", rule="tail").decided_alone is None
