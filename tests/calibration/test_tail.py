"""The tail of calibration scores: its quantiles on known distributions."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from mhpatchcore.calibration.threshold import FEWEST, fit_tail

Draw = Callable[[np.random.Generator, int], np.ndarray]


@pytest.mark.parametrize(
    ("draw", "quantile"),
    [
        (lambda rng, n: rng.exponential(size=n), lambda p: -np.log(p)),
        (lambda rng, n: 1 - rng.random(n) ** (1 / 3), lambda p: 1 - p ** (1 / 3)),
        (lambda rng, n: (1 - rng.random(n)) ** -0.25, lambda p: p**-0.25),
    ],
    ids=["exponential", "bounded", "Pareto"],
)
def test_quantiles_of_known_tails(draw: Draw, quantile: Callable[[float], float]) -> None:
    rng = np.random.default_rng(0)
    found = [fit_tail(draw(rng, 1000)).threshold(0.01) for _ in range(200)]
    assert np.median(found) == pytest.approx(quantile(0.01), rel=0.08)


def test_few_excesses_predict_the_next_one_of_an_exponential_tail_exactly() -> None:
    rng = np.random.default_rng(1)
    beyond = []
    for _ in range(4000):
        scores = rng.exponential(size=FEWEST + 2)
        beyond.append(rng.exponential() > fit_tail(scores[:-1]).threshold(0.05))
    assert np.mean(beyond) == pytest.approx(0.05, abs=0.015)


def test_a_bounded_tail_ends() -> None:
    tail = fit_tail(1 - np.random.default_rng(2).random(5000) ** 0.5)
    assert tail.zeta < 0 and tail.rate(1e6) == 0.0 and tail.threshold(1e-9) < 1.5


def test_a_threshold_rises_as_its_rate_falls() -> None:
    tail = fit_tail(np.random.default_rng(3).exponential(size=100))
    thresholds = [tail.threshold(rate) for rate in (0.1, 0.05, 0.01, 0.001)]
    assert thresholds == sorted(thresholds) and thresholds[0] < thresholds[-1]
