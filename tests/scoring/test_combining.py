"""All views of an image as one: several scales, tiles, and patches of which only some count."""

from __future__ import annotations

import numpy as np
import pytest
from plain_scoring import smoothed

from mhpatchcore.inputs.views import View
from mhpatchcore.scoring.maps import ViewScores, combined_map
from mhpatchcore.scoring.score import combined_peak, combined_score

HEIGHT, WIDTH = 96, 150


def random_map(h: int, w: int, seed: int = 0) -> np.ndarray:
    return (np.random.default_rng(seed + h * w).random((h, w)) * 100).astype(np.float32)


def whole(h: int, w: int, size: tuple[int, int], scale: int = 0) -> ViewScores:
    return ViewScores(random_map(h, w), View(*size).geometry(64, 96), size, 4.0, scale)


def both() -> list[ViewScores]:
    return [whole(4, 6, (32, 48)), whole(8, 12, (64, 96), 1)]


def tiles(scale: int = 0, side: int = 64, zoom: float = 1.0, seed: int = 0) -> list[ViewScores]:
    """The tiles of an image, each with a map of its own."""
    return [
        ViewScores(random_map(8, 8, 100 * i + seed), where, (side, side), 4.0, scale)
        for i, where in enumerate(View(side, side, zoom=zoom).geometries(HEIGHT, WIDTH))
    ]


def test_one_scale_keeps_its_score() -> None:
    assert combined_score("map-max", [3.5], [whole(4, 6, (32, 48))]) == 3.5


@pytest.mark.parametrize("rule", ["max", "reweighted"])
def test_by_other_rules_a_score_is_the_mean_of_its_scales(rule: str) -> None:
    assert combined_score(rule, [3.0, 10.0], both()) == 6.5


@pytest.mark.parametrize("rule", ["max", "reweighted"])
def test_and_that_of_a_scale_is_the_highest_of_its_tiles(rule: str) -> None:
    views = [whole(4, 6, (32, 48)), *tiles(1)]
    scores = [3.0, *range(len(views) - 1)]
    assert combined_score(rule, scores, views) == (3 + len(views) - 2) / 2


def test_map_max_is_the_peak_of_the_combined_map() -> None:
    for views in (both(), tiles(), [*tiles(), *tiles(1, 96)]):
        assert combined_score("map-max", [3.0] * len(views), views) == combined_peak(views)


def test_the_peak_of_one_scale_is_that_of_its_map() -> None:
    view = whole(4, 6, (32, 48))
    assert combined_peak([view]) == pytest.approx(smoothed(view.distances, 32, 48, 4.0).max(), rel=1e-5)


@pytest.mark.parametrize("order", [1, -1])
def test_the_peak_of_several_is_that_of_their_mean_at_the_finest_view(order: int) -> None:
    views = both()[::order]
    # every scale is smoothed by four pixels of its own
    heats = [smoothed(view.distances, 64, 96, 4.0 * 64 / view.size[0]) for view in views]
    assert combined_peak(views) == pytest.approx(np.mean(heats, axis=0).max(), rel=1e-4)


@pytest.mark.parametrize("seed", range(5))
def test_the_peak_of_tiles_is_that_of_the_whole_map(seed: int) -> None:
    one, two = tiles(seed=seed), [*tiles(seed=seed), *tiles(1, 96, seed=seed + 50)]
    for views in (one, two):
        heat = combined_map(views, (0, 0, HEIGHT, WIDTH), HEIGHT, WIDTH)
        assert combined_peak(views) == pytest.approx(float(heat.max()), rel=1e-5)


def test_calm_tiles_are_not_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    views = tiles()
    views[2].distances[4, 4] = 1e4
    looked: list[object] = []
    from mhpatchcore.scoring import score

    monkeypatch.setattr(
        score,
        "combined_map",
        lambda every, box, *size: looked.append(box) or combined_map(every, box, *size),
    )
    assert combined_peak(views) > 100 and looked == [views[2].geometry.box]
