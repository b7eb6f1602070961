"""Maps: the matrices against plain loops and scipy, the way back to the original image, regions."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy.ndimage import gaussian_filter

from mhpatchcore.inputs.views import Geometry, View
from mhpatchcore.scoring.maps import (
    Region,
    ViewScores,
    combined_map,
    original_map,
    regions_in,
    view_map,
)


def bilinear(scores: np.ndarray, height: int, width: int) -> np.ndarray:
    """Bilinear resizing with align_corners=False, pixel by pixel."""
    h, w = scores.shape
    out = np.empty((height, width))
    for i in range(height):
        y = min(max((i + 0.5) * h / height - 0.5, 0), h - 1)
        y0 = int(y)
        y1 = min(y0 + 1, h - 1)
        for j in range(width):
            x = min(max((j + 0.5) * w / width - 0.5, 0), w - 1)
            x0 = int(x)
            x1 = min(x0 + 1, w - 1)
            upper = scores[y0, x0] * (1 - (x - x0)) + scores[y0, x1] * (x - x0)
            lower = scores[y1, x0] * (1 - (x - x0)) + scores[y1, x1] * (x - x0)
            out[i, j] = upper * (1 - (y - y0)) + lower * (y - y0)
    return out


def random_scores(h: int, w: int) -> np.ndarray:
    return (np.random.default_rng(h * w).random((h, w)) * 100).astype(np.float32)


@pytest.mark.parametrize("sigma", [0.0, 1.5, 4.0])
@pytest.mark.parametrize(
    ("grid", "size"),
    [((4, 6), (32, 40)), ((7, 7), (50, 50)), ((1, 3), (9, 9)), ((5, 5), (5, 5)), ((9, 4), (6, 6))],
)
def test_view_map_is_bilinear_then_gaussian(
    grid: tuple[int, int], size: tuple[int, int], sigma: float
) -> None:
    scores = random_scores(*grid)
    wanted = bilinear(scores, *size)
    if sigma:
        wanted = gaussian_filter(wanted, sigma)
    assert np.allclose(view_map(scores, *size, sigma), wanted, rtol=1e-5, atol=1e-3)


@pytest.mark.parametrize("sigma", [0.0, 4.0])
def test_a_view_of_the_original_size_is_the_original_map(sigma: float) -> None:
    scores, where = random_scores(6, 6), View(48, 48).geometry(48, 48)
    assert np.allclose(original_map(scores, 48, 48, sigma, where), view_map(scores, 48, 48, sigma), rtol=1e-5)


def test_the_whole_image_is_the_stretched_view() -> None:
    scores, where = random_scores(6, 6), View(48, 48).geometry(70, 110)
    wanted = bilinear(view_map(scores, 48, 48, 2.0), 70, 110)
    assert np.allclose(original_map(scores, 48, 48, 2.0, where), wanted, rtol=1e-4)


@pytest.mark.parametrize("cell", [(0, 0), (3, 10), (13, 13)])
@pytest.mark.parametrize(("height", "width"), [(300, 500), (500, 300), (256, 256)])
def test_a_peak_lands_where_the_patch_lies_in_the_original(
    cell: tuple[int, int], height: int, width: int
) -> None:
    where = View(224, 224, resize=256).geometry(height, width)
    scores = np.zeros((14, 14), np.float32)
    scores[cell] = 1
    heat = original_map(scores, 224, 224, 4.0, where)
    assert heat.shape == (height, width)
    # the patch's pixels in the original, by the crop: each is a fourteenth of the box
    tall, wide = (where.bottom - where.top) / 14, (where.right - where.left) / 14
    top, left = where.top + cell[0] * tall, where.left + cell[1] * wide
    row, column = np.unravel_index(heat.argmax(), heat.shape)
    assert top - 1 <= row <= top + tall and left - 1 <= column <= left + wide
    if 0 < cell[0] < 13:
        mass = heat.sum()
        assert (heat.sum(axis=1) @ (np.arange(height) + 0.5)) / mass == pytest.approx(top + tall / 2, abs=0.5)
        assert (heat.sum(axis=0) @ (np.arange(width) + 0.5)) / mass == pytest.approx(left + wide / 2, abs=0.5)


def test_outside_the_crop_there_is_nothing() -> None:
    where = Geometry(height=100, width=200, top=10, left=60, bottom=90, right=140)
    heat = original_map(np.full((8, 8), 5, np.float32), 32, 32, 4.0, where)
    inside = np.zeros((100, 200), bool)
    inside[10:90, 60:140] = True
    assert np.allclose(heat[inside], 5, rtol=1e-5)
    assert not heat[~inside].any()


def test_regions_have_boxes_areas_and_peaks() -> None:
    heat = np.zeros((10, 12), np.float32)
    heat[1:3, 2:5] = 4
    heat[2, 4] = 6
    heat[7, 8], heat[8, 9], heat[6, 9] = 9, 3, 3  # touching at corners only
    assert regions_in([heat], 2) == (
        Region(box=(6, 8, 9, 10), area=3, peak=9.0, peak_at=(7, 8)),
        Region(box=(1, 2, 3, 5), area=6, peak=6.0, peak_at=(2, 4)),
    )


def test_a_region_does_not_peak_in_its_neighbour() -> None:
    # an L around a hotter spot: the spot lies in the box of the L but is a region of its own
    heat = np.zeros((7, 7), np.float32)
    heat[:, 0] = heat[6, :] = 3
    heat[4, 0] = 4
    heat[1, 4] = 8
    spot, ell = regions_in([heat], 0)
    assert (spot.peak_at, spot.area) == ((1, 4), 1)
    assert (ell.peak_at, ell.peak, ell.area, ell.box) == ((4, 0), 4.0, 13, (0, 0, 7, 7))


def test_an_empty_mask_has_no_regions() -> None:
    assert regions_in([np.ones((5, 5), np.float32)], 1) == ()


@pytest.mark.parametrize("rows", [1, 2, 3, 7, 60])
@pytest.mark.parametrize("seed", range(4))
def test_regions_of_bands_are_those_of_the_whole_map(rows: int, seed: int) -> None:
    heat = np.random.default_rng(seed).random((60, 50)).astype(np.float32)
    limit = (0.5, 0.6, 0.7, 0.9)[seed]
    bands = [heat[top : top + rows] for top in range(0, 60, rows)]
    assert regions_in(bands, limit) == regions_in([heat], limit)


def test_a_ring_over_many_bands_is_one_region() -> None:
    heat = np.zeros((12, 12), np.float32)
    heat[1:11, 1] = heat[1:11, 10] = heat[10, 1:11] = 5  # its ends meet at the bottom only
    heat[5, 10] = 7
    heat[2, 5] = 6
    found = regions_in([heat[i : i + 1] for i in range(12)], 1)
    assert [(one.box, one.area, one.peak_at) for one in found] == [
        ((1, 1, 11, 11), 28, (5, 10)),
        ((2, 5, 3, 6), 1, (2, 5)),
    ]


def tile_scores(height: int, width: int, zoom: float, value: float) -> list[ViewScores]:
    every = View(64, 64, zoom=zoom).geometries(height, width)
    a = np.full((8, 8), value, np.float32)
    return [ViewScores(a, where, (64, 64), 4.0) for where in every]


@pytest.mark.parametrize(("height", "width"), [(64, 64), (65, 200), (200, 131), (333, 90)])
@pytest.mark.parametrize("zoom", [1.0, 0.5, 0.7])
def test_equal_tiles_make_an_even_map(height: int, width: int, zoom: float) -> None:
    views = tile_scores(height, width, zoom, 5)
    for box, size in (((0, 0, height, width), (height, width)), ((10, 3, 60, 63), (100, 40))):
        assert np.allclose(combined_map(views, box, *size), 5, rtol=1e-5)


def test_seams_are_blended() -> None:
    left, right = tile_scores(64, 112, 1.0, 1)
    right = replace(right, distances=np.full((8, 8), 9, np.float32))
    heat = combined_map([left, right], (0, 0, 64, 112), 64, 112)[32]
    assert np.allclose(heat[:44], 1, atol=0.01) and np.allclose(heat[-44:], 9, atol=0.01)
    assert heat[56] == pytest.approx(5, abs=0.3)
    assert np.diff(heat).min() > -1e-5 and np.diff(heat).max() < 1  # no step of eight


def test_at_the_edge_of_a_region_the_map_is_not_thinned_out() -> None:
    inside = np.zeros((8, 8), bool)
    inside[:, :4] = True
    a = np.where(inside, 5, 0).astype(np.float32)
    where = View(64, 64).geometry(64, 64)
    view = ViewScores(a, where, (64, 64), 4.0, 0, inside)
    heat = combined_map([view], (0, 0, 64, 64), 64, 64)
    assert np.allclose(heat[:, :32], 5, rtol=1e-5)
    assert (np.diff(heat, axis=1) <= 1e-5).all() and not heat[:, 56:].any()
    assert original_map(a, 64, 64, 4.0, where)[30, 31] < 3  # as it is without weights
