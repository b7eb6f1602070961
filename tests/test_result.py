"""A result's map, mask and regions agree, though a large map is never held whole."""

from __future__ import annotations

import io
import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from small_detector import PIXELS, small_detector, vials

from mhpatchcore import ImageError, Results, UserError
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
    with_image = result._repr_png_()
    assert with_image.startswith(b"\x89PNG")
    path.unlink()
    on_grey = result._repr_png_()
    assert on_grey.startswith(b"\x89PNG") and on_grey != with_image
    of_array = detector(image)
    assert of_array._repr_png_() == on_grey
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


def test_a_result_is_plotted() -> None:
    from matplotlib.figure import Figure

    detector, image = small_detector(), vials(50, 1)[0]
    result = detector(image)
    axes = Figure().subplots()
    assert result.plot(image, axes) is axes
    assert axes.images[0].get_array().shape[:2] == result.picture(image).size[::-1]
    with pytest.raises(UserError, match="give the image"):
        result.plot(axes=axes)


def test_to_json_is_a_text_of_what_to_dict_says() -> None:
    result = small_detector()(vials(50, 1)[0])
    assert json.loads(result.to_json())["score"] == result.to_dict()["score"] == result.score
    assert json.loads(Results([result]).to_json()) == [json.loads(result.to_json())]


@pytest.fixture(scope="module")
def results() -> Results:
    """Of two good parts and one of noise."""
    noise = np.random.default_rng(0).integers(0, 256, (PIXELS, PIXELS, 3)).astype(np.uint8)
    return small_detector().score_arrays(np.stack([*vials(50, 2), noise]))


def test_results_are_tables(results: Results, tmp_path: Path) -> None:
    pandas, parquet = pytest.importorskip("pandas"), pytest.importorskip("pyarrow.parquet")
    frame = results.to_frame()
    assert frame["score"].tolist() == [result.score for result in results]
    assert frame["verdict"].tolist() == [result.verdict for result in results]
    assert frame["regions"].tolist()[2] == len(results[2].regions) > 0
    results.to_csv(tmp_path / "results.csv")
    results.to_parquet(tmp_path / "results.parquet")
    from_csv = pandas.read_csv(tmp_path / "results.csv")
    from_parquet = parquet.read_table(tmp_path / "results.parquet").to_pandas()
    for table in (from_csv, from_parquet):
        assert list(table.columns) == list(frame.columns)
        assert table["score"].tolist() == frame["score"].tolist()


def test_results_are_coco_annotations(results: Results, tmp_path: Path) -> None:
    document = results.to_coco(tmp_path / "regions.json")
    assert json.loads((tmp_path / "regions.json").read_text()) == json.loads(json.dumps(document))
    assert [one["id"] for one in document["images"]] == [1, 2, 3]
    boxes = [one["bbox"] for one in document["annotations"] if one["image_id"] == 3]
    assert boxes == [list(region.box.xywh) for region in results[2].regions]
    assert document["categories"] == [{"id": 1, "name": "anomaly"}]


def test_results_say_what_they_are_in_a_line(results: Results) -> None:
    assert "1 rejected" in repr(results) and len(repr(results)) < 60 and len(repr(results[2])) < 100
    assert results._repr_html_().count("<tr>") == 4


def test_one_array_of_many_images_has_a_door_of_its_own() -> None:
    detector, images = small_detector(), np.stack(vials(50, 2))
    grey = images[..., 0]
    assert [one.score for one in detector.score_arrays(images)] == [
        one.score for one in detector.score(list(images))
    ]
    assert len(detector.score_arrays(grey)) == 2
    with pytest.raises(UserError, match=r"\(N, H, W, 3\)"):
        detector.score_arrays(grey[0])


def test_a_detector_and_evidence_show_themselves(tmp_path: Path) -> None:
    detector, image = small_detector(), vials(50, 1)[0]
    html = detector._repr_html_()
    assert "good images, it should reject about" in html and "image/svg+xml" in html
    evidence = detector.explain(image)
    assert evidence._repr_png_() is None and len(repr(evidence)) < 100
    evidence.save(tmp_path / "why.png", image)
    Image.fromarray(image).save(tmp_path / "part.png")
    shown = detector.explain(tmp_path / "part.png")._repr_png_()
    assert shown is not None and shown.startswith(b"\x89PNG")
    assert json.loads(evidence.to_json())["places"][0]["score"] == evidence.places[0].score
