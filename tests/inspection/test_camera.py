"""The camera: what has changed is told in words, unchanged images are not called, and a texture lies nowhere."""

from __future__ import annotations

import json
import re
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from cli_runs import Run, graphs, run
from PIL import Image, ImageFilter
from small_detector import small_detector, vials

from mhpatchcore import Detector
from mhpatchcore.inputs.loading import MEASURES, image_measures, load_image
from mhpatchcore.inputs.regions import parse_roi
from mhpatchcore.inputs.views import View
from mhpatchcore.inspection.drift import camera_drift

__all__ = ["graphs", "run"]  # fixtures
PIXELS = 200


def measured(pictures: list[np.ndarray], roi: object = None) -> np.ndarray:
    view, area = View(), parse_roi(roi)
    images = [load_image(picture, [view], area) for picture in pictures]
    return np.array([one.measures(view, one.pixels(view, view.geometry(*one.size))) for one in images])


@cache
def parts(first: int, n: int) -> list[np.ndarray]:
    return vials(first, n, PIXELS)


@cache
def learnt() -> np.ndarray:
    return measured(parts(0, 40))


def moved(picture: np.ndarray, right: int, down: int = 0) -> np.ndarray:
    """The camera looks elsewhere; what it sees beyond is like the edge."""
    edge = max(abs(right), abs(down))
    wide = np.pad(picture, ((edge, edge), (edge, edge), (0, 0)), mode="edge")
    return wide[edge - down :, edge - right :][: picture.shape[0], : picture.shape[1]]


def blurred(picture: np.ndarray) -> np.ndarray:
    return np.asarray(Image.fromarray(picture).filter(ImageFilter.GaussianBlur(2)))


def noisy(picture: np.ndarray) -> np.ndarray:
    noise = np.random.default_rng(0).normal(scale=4, size=picture.shape)
    return np.clip(picture + noise, 0, 255).astype(np.uint8)


CHANGES = {
    "1. % darker": lambda one: (one * 0.85).astype(np.uint8),
    "less contrast": lambda one: (one * 0.7 + 0.3 * one.mean()).astype(np.uint8),
    "less sharp": blurred,
    "more noise": noisy,
    "1?. % less blue": lambda one: (one * np.array([1, 1, 0.9])).astype(np.uint8),
    "the part lies [4-6] px further left": lambda one: moved(one, -5),
    "the part lies [4-6] px further down": lambda one: moved(one, 0, 5),
}


@pytest.mark.parametrize("words", CHANGES)
def test_what_has_changed_is_told(words: str) -> None:
    drift = camera_drift(measured([CHANGES[words](one) for one in parts(100, 30)]), learnt(), 1e-4)
    assert drift.is_drift and any(re.fullmatch(f".*{words}", change.words) for change in drift.changes)
    assert drift.verdict.startswith("the images have changed: ")


@pytest.mark.parametrize("factor", [0.85, 1.15])
def test_a_lamp_changes_the_brightness_alone(factor: float) -> None:
    darker = measured([(one * factor).clip(0, 255).astype(np.uint8) for one in parts(100, 30)])
    (change,) = camera_drift(darker, learnt()).changes
    assert change.measure == "brightness" and change.recent / change.reference == pytest.approx(
        factor, abs=0.03
    )


def test_unchanged_images_and_a_few_defects_are_not_called() -> None:
    fresh = measured(parts(100, 30))
    assert not camera_drift(fresh, learnt()).is_drift
    black = np.zeros((PIXELS, PIXELS, 3), np.uint8)
    assert not camera_drift(np.concatenate([fresh, measured([black] * 3)]), learnt()).is_drift


def test_false_alarms_are_as_rare_as_stated() -> None:
    rng = np.random.default_rng(0)
    drawn = [(rng.lognormal(1, 0.3, (n, len(MEASURES))) for n in (6, 25)) for _ in range(600)]
    called = [camera_drift(recent, known, 0.1).is_drift for recent, known in drawn]
    assert 0.005 < np.mean(called) < 0.1 + 3 * (0.1 * 0.9 / 600) ** 0.5


def test_what_was_learnt_since_is_no_change() -> None:
    darker = measured([(one * 0.85).astype(np.uint8) for one in parts(0, 70)])
    assert camera_drift(darker[40:], learnt()).is_drift
    assert not camera_drift(darker[40:], np.concatenate([learnt(), darker[:40]])).is_drift


def test_a_texture_lies_nowhere() -> None:
    texture = np.random.default_rng(0).integers(0, 256, (200, 200, 3)).astype(np.uint8)
    *others, x, y = image_measures(texture, (0, 0, 200, 200))
    assert np.isfinite(others).all() and np.isnan([x, y]).all()
    flat = image_measures(np.full((64, 64, 3), 90, np.uint8), (0, 0, 64, 64))
    assert flat[0] == pytest.approx(90) and np.isnan(flat[-2:]).all()


def test_places_are_in_pixels_of_the_image() -> None:
    picture = np.full((300, 600, 3), 240, np.uint8)
    picture[100:180, 420:500] = 20
    assert measured([picture])[0, -2:] == pytest.approx([460, 140], abs=3)


def test_only_the_region_of_interest_counts() -> None:
    picture = np.full((200, 200, 3), 250, np.uint8)
    picture[:, :100] = 50
    assert measured([picture], roi=(0, 0, 200, 100))[0, 0] == pytest.approx(50, abs=3)


def test_nothing_to_compare() -> None:
    none = np.empty((0, len(MEASURES)))
    for recent, known in (
        (none, learnt()),
        (learnt(), none),
        (np.full((9, len(MEASURES)), np.nan), learnt()),
    ):
        assert not camera_drift(recent, known).is_drift
    assert "nothing was measured" in camera_drift(none, none).verdict


def test_a_model_knows_how_its_images_were_seen(tmp_path: Path) -> None:
    detector = small_detector()
    again = detector.score(vials(0, 1)[0])
    assert again.measures == tuple(detector.model.measures[0].tolist())
    grown = detector.updated(vials(20, 2))
    assert grown.model.measures[:8].tolist() == detector.model.measures.tolist()
    grown.save(tmp_path / "grown.mhpc")
    loaded = Detector.load(tmp_path / "grown.mhpc").model.measures
    assert np.array_equal(loaded, grown.model.measures, equal_nan=True) and loaded.shape == (
        10,
        len(MEASURES),
    )


def test_monitor_tells_it_of_a_folder_and_of_a_table(run: Run, tmp_path: Path) -> None:
    small_detector().save(tmp_path / "part.mhpc")
    (tmp_path / "dark").mkdir()
    for i, picture in enumerate(vials(60, 12)):
        Image.fromarray((picture * 0.6).astype(np.uint8)).save(tmp_path / "dark" / f"{i:02d}.png")
    table = tmp_path / "dark.csv"
    table.write_text(run("score", tmp_path / "part.mhpc", tmp_path / "dark", "--csv", "-").out)
    told = [
        json.loads(run("monitor", tmp_path / "part.mhpc", one, "--json").out)
        for one in (tmp_path / "dark", table)
    ]
    for one in told:
        assert one["camera"]["is_drift"] and one["camera"]["changes"][0]["words"].endswith(" % darker")
        assert one["camera"]["n"] == 12 and one["camera"]["n_reference"] == 8
    ran = run("monitor", tmp_path / "part.mhpc", table, "--fail", "--plot", tmp_path / "drift.png")
    assert ran.code == 1
    with Image.open(tmp_path / "drift.png") as picture:  # with pictures below the curves
        assert picture.height > 0.7 * picture.width
    ran = run("monitor", tmp_path / "part.mhpc", table, "--reference", table, "--fail")
    assert ran.code == 0 and "the images look as" in ran.out
