"""Tiles and regions of interest in views: what is seen where, what is painted over, what reaches beyond the image."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from mhpatchcore import Config, UserError
from mhpatchcore.config import Size, parse_sizes
from mhpatchcore.errors import ImageError
from mhpatchcore.inputs.loading import OUTSIDE, load_image, load_views
from mhpatchcore.inputs.regions import parse_roi
from mhpatchcore.inputs.views import OVERLAP, View, views_of


def noise(height: int, width: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, (height, width, 3)).astype(np.uint8)


@pytest.mark.parametrize("length", [64, 65, 111, 112, 113, 160, 500, 1000])
@pytest.mark.parametrize("zoom", [1.0, 0.5])
def test_tiles_cover_the_image_and_overlap(length: int, zoom: float) -> None:
    view, tile = View(64, 64, zoom=zoom), 64 / zoom
    every = view.geometries(64, length)
    assert len(every) == view.count(64, length)
    assert every[0].left == 0 and (every[-1].right == length or len(every) == 1)
    for one, other in pairwise(every):
        shared = one.right - other.left
        assert OVERLAP * tile - 1 <= shared < tile
        assert one.overlaps[3] == other.overlaps[1] == shared
    assert all(where.right - where.left == tile for where in every)
    fewest = max(1, np.ceil((length - tile) / (tile * (1 - OVERLAP)) + 1))
    assert len(every) == fewest


def test_tiles_are_numbered_row_by_row() -> None:
    tops, lefts = zip(
        *((where.top, where.left) for where in View(32, 64, zoom=1).geometries(70, 130)), strict=True
    )
    assert list(tops) == sorted(tops) and len(set(tops)) == 3 and lefts[:3] == lefts[3:6] == (0, 33, 66)


@pytest.mark.parametrize(("height", "width"), [(100, 200), (64, 81), (300, 90)])
def test_blending_adds_up_to_one(height: int, width: int) -> None:
    total = np.zeros((height, width))
    for where in View(64, 64, zoom=1).geometries(height, width):
        rows, columns = (
            np.arange(int(where.top), min(where.bottom, height), dtype=int),
            np.arange(int(where.left), min(where.right, width), dtype=int),
        )
        total[np.ix_(rows, columns)] += where.blending(rows + 0.5, columns + 0.5)
    assert np.allclose(total, 1, atol=1e-6)


def test_tiles_at_full_resolution_are_the_image_s_own_pixels() -> None:
    image = noise(150, 220)
    for seen, where in load_views(image, [View(64, 96, zoom=1)]):
        own = image[int(where.top) : int(where.bottom), int(where.left) : int(where.right)]
        assert np.array_equal(seen, own)


def test_tiles_at_half_the_resolution_are_those_of_the_image_at_half_its_size() -> None:
    image = noise(256, 384)
    small = np.asarray(Image.fromarray(image).resize((192, 128), Image.Resampling.BILINEAR))
    ((seen, _), *_) = load_views(image, [View(64, 64, zoom=0.5)])
    inner = np.abs(seen[:60, :60].astype(int) - small[:60, :60])
    assert inner.max() <= 1


def test_beyond_a_small_image_it_is_gray_and_nothing_counts() -> None:
    image, view = noise(40, 100), View(64, 64, zoom=1)
    source = load_image(image, [view])
    one, two = source.placed(view, (8, 8))
    for placed in (one, two):
        pixels = source.pixels(view, placed.where)
        left = int(placed.where.left)
        assert np.array_equal(pixels[:40], image[:, left : left + 64]) and (pixels[40:] == OUTSIDE).all()
        assert placed.inside is not None
        assert placed.inside[:5].all() and not placed.inside[5:].any()


def test_both_scales_are_cut_from_one_decoding(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from mhpatchcore.inputs import loading as module

    Image.fromarray(noise(200, 300)).save(tmp_path / "a.jpg")
    times: list[object] = []
    decoded: Callable[..., object] = module.decoded
    monkeypatch.setattr(module, "decoded", lambda *given: times.append(given) or decoded(*given))
    (_, whole), *tiles = load_views(tmp_path / "a.jpg", Config(sizes="64,tile:96").views)
    assert len(times) == 1 and whole.box == (0, 0, 200, 300) and len(tiles) == 3 * 4


@pytest.mark.parametrize("zoom", [0, 1.0, 0.5])
@pytest.mark.parametrize("gray", [False, True])
def test_what_lies_outside_is_not_seen(zoom: float, gray: bool) -> None:
    view, roi = View(48, 48, zoom=zoom), parse_roi([[20, 10], [110, 30], [60, 90]])
    one, other = noise(100, 120), noise(100, 120, seed=1)
    if gray:
        one, other = one[:, :, 0], other[:, :, 0]
    area = roi.over((0, 0, 100, 120), 100, 120, (100, 120))  # type: ignore[union-attr]
    other[area] = one[area]
    before = other.copy()
    for (ours, _), (theirs, _) in zip(
        load_views(one, [view], roi), load_views(other, [view], roi), strict=True
    ):
        assert np.array_equal(ours, theirs)
    assert np.array_equal(other, before)  # a given array stays as it is
    assert any(
        not np.array_equal(ours, theirs)
        for (ours, _), (theirs, _) in zip(load_views(one, [view]), load_views(other, [view]), strict=True)
    )
    if zoom == 1:
        ((seen, _), *_) = load_views(one, [view], roi)
        outside = ~area[:48, :48]
        assert (seen[outside] == OUTSIDE).all()


@pytest.mark.parametrize("dtype", [np.uint16, np.float32])
def test_deep_images_have_an_outside_too(dtype: type) -> None:
    values = np.random.default_rng(0).integers(0, 4000, (60, 60)).astype(dtype)
    config = Config(sizes="tile:64", window="0,4000", roi=[10, 10, 50, 50])
    ((seen, _),) = load_views(values, config.views, config.roi)
    assert (seen[:10] == OUTSIDE).all() and (seen[50:60] == OUTSIDE).all()
    assert np.allclose(seen[10:50, 10:50, 0], values[10:50, 10:50] * (255 / 4000), atol=1e-3)


def test_cells_count_whose_middle_is_inside() -> None:
    (placed,) = views_of((80, 80), View(64, 64), (8, 8), parse_roi([0, 14, 80, 45]))  # type: ignore[arg-type]
    assert placed.inside is not None
    assert placed.inside.all(axis=0).tolist() == [False, True, True, True, False, False, False, False]
    assert np.array_equal(placed.inside.any(axis=0), placed.inside.all(axis=0))


def test_tiles_that_show_nothing_of_the_region_are_left_out() -> None:
    view = View(64, 64, zoom=1)
    every = views_of((64, 400), view, (8, 8), None)
    some = views_of((64, 400), view, (8, 8), parse_roi([0, 0, 64, 60]))  # type: ignore[arg-type]
    assert [one.number for one in every] == list(range(8)) and [one.number for one in some] == [0, 1]


def test_a_region_that_leaves_nothing_is_refused() -> None:
    view, roi = View(64, 64), parse_roi([500, 500, 600, 600])
    with pytest.raises(ImageError, match=r"leaves nothing of image given as an array \(80 × 60 pixels\)"):
        load_image(noise(60, 80), [view], roi).placed(view, (8, 8))


def test_absurdly_many_tiles_are_refused() -> None:
    view = View(32, 32, zoom=8.0)
    with pytest.raises(ImageError, match="tiles, too many: take larger ones"):
        load_image(noise(900, 900), [view]).placed(view, (4, 4))


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("tile:512", Size(512, 512, 1, 1.0)),
        ("tile:256x512/2", Size(256, 512, 2, 1.0)),
        ("tile:512@0.5", Size(512, 512, 1, 0.5)),
        ("tile:512/4@.25", Size(512, 512, 4, 0.25)),
    ],
)
def test_tiles_are_a_size(text: str, size: Size) -> None:
    assert parse_sizes(text) == parse_sizes(str(size)) == (size,)
    assert parse_sizes(f"448/2,{text}") == (Size(448, 448, 2), size)
    assert Config(sizes=text).views[0].zoom == size.zoom and Config(sizes=text).tiled


@pytest.mark.parametrize(
    "text", ["tile:", "tile:16", "tile:512@0", "tile:512@9", "512@0.5", "tile:512@", "tiles:5"]
)
def test_what_is_no_tile_is_refused(text: str) -> None:
    with pytest.raises(UserError):
        parse_sizes(text)


def test_tiles_and_a_crop_do_not_go_together() -> None:
    with pytest.raises(UserError, match="leave one of them out"):
        Config(sizes="tile:224", resize=256)
