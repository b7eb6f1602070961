"""Pictures say what they show, are as large as a screen, and cost no more than that."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from mhpatchcore.inputs.views import View
from mhpatchcore.report import drawing
from mhpatchcore.report.drawing import (
    OUTLINE,
    SEPARATOR,
    contact_sheet,
    heat_strength,
    heat_unit,
    outline_note,
    outlined,
    overlay,
    panels,
    screen_pixels,
    triptych,
    verdict_line,
)
from mhpatchcore.result import Result
from mhpatchcore.scoring.maps import ViewScores

PEAK = (3, 5)


def made_up(
    height: int = 60,
    width: int = 80,
    score: float = 9.0,
    threshold: float = 5.0,
    pixel_threshold: float = 8.0,
) -> Result:
    """A result whose map peaks at about 20, in one cell of 8 × 8."""
    a = np.ones((8, 8), np.float32)
    a[PEAK] = 40
    view = ViewScores(a, View(64, 64).geometry(height, width), (64, 64), 2.0)
    return Result(None, score, threshold, 0.5, pixel_threshold, (view,))


def image(height: int = 60, width: int = 80) -> np.ndarray:
    pixels = np.random.default_rng(0).integers(0, 256, (height // 4, width // 4, 3), np.uint8)
    return np.kron(pixels, np.ones((4, 4, 1), np.uint8))


@pytest.mark.parametrize(
    ("result", "words"),
    [
        (made_up(), "the map above the pixel threshold 8"),
        (made_up(pixel_threshold=500.0), r"which is 80 % of its peak (the pixel threshold 500 lies higher)"),
        (made_up(pixel_threshold=500.0, score=1.0), "nothing: the map stays below the pixel threshold 500"),
        (made_up(pixel_threshold=np.inf, threshold=np.inf), "nothing: the model has no pixel threshold"),
    ],
)
def test_what_is_outlined_is_told(result: Result, words: str) -> None:
    assert words in outline_note(result)


def test_between_the_peak_and_its_share_the_outline_is_lowered_and_says_so() -> None:
    peak = made_up().peak
    note = outline_note(made_up(pixel_threshold=0.9 * peak))
    assert note.startswith(f"the map above {0.8 * peak:.4g}, which is 80 % of its peak")
    assert "exceeds" not in note


@pytest.mark.parametrize(
    ("result", "words"),
    [
        (made_up(), "rejected: score 9, above the image threshold 5 (p-value 0.5)"),
        (made_up(score=5.0), "passed: score 5, not above the image threshold 5 (p-value 0.5)"),
        (made_up(threshold=np.inf), "no threshold: score 9"),
    ],
)
def test_the_verdict_is_told_with_its_numbers(result: Result, words: str) -> None:
    assert verdict_line(result) == words


def test_colours_are_those_of_the_pixel_threshold_or_of_the_peak() -> None:
    assert heat_unit(made_up()) == 8.0
    without = made_up(pixel_threshold=np.inf, threshold=np.inf)
    assert heat_unit(without) == without.peak
    assert heat_strength(np.array([0, 4, 8, 16, 99], np.float32), 8.0).tolist() == pytest.approx(
        [0, 0, 1 / 3, 1, 1]
    )


def test_panels_are_the_image_its_heat_and_its_outline() -> None:
    pixels, result = image(), made_up()
    first, second, third = (
        panels(pixels, result)[:, start : start + 80] for start in (0, 80 + SEPARATOR, 160 + 2 * SEPARATOR)
    )
    assert np.array_equal(first, pixels)
    assert np.array_equal(second, overlay(pixels, result.map, 8.0))
    assert np.array_equal(third, outlined(pixels, result.mask))
    assert (third == OUTLINE).all(axis=2).any()


def test_calm_pixels_stay_as_they_are() -> None:
    pixels, result = image(), made_up()
    calm = result.map <= 4
    assert calm.any() and np.array_equal(overlay(pixels, result.map, 8.0)[calm], pixels[calm])


@pytest.mark.parametrize("full_size", [False, True])
def test_strips_do_not_show(monkeypatch: pytest.MonkeyPatch, full_size: bool) -> None:
    whole = panels(image(), made_up(), full_size)
    monkeypatch.setattr(drawing, "BAND", 7 * 80)
    assert np.abs(panels(image(), made_up(), full_size).astype(int) - whole).max() <= 1


def test_a_legend_stands_below(tmp_path: Path) -> None:
    result = made_up()
    picture, plain = triptych(image(), result), panels(image(), result)
    assert np.array_equal(picture[:60, : plain.shape[1]], plain)
    legend = picture[60:]
    assert legend.shape[1] >= plain.shape[1] and 40 < len(legend) < 120
    hottest = overlay(np.full((1, 1, 3), 200, np.uint8), np.full((1, 1), 99, np.float32), 8.0)[0, 0]
    assert (legend == hottest).all(axis=2).any()  # the bar ends in the hottest colour
    for other in (made_up(score=1.0), made_up(score=9.1), made_up(pixel_threshold=9.0)):
        assert not np.array_equal(triptych(image(), other)[60:], legend)


def test_large_images_are_drawn_at_the_size_of_a_screen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "large.jpg"
    Image.fromarray(image(1600, 2400)).save(path)
    result = made_up(1600, 2400)
    monkeypatch.setattr(Result, "map", property(lambda self: pytest.fail("the whole map is not needed")))
    assert screen_pixels(path).shape == (800, 1200, 3)
    assert panels(path, result).shape == (800, 3 * 1200 + 2 * SEPARATOR, 3)
    assert panels(path, result, full_size=True).shape == (1600, 3 * 2400 + 2 * SEPARATOR, 3)


def test_the_outline_is_in_the_same_place_at_any_size(tmp_path: Path) -> None:
    grey = np.full((1600, 2400, 3), 90, np.uint8)
    result = made_up(1600, 2400)
    boxes = []
    for full_size in (False, True):
        drawn = panels(grey, result, full_size)
        third = drawn[:, -((drawn.shape[1] - 2 * SEPARATOR) // 3) :]
        rows, columns = np.nonzero((third == OUTLINE).all(axis=2))
        boxes.append(np.array([rows.min(), rows.max(), columns.min(), columns.max()]) / len(drawn))
    assert boxes[0] == pytest.approx(boxes[1], abs=0.005)


def test_gray_and_deep_images_can_be_drawn() -> None:
    deep = np.linspace(0, 65535, 60 * 80).reshape(60, 80).astype(np.uint16)
    assert screen_pixels(deep).dtype == np.uint8 and triptych(deep, made_up()).shape[2] == 3


def test_a_contact_sheet_has_a_strip_for_every_picture() -> None:
    sheet = contact_sheet([("one", image()), ("two", image())], width=160)
    assert sheet.shape == (2 * (120 + 22), 160, 3)
