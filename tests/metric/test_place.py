"""A patch's place beside its look: what it weighs, where it comes from, and that models without it live on."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from safetensors import safe_open
from safetensors.numpy import load_file, save_file

from mhpatchcore import Config, Detector
from mhpatchcore.backbone.descriptors import place_columns
from mhpatchcore.metric.moments import Moments
from mhpatchcore.metric.whitening import fit_whitening, place_spread, reduce_by, with_place
from mhpatchcore.model.file import KEY

GRID = (10, 14)
SMALL = Config(size=64, K=120, m_c=60)


def looks_and_places(told: float, images: int = 20, d: int = 6, seed: int = 0) -> np.ndarray:
    """Rows (images·h·w, d + 2) whose looks are noise, but for what they tell of the row and the column."""
    places = np.tile(place_columns(GRID), (images, 1))
    looks = np.random.default_rng(seed).normal(size=(len(places), d))
    looks[:, :2] += told * places
    return np.concatenate([looks, places], axis=1)


def test_places_are_counted_in_cells() -> None:
    assert place_columns((2, 3)).tolist() == [[0, 0], [0, 1], [0, 2], [1, 0], [1, 1], [1, 2]]


@pytest.mark.parametrize("told", [0.1, 0.3, 0.6])
def test_the_spread_is_what_regression_leaves(told: float) -> None:
    u = looks_and_places(told)
    looks, places = u[:, :-2], u[:, -2:]
    known = np.column_stack([looks, np.ones(len(u))])
    left = places - known @ np.linalg.lstsq(known, places, rcond=None)[0]
    wanted = np.sqrt((left**2).sum(axis=0) / (len(u) - 7))
    assert wanted.min() > 1
    assert place_spread(Moments.of(u)) == pytest.approx(wanted, rel=1e-5)


def test_a_look_that_tells_everything_leaves_a_cell_open_and_one_that_tells_nothing_all_of_them() -> None:
    assert place_spread(Moments.of(looks_and_places(100.0))).tolist() == [1, 1]
    by_chance = place_columns(GRID).std(axis=0)
    assert place_spread(Moments.of(looks_and_places(0.0))) == pytest.approx(by_chance, rel=0.01)


def test_fewer_patches_than_numbers_tell_nothing() -> None:
    u = looks_and_places(100.0, images=1, d=200)
    assert place_spread(Moments.of(u)) == pytest.approx(place_columns(GRID).std(axis=0, ddof=1))


def test_looks_that_are_all_alike_tell_nothing() -> None:
    u = looks_and_places(0.0, images=2)
    u[:, :-2] = 3.0
    assert place_spread(Moments.of(u)) == pytest.approx(place_columns(GRID).std(axis=0), rel=0.01)
    three = np.tile(place_columns(GRID)[[0, 20, 40]], 2)  # too few rows to tell, and the look is the place
    assert place_spread(Moments.of(three)) == pytest.approx(np.maximum(three[:, -2:].std(axis=0, ddof=1), 1))


def test_distances_add_up() -> None:
    u = looks_and_places(0.3)
    moments = Moments.of(u)
    looks = moments.leading(6)
    plain = fit_whitening(looks, reduce_by(looks, components=4), lam=0.0)
    placed = with_place(plain, moments, 0.5)
    assert (plain.k, placed.k, placed(u).shape) == (4, 4, (len(u), 6))
    apart = ((u[0, -2:] - u[100, -2:]) / place_spread(moments)) ** 2
    ours, theirs = (((z[0] - z[100]) ** 2).sum() for z in (placed(u), plain(u[:, :6])))
    assert ours == pytest.approx(theirs + 0.25 * apart.sum(), rel=1e-4)


def test_the_place_weighs_the_same_whatever_looks_are_measured_in() -> None:
    u = looks_and_places(0.3) * np.array([7.0] * 6 + [1.0] * 2)
    moments = Moments.of(u)
    looks = moments.leading(6)
    euclidean = fit_whitening(looks, reduce_by(looks, None), lam=0.0, metric="euclidean")
    spreads = with_place(euclidean, moments, 1.0)(u).var(axis=0, ddof=1)
    told = place_columns(GRID).var(axis=0) / place_spread(moments) ** 2
    assert spreads[6:] == pytest.approx(spreads[:6].mean() * told, rel=1e-3)


def halves(seed: int) -> np.ndarray:
    """A picture with stripes on the left and checks on the right."""
    y, x = np.indices((64, 64))
    picture = np.where(x < 32, 200 * (x // 4 % 2), 200 * ((x // 4 + y // 4) % 2))
    noise = np.random.default_rng(seed).normal(0, 5, (64, 64, 3))
    return np.clip(picture[..., None] + 20 + noise, 0, 255).astype(np.uint8)


def test_a_part_the_wrong_way_round_is_odder_where_places_count() -> None:
    """Mirrored it shows the same stripes and checks, but for the seam between them, each in the other half."""
    pictures = [halves(seed) for seed in range(12)]
    around = {}
    for weight in (0.0, 0.5):
        detector = Detector.fit(pictures, SMALL, place=weight)
        a, usual = (detector.score(picture).patches.a for picture in (halves(50)[:, ::-1], halves(51)))
        around[weight] = float(np.median(a) / np.median(usual))
    assert around[0.5] > 1.5 * around[0.0]


def as_format_2(path: Path) -> Path:
    """A file without places as it was written before there were any."""
    with safe_open(path, "numpy") as file:
        document = json.loads(file.metadata()[KEY])
    for part, name in (("config", "place"), ("backbone", "place"), ("whitening", "placed")):
        del document[part][name]
    save_file(load_file(path), path, metadata={KEY: json.dumps(document | {"format": 2})})
    return path


def test_older_models_live_on_without_places(tmp_path: Path) -> None:
    pictures = [halves(seed) for seed in range(6)]
    detector = Detector.fit(pictures, SMALL, place=0)
    detector.save(tmp_path / "old.mhpc")
    old = Detector.load(as_format_2(tmp_path / "old.mhpc"))
    assert old.config == detector.config and not old.backbone.info.place
    assert old.score(halves(50)).score == detector.score(halves(50)).score
    grown = old.updated([halves(seed) for seed in range(10, 14)])
    assert grown.whitening.placed == 0 and grown.bank_raw.shape[1] == old.backbone.info.dim
