"""The tail of calibration scores: its quantiles on known distributions, and that no single score decides."""

from __future__ import annotations

import numpy as np
import pytest

from mhpatchcore.calibration.conformal import calibrate, conformal_quantile
from mhpatchcore.calibration.tail import LEAST, fit_tail, tail_threshold


@pytest.mark.parametrize(
    ("draw", "quantile"),
    [
        (lambda rng, n: rng.exponential(size=n), lambda p: -np.log(p)),
        (lambda rng, n: 1 - rng.random(n) ** (1 / 3), lambda p: 1 - p ** (1 / 3)),
        (lambda rng, n: (1 - rng.random(n)) ** -0.25, lambda p: p**-0.25),
    ],
    ids=["exponential", "bounded", "Pareto"],
)
@pytest.mark.parametrize("rate", [0.01, 0.001])
def test_quantiles_of_known_tails(draw: object, quantile: object, rate: float) -> None:
    rng = np.random.default_rng(0)
    found = [fit_tail(draw(rng, 500)).quantile(rate) for _ in range(200)]  # type: ignore[operator,union-attr]
    assert np.median(found) == pytest.approx(quantile(rate), rel=0.08)  # type: ignore[operator]


def test_beyond_the_data_a_rank_stops_and_a_tail_goes_on() -> None:
    scores = np.random.default_rng(1).exponential(size=100).astype(np.float32)
    told = tail_threshold(scores, 0.001)
    assert told is not None and told[0] > scores.max() == conformal_quantile(scores, 0.001)
    assert told[1] < told[0] < told[2]


def test_one_odd_score_moves_a_tail_much_less_than_a_rank() -> None:
    scores = np.random.default_rng(2).normal(20, 2, 129).astype(np.float32)
    odd = np.append(scores, np.float32(60))
    moved = {}
    for rule in ("rank", "tail"):
        before, after = (calibrate(some, some, 0.01, "cross-image", rule=rule) for some in (scores, odd))
        moved[rule] = max(after.threshold / before.threshold, 1)
    assert moved["rank"] > 2 and moved["tail"] < 1.7


def test_too_few_or_equal_scores_have_no_tail() -> None:
    rng = np.random.default_rng(3)
    assert fit_tail(rng.random(LEAST - 1)) is None
    assert fit_tail(np.full(200, 3.0)) is None
    assert fit_tail(np.empty(0)) is None
    few = rng.random(10).astype(np.float32)
    assert calibrate(few, few, 0.01, "held-out", rule="tail").threshold == few.max()
    assert tail_threshold(rng.random(500), 0.5) is None  # that is no tail any more


def test_a_tail_does_not_depend_on_the_order_of_scores() -> None:
    scores = np.random.default_rng(4).gamma(5, size=150).astype(np.float32)
    assert fit_tail(scores) == fit_tail(scores[::-1])
