"""Several scales as one."""

from __future__ import annotations

import numpy as np
import pytest
from plain_scoring import smoothed

from mhpatchcore.scoring.combining import combined_peak, combined_score


def random_map(h: int, w: int) -> np.ndarray:
    return (np.random.default_rng(h * w).random((h, w)) * 100).astype(np.float32)


def test_one_scale_keeps_its_score() -> None:
    assert combined_score("map-max", [3.5], [random_map(4, 6)], [(32, 48)], 4.0) == 3.5


@pytest.mark.parametrize("rule", ["max", "reweighted"])
def test_by_other_rules_a_score_is_the_mean_of_its_scales(rule: str) -> None:
    maps = [random_map(4, 6), random_map(8, 12)]
    assert combined_score(rule, [3.0, 10.0], maps, [(32, 48), (64, 96)], 4.0) == 6.5


def test_map_max_is_the_peak_of_the_combined_map() -> None:
    maps, sizes = [random_map(4, 6), random_map(8, 12)], [(32, 48), (64, 96)]
    assert combined_score("map-max", [3.0, 10.0], maps, sizes, 4.0) == combined_peak(maps, sizes, 4.0)


def test_the_peak_of_one_scale_is_that_of_its_map() -> None:
    a = random_map(4, 6)
    assert combined_peak([a], [(32, 48)], 4.0) == pytest.approx(smoothed(a, 32, 48, 4.0).max(), rel=1e-5)


@pytest.mark.parametrize("order", [1, -1])
def test_the_peak_of_several_is_that_of_their_mean_at_the_finest_view(order: int) -> None:
    maps, sizes = [random_map(4, 6), random_map(8, 12)][::order], [(32, 48), (64, 96)][::order]
    heats = [
        smoothed(a, 64, 96, 4.0 * 64 / height) for a, (height, _) in zip(maps, sizes, strict=True)
    ]  # every scale is smoothed by four pixels of its own
    assert combined_peak(maps, sizes, 4.0) == pytest.approx(np.mean(heats, axis=0).max(), rel=1e-4)
