"""Turned copies of a view: what they show, which of their patches count, and the way back."""

from __future__ import annotations

import numpy as np
import pytest

from mhpatchcore.inputs.loading import load_image
from mhpatchcore.inputs.regions import parse_roi
from mhpatchcore.inputs.views import EVERY_TURN, PLAIN, TURNS, Turn, View

FLIPS = TURNS["flips"]


def noise(height: int, width: int, kind: type = np.uint8) -> np.ndarray:
    return np.random.default_rng(0).integers(0, 256, (height, width, 3)).astype(kind)


def smooth(height: int, width: int) -> np.ndarray:
    """Two waves, so that every place looks different."""
    y, x = np.mgrid[:height, :width]
    waves = [np.sin(y / 9), np.cos(x / 11), np.sin((x + 2 * y) / 17)]
    return np.stack([127 + 100 * wave for wave in waves], axis=2).astype(np.uint8)


def test_eight_of_a_kind_without_a_copy_that_is_another() -> None:
    assert [len(turns) for turns in TURNS.values()] == [1, 8, 8]
    assert EVERY_TURN[0] == PLAIN and len(EVERY_TURN) == 12
    view = noise(32, 32)
    assert len({turn.pixels(view, (32, 32)).tobytes() for turn in EVERY_TURN}) == 12


@pytest.mark.parametrize("kind", [np.uint8, np.float32])
@pytest.mark.parametrize("turn", FLIPS, ids=str)
def test_flips_and_quarter_turns_move_pixels_as_they_are(turn: Turn, kind: type) -> None:
    view = noise(48, 48, kind)
    expected = np.rot90(view[:, ::-1] if turn.mirrored else view, turn.degrees // 90)
    assert np.allclose(turn.pixels(view, (300, 300)), expected, atol=1e-3)
    mask = view[::6, ::6, 0] > 100
    assert np.array_equal(
        turn.inside(mask, (300, 300)), np.rot90(mask[:, ::-1] if turn.mirrored else mask, turn.degrees // 90)
    )


def test_beyond_the_edges_the_view_is_mirrored() -> None:
    view = noise(32, 64)
    turned = Turn(90).pixels(view, (32, 64))
    assert np.array_equal(turned[:, 16:48], np.rot90(view[:, 16:48]))
    assert np.array_equal(turned[:, :16], turned[:, 16:32][:, ::-1])


@pytest.mark.parametrize("turn", EVERY_TURN, ids=str)
@pytest.mark.parametrize("sides", [(120.0, 160.0), (240.0, 160.0)])  # as the image is, and stretched
def test_the_way_back_leads_to_what_is_shown(turn: Turn, sides: tuple[float, float]) -> None:
    view = smooth(120, 160)
    turned = turn.pixels(view, sides).astype(int)
    rows, columns = np.mgrid[4:120:8, 4:160:8]
    places = np.stack([rows.ravel() + 0.5, columns.ravel() + 0.5])
    y, x = np.floor(turn.back(places, (120, 160), sides)).astype(int).clip(0, [[119], [159]])
    apart = np.abs(view[y, x].astype(int) - turned[rows.ravel(), columns.ravel()])
    assert apart.mean() < 8 and np.quantile(apart, 0.95) < 25


def test_a_stretched_view_is_turned_as_the_image_is() -> None:
    image = smooth(128, 128)
    turned = Turn(45).pixels(image, (128, 128)).astype(int)
    squeezed = Turn(45).pixels(image[::2], (128, 128)).astype(int)
    middle = slice(16, 48)
    assert np.abs(turned[::2][middle] - squeezed[middle])[:, 32:96].mean() < 10


def test_copies_are_numbered_behind_the_views_and_know_their_region() -> None:
    view = View(32, 32, zoom=1)
    roi = parse_roi([0, 0, 32, 20])
    image = load_image(noise(32, 80), [view])
    plain = image.copies(view, (4, 4), TURNS["none"])
    every = image.copies(view, (4, 4), FLIPS)
    assert [one.number for one in every[: len(plain)]] == [0, 1, 2]
    assert [one.number for one in every] == [
        3 * EVERY_TURN.index(turn) + i for turn in FLIPS for i in range(3)
    ]
    assert np.array_equal(image.shown(view, every[4]), np.rot90(image.pixels(view, plain[1].where)))
    (first, second, *_) = load_image(noise(32, 80), [view], roi).copies(view, (4, 4), FLIPS)  # type: ignore[arg-type]
    assert first.inside is not None and second.inside is not None
    assert np.array_equal(second.inside, np.rot90(first.inside)) and not second.inside.all()
