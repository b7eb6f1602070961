"""A result's map, mask and regions agree, though a large map is never held whole."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from small_detector import PIXELS, small_detector, vials

from mhpatchcore import ImageError, UserError
from mhpatchcore import result as result_module
from mhpatchcore.inputs.views import View
from mhpatchcore.result import PEAK_SHARE, Result
from mhpatchcore.scoring.maps import ViewScores, regions_in


def made_up(
    height: int, width: int, resize: int | None = None, pixel_threshold: float = 8.0, scales: int = 1
) -> Result:
    """Two spots on a calm map, seen at one scale or more."""
    rng = np.random.default_rng(0)
    views = []
    for scale, side in enumerate((64, 96)[:scales]):
        a = rng.random((8, 8)).astype(np.float32)
        a[2, 5], a[6, 1] = 40, 30
        where = View(side, side, resize).geometry(height, width)
        views.append(ViewScores(a, where, (side, side), 2.0, scale))
    return Result(None, 9.0, 5.0, 0.5, pixel_threshold, tuple(views))


CASES = [(120, 90, None, 1), (90, 120, 128, 1), (120, 90, None, 2), (90, 120, 128, 2)]


@pytest.mark.parametrize(("height", "width", "resize", "scales"), CASES)
def test_regions_are_those_of_the_whole_map(
    monkeypatch: pytest.MonkeyPatch, height: int, width: int, resize: int | None, scales: int
) -> None:
    whole = made_up(height, width, resize, scales=scales)
    expected = regions_in([whole.map], 8.0)
    monkeypatch.setattr(Result, "map", property(lambda self: pytest.fail("the whole map is not needed")))
    monkeypatch.setattr(result_module, "BAND", 5 * width)
    found = made_up(height, width, resize, scales=scales).regions
    assert len(found) == len(expected) >= 2
    for one, other in zip(found, expected, strict=True):
        assert (one.box, one.area, one.peak_at) == (other.box, other.area, other.peak_at)
        assert one.peak == pytest.approx(other.peak, rel=1e-5)


@pytest.mark.parametrize(("height", "width", "resize", "scales"), CASES)
def test_a_part_of_the_map_is_the_map_there(height: int, width: int, resize: int | None, scales: int) -> None:
    result = made_up(height, width, resize, scales=scales)
    part = result.map_over((20, 10, 70, 80), 50, 70)
    assert np.allclose(part, result.map[20:70, 10:80], rtol=1e-5, atol=1e-5)
    assert result.peak == pytest.approx(float(result.map.max()), rel=1e-6)


def test_a_smaller_map_shows_the_same() -> None:
    result = made_up(800, 1200)
    small = result.map_over((0, 0, 800, 1200), 80, 120)
    pooled = result.map.reshape(80, 10, 120, 10).mean(axis=(1, 3))
    assert np.abs(small - pooled).max() < 0.01 * result.peak


@pytest.mark.parametrize(
    ("pixel_threshold", "limit"), [(8.0, 8.0), (500.0, None), (np.inf, None)], ids=["below", "above", "none"]
)
def test_an_anomalous_image_always_shows_where_it_is_most_so(
    pixel_threshold: float, limit: float | None
) -> None:
    result = made_up(60, 60, pixel_threshold=pixel_threshold)
    assert result.is_rejected and result.mask.any()
    assert result.mask_limit == (PEAK_SHARE * result.peak if limit is None else limit)
    assert np.array_equal(result.mask, result.map > result.mask_limit)


def test_a_normal_image_has_no_lowered_limit() -> None:
    normal = Result(None, 1.0, 5.0, 0.5, 500.0, made_up(60, 60).views)
    assert normal.mask_limit == 500.0 and not normal.mask.any() and normal.regions == ()


def test_a_result_shows_itself(tmp_path: Path) -> None:
    detector, image = small_detector(), vials(50, 1)[0]
    path = tmp_path / "part.png"
    Image.fromarray(image).save(path)
    result = detector(path)
    result.save(tmp_path / "why.png")
    with Image.open(tmp_path / "why.png") as picture:
        assert picture.width > 2 * PIXELS and picture.height > PIXELS
    shown = result._repr_png_()
    assert shown is not None and shown.startswith(b"\x89PNG")
    path.unlink()
    assert result._repr_png_() is None
    of_array = detector(image)
    assert of_array._repr_png_() is None
    with pytest.raises(UserError, match="give the image"):
        of_array.save(tmp_path / "no.png")
    of_array.save(tmp_path / "given.png", image)
    assert (tmp_path / "given.png").exists() and not (tmp_path / "no.png").exists()


def test_bytes_and_open_files_are_images(tmp_path: Path) -> None:
    detector, image = small_detector(), vials(51, 1)[0]
    path = tmp_path / "part.png"
    Image.fromarray(image).save(path)
    content = path.read_bytes()
    with path.open("rb") as file:
        results = [detector(path), detector(content), detector(io.BytesIO(content)), detector(file)]
    results += list(detector.score_many([content, io.BytesIO(content)]))
    assert {result.score for result in results} == {results[0].score}
    assert [result.path for result in results] == [str(path), *[None] * 5]
    with path.open() as text, pytest.raises(UserError, match="binary mode"):
        detector(text)  # type: ignore[call-overload]
    with pytest.raises(ImageError, match="given as bytes"):
        detector(b"no image")


def test_boxes_say_what_other_libraries_expect() -> None:
    noise = np.random.default_rng(0).integers(0, 256, (PIXELS, PIXELS, 3)).astype(np.uint8)
    box = small_detector()(noise).regions[0].box
    assert box == (box.top, box.left, box.bottom, box.right)
    assert box.xyxy == (box.left, box.top, box.right, box.bottom)
    assert Image.fromarray(noise).crop(box.xyxy).size == box.xywh[2:]
