"""Views: the crop, the way back to the original image, several views of one decoding."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from pictures import picture, seen
from PIL import Image

from mhpatchcore.inputs import decode, loading, views
from mhpatchcore.inputs.loading import load_views
from mhpatchcore.inputs.sources import ImageLike
from mhpatchcore.inputs.views import Geometry, View


def test_geometry_without_resize_is_the_whole_image() -> None:
    assert View(224, 224).geometry(100, 333) == Geometry(100, 333, 0, 0, 100, 333)


@pytest.mark.parametrize(("height", "width"), [(256, 256), (512, 768), (384, 256), (320, 640)])
def test_crop_is_resize_then_centre_crop(height: int, width: int) -> None:
    # sizes whose resized sides are whole and whose crop lies on whole pixels, so that the two ways coincide
    image = picture(height, width)
    scale = 256 / min(height, width)
    resized = Image.fromarray(image).resize(
        (round(width * scale), round(height * scale)), Image.Resampling.BILINEAR
    )
    left, top = (resized.width - 224) // 2, (resized.height - 224) // 2
    reference = np.asarray(resized.crop((left, top, left + 224, top + 224)))
    view, where = seen(image, View(224, 224, resize=256))
    assert np.abs(view.astype(int) - reference).max() <= 1
    box = [where.top * scale, where.left * scale, where.bottom * scale, where.right * scale]
    assert box == pytest.approx([top, left, top + 224, left + 224])


def test_a_crop_larger_than_the_image_stays_inside() -> None:
    view, where = seen(picture(50, 80), View(64, 64, resize=48))
    assert view.shape == (64, 64, 3)
    assert (where.top, where.bottom) == (0, 50) and where.left > 0 and where.right < 80


def non_square(where: Geometry) -> float:
    """Width over height of the viewed box."""
    return (where.right - where.left) / (where.bottom - where.top)


def test_views_need_not_be_square() -> None:
    view, where = seen(picture(300, 500), View(64, 160))
    assert view.shape == (64, 160, 3) and where == Geometry(300, 500, 0, 0, 300, 500)
    view, where = seen(picture(300, 500), View(64, 96, resize=120))
    assert view.shape == (64, 96, 3) and non_square(where) == pytest.approx(1.5)
    assert (where.top + where.bottom, where.left + where.right) == (300, 500)


@pytest.mark.parametrize("view", [View(64, 160), View(96, 64, resize=100)])
def test_a_box_of_the_view_finds_its_way_back(view: View) -> None:
    where = view.geometry(300, 500)
    corners = (round(edge) for edge in (where.top, where.left, where.bottom, where.right))
    assert where.in_original((0, 0, view.height, view.width), view.height, view.width) == tuple(corners)
    image = np.zeros((300, 500, 3), np.uint8)
    image[150:180, 230:290] = 255
    rows, columns = np.nonzero(seen(image, view)[0][:, :, 0] > 127)
    box = (rows.min(), columns.min(), rows.max() + 1, columns.max() + 1)
    found = where.in_original(box, view.height, view.width)
    assert np.abs(np.array(found) - (150, 230, 180, 290)).max() <= 300 / min(view.height, view.width)


@pytest.fixture
def decodings(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many times smaller than it is each image was decoded."""
    times: list[int] = []

    def counted(source: ImageLike, reduced: Callable[[int, int], int] | None = None) -> decode.Decoded:
        image = decode.decoded(source, reduced)
        times.append(image.reduced)
        return image

    monkeypatch.setattr(loading, "decoded", counted)
    return times


def large_jpeg(path: Path, orientation: int = 1) -> Path:
    small = Image.fromarray(np.random.default_rng(0).integers(0, 256, (9, 12, 3), np.uint8))
    exif = Image.Exif()
    exif[decode.ORIENTATION] = orientation
    small.resize((803, 601), Image.Resampling.BICUBIC).save(path, quality=92, exif=exif)
    return path


@pytest.mark.parametrize("orientation", [1, 6])
def test_a_large_jpeg_is_decoded_smaller_and_looks_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, decodings: list[int], orientation: int
) -> None:
    path, crop = large_jpeg(tmp_path / "large.jpg", orientation), View(64, 64, resize=72)
    view, where = seen(path, crop)
    monkeypatch.setattr(views, "DRAFT_MARGIN", 10**6)
    whole, expected = seen(path, crop)
    assert decodings == [2 if orientation == 1 else 1, 1]
    assert where == expected
    assert (where.height, where.width) == ((601, 803) if orientation == 1 else (803, 601))
    assert np.abs(view.astype(int) - whole).max() <= 3


def test_images_near_the_view_and_other_formats_are_decoded_whole(
    tmp_path: Path, decodings: list[int]
) -> None:
    for name, size in (("near.jpg", 150), ("large.png", 32)):
        Image.new("RGB", (800, 800)).save(tmp_path / name)
        seen(tmp_path / name, View(size, size))
    assert decodings == [1, 1]


def test_several_views_share_one_decoding_that_suits_them_all(tmp_path: Path, decodings: list[int]) -> None:
    path = large_jpeg(tmp_path / "large.jpg")
    small, large = View(32, 40), View(96, 64)
    both = load_views(path, [small, large])
    assert [pixels.shape for pixels, _ in both] == [(32, 40, 3), (96, 64, 3)]
    assert [where for _, where in both] == [view.geometry(601, 803) for view in (small, large)]
    alone = [seen(path, view)[0] for view in (small, large)]
    assert decodings == [2, 4, 2]  # together, as the larger view needs it; then each for itself
    assert np.array_equal(both[1][0], alone[1])
    assert np.abs(both[0][0].astype(int) - alone[0]).max() <= 3
