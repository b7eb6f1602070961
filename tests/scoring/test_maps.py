"""Maps: the matrices against plain loops and scipy, the way back to the original image, regions."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.ndimage import gaussian_filter

from mhpatchcore.inputs.views import Geometry, View
from mhpatchcore.scoring.maps import Region, original_map, regions_of, view_map


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
    assert regions_of(heat > 2, heat) == (
        Region(box=(6, 8, 9, 10), area=3, peak=9.0, peak_at=(7, 8)),
        Region(box=(1, 2, 3, 5), area=6, peak=6.0, peak_at=(2, 4)),
    )


def test_a_region_does_not_peak_in_its_neighbour() -> None:
    # an L around a hotter spot: the spot lies in the box of the L but is a region of its own
    heat = np.zeros((7, 7), np.float32)
    heat[:, 0] = heat[6, :] = 3
    heat[4, 0] = 4
    heat[1, 4] = 8
    spot, ell = regions_of(heat > 0, heat)
    assert (spot.peak_at, spot.area) == ((1, 4), 1)
    assert (ell.peak_at, ell.peak, ell.area, ell.box) == ((4, 0), 4.0, 13, (0, 0, 7, 7))


def test_an_empty_mask_has_no_regions() -> None:
    assert regions_of(np.zeros((5, 5), bool), np.ones((5, 5), np.float32)) == ()
