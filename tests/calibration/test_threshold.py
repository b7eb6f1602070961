"""Thresholds keep their promise: from few images and many, with odd ones among them, and at the edges."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from mhpatchcore.calibration.choices import better_choice, cautions, choices
from mhpatchcore.calibration.deciding_patches import DecidingPatches
from mhpatchcore.calibration.threshold import (
    LIKENESS_SHARE,
    MOST_DECIDING,
    Calibration,
    calibrate,
    rate_above,
    threshold_at,
)
from mhpatchcore.errors import UserError


def calibrated(scores: np.ndarray | list[float], false_alarm: float) -> Calibration:
    return calibrate(np.asarray(scores), 2 * np.asarray(scores), false_alarm, "cross-image")


def normal_scores(rng: np.random.Generator, n: int) -> np.ndarray:
    """Skewed, as scores are."""
    return np.exp(rng.normal(3.0, 0.25, n)).astype(np.float32)


@pytest.mark.parametrize("n", [5, 20, 100, 400])
@pytest.mark.parametrize("rate", [0.01, 0.02, 0.05])
def test_good_parts_are_rejected_at_the_stated_rate_whatever_the_number_of_images(
    n: int, rate: float
) -> None:
    rng = np.random.default_rng(n)
    further = normal_scores(rng, 20_000)
    realised = np.mean([(further > threshold_at(normal_scores(rng, n), rate)).mean() for _ in range(300)])
    assert 0.4 * rate < realised < 1.5 * rate


def test_nine_of_ten_thresholds_realise_a_rate_within_the_interval() -> None:
    rng = np.random.default_rng(0)
    further = normal_scores(rng, 50_000)
    for n in (30, 200):
        inside = []
        for _ in range(300):
            calibration = calibrated(normal_scores(rng, n), 0.02)
            low, high = calibration.interval
            inside.append(low <= (further > calibration.threshold).mean() <= high)
        assert np.mean(inside) > 0.88


def test_one_odd_image_moves_the_threshold_little_is_named_and_counts_in_the_rate() -> None:
    scores = normal_scores(np.random.default_rng(1), 320)
    before, after = calibrated(scores, 0.02), calibrated(np.append(scores, np.float32(200)), 0.02)
    assert after.threshold < 1.1 * before.threshold
    assert after.scores[after.odd].tolist() == [200.0] and len(before.odd) == 0
    # parts like it are rejected, so fewer of the others may be
    assert after.threshold > before.threshold
    assert after.expected_rate == pytest.approx(0.02) and len(cautions(after, {"lint.png": 200.0})) == 1


def test_many_odd_images_are_the_tail() -> None:
    rng = np.random.default_rng(2)
    scores = np.concatenate([normal_scores(rng, 180), 60 + 3 * normal_scores(rng, 20)])
    calibration = calibrated(scores, 0.02)
    assert len(calibration.odd) == 0
    assert "tail is long" in cautions(calibration, {})[0]


def test_where_odd_images_alone_exceed_the_rate_it_says_so() -> None:
    calibration = calibrated(np.append(normal_scores(np.random.default_rng(3), 49), np.float32(500)), 0.02)
    assert len(calibration.odd) == 1 and calibration.expected_rate == pytest.approx(0.03)


def test_rates_within_the_bulk_are_ranks() -> None:
    scores = np.random.default_rng(4).permutation(np.arange(1, 100)).astype(np.float32)
    assert [threshold_at(scores, rate) for rate in (0.3, 0.5, 0.9)] == [70.0, 50.0, 10.0]


@pytest.mark.parametrize("n", [4, 8, 30, 200])
def test_a_larger_rate_never_has_a_higher_threshold(n: int) -> None:
    scores = normal_scores(np.random.default_rng(n), n)
    thresholds = [threshold_at(scores, rate) for rate in np.linspace(0.001, 0.9, 200)]
    assert thresholds == sorted(thresholds, reverse=True)


def test_fewer_than_four_images_give_the_largest_score() -> None:
    calibration = calibrated([3.0, 1.0, 2.0], 0.02)
    assert (calibration.threshold, calibration.pixel_threshold) == (3.0, 6.0)
    assert calibration.expected_rate == 0.25


def test_equal_scores_are_a_threshold_too() -> None:
    assert calibrated(np.full(50, 7.0), 0.02).threshold == pytest.approx(7.0)
    assert calibrated(np.zeros(50), 0.02).threshold == pytest.approx(0.0, abs=1e-6)


def test_the_rate_above_a_threshold_is_the_inverse() -> None:
    scores = normal_scores(np.random.default_rng(5), 200)
    for rate in (0.002, 0.01, 0.05, 0.15):
        assert rate_above(scores, threshold_at(scores, rate)) == pytest.approx(rate)
    for rate in (0.3, 0.6):
        assert rate_above(scores, threshold_at(scores, rate)) == pytest.approx(rate, abs=0.01)
    assert rate_above(scores, 0.0) == 1.0


def test_the_order_of_the_images_does_not_matter() -> None:
    scores = normal_scores(np.random.default_rng(6), 150)
    assert calibrated(scores, 0.02).threshold == calibrated(scores[::-1], 0.02).threshold


def test_p_value_counts_scores_at_least_as_large() -> None:
    calibration = calibrated([1.0, 2.0, 2.0, 3.0], 0.2)
    found = [calibration.p_value(score) for score in (0.5, 1.0, 2.0, 2.5, 3.0, 3.5)]
    assert found == [1, 1, 0.8, 0.4, 0.4, 0.2]


def test_without_images_nothing_is_promised() -> None:
    calibration = calibrated([], 0.02)
    assert calibration.n == 0 and not calibration.judges and choices(calibration) == []
    assert calibration.threshold == calibration.pixel_threshold == float("inf")
    assert calibration.expected_rate == 1.0 and calibration.p_value(1e9) == 1.0


def test_a_threshold_by_hand_has_the_rate_it_is_expected_to_have() -> None:
    calibration = calibrated(normal_scores(np.random.default_rng(7), 200), 0.02)
    by_hand = calibration.at_threshold(calibration.at_rate(0.05).threshold)
    assert by_hand.expected_rate == pytest.approx(0.05) and by_hand.by_hand == by_hand.threshold
    assert by_hand.pixel_threshold == pytest.approx(calibration.at_rate(0.05).pixel_threshold)
    assert by_hand.at_rate(0.02).threshold == calibration.threshold
    alone = calibrated([], 0.02).at_threshold(20)
    assert alone.judges and alone.threshold == alone.pixel_threshold == 20.0
    for wrong in (0, -1.0, float("nan"), float("inf")):
        with pytest.raises(UserError, match="a threshold is a number above 0"):
            calibration.at_threshold(wrong)


def patches(image: int) -> DecidingPatches:
    return DecidingPatches(image, (8, 8), (np.zeros(1, np.int32),), (np.zeros((1, 2), np.float16),))


@pytest.mark.parametrize("rate", [0.0, 1.0, -0.1, 2.0, float("nan")])
def test_another_rate_lies_between_zero_and_one(rate: float) -> None:
    with pytest.raises(UserError, match="false-alarm rate"):
        calibrated([1.0, 2.0], 0.1).at_rate(rate)


def test_only_the_highest_scores_keep_their_deciding_patches() -> None:
    n = MOST_DECIDING + 20
    scores = np.random.default_rng(8).permutation(n).astype(np.float32)
    calibration = calibrate(scores, 3 * scores, 0.02, "cross-image", [patches(i) for i in range(n)])
    kept = [scores[one.image] for one in calibration.deciding]
    assert kept == sorted(scores, reverse=True)[:MOST_DECIDING] == calibration.scores[:MOST_DECIDING].tolist()
    assert (
        sorted(calibration.scores) == sorted(scores) and (calibration.peaks == 3 * calibration.scores).all()
    )


def test_two_calibrations_together_are_one_of_all_their_scores() -> None:
    ours = calibrate(np.array([3.0, 1.0]), np.array([6.0, 2.0]), 0.2, "cross-image", [patches(0), None])
    theirs = calibrate(np.array([2.0, 5.0]), np.array([9.0, 7.0]), 0.4, "held-out", [patches(8), None])
    both = ours.together(theirs)
    assert sorted(zip(both.scores.tolist(), both.peaks.tolist(), strict=True)) == [
        (1, 2),
        (2, 9),
        (3, 6),
        (5, 7),
    ]
    assert [one.image for one in both.deciding] == [0, 8] and both.scores[:2].tolist() == [3.0, 2.0]
    assert (both.false_alarm, both.method) == (0.2, "cross-image and held-out")


@pytest.mark.parametrize("n", [60, 500, 2000])
def test_the_stated_rate_counts_good_parts_that_look_like_a_known_defect(n: int) -> None:
    """How like one they look has nothing to do with their scores; patches are kept of the highest scores only."""
    rng = np.random.default_rng(10)
    further, alike = normal_scores(rng, 50_000), rng.beta(8, 3, 50_000)
    rates = []
    for _ in range(40):
        every = calibrate(normal_scores(rng, n), np.ones(n), 0.03, "", [patches(i) for i in range(n)])
        calibration = replace(every, for_likeness=LIKENESS_SHARE)
        limit, least = calibration.likeness_limit(rng.beta(8, 3, len(calibration.deciding)))
        above, like = further > calibration.threshold, (alike > limit) & (further >= least)
        rates.append((above.mean(), (above | like).mean()))
    by_score, by_either = np.mean(rates, axis=0)
    assert by_score < by_either < 0.033 and calibration.expected_rate == pytest.approx(0.03)


def test_choices_say_what_each_rate_finds_and_which_finds_many_more() -> None:
    calibration = calibrated(normal_scores(np.random.default_rng(9), 300), 0.02)
    between = (calibration.threshold + calibration.at_rate(0.05).threshold) / 2
    offered = choices(calibration, [between, 1000.0, 1000.0])
    assert [one.false_alarm for one in offered] == [0.005, 0.01, 0.02, 0.05]
    assert [one.found for one in offered] == [2, 2, 2, 3] and {one.of for one in offered} == {3}
    assert [one.in_use for one in offered] == [False, False, True, False]
    assert better_choice(offered) == offered[-1]
    assert better_choice(choices(calibration, [1000.0])) is None
    by_hand = choices(calibration.at_threshold(between))
    assert len(by_hand) == 5 and next(one for one in by_hand if one.in_use).threshold == between
