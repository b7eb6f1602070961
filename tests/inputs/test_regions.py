"""The region of interest: whatever it is given as, where it is, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.path import Path as Outline
from PIL import Image

from mhpatchcore import Config, UserError
from mhpatchcore.errors import ImageError
from mhpatchcore.inputs.regions import MOST_SIDE, AreaOfEach, Bitmap, Polygons, parse_roi

SIZE = (40, 60)
STAR = [[30, 2], [40, 38], [5, 14], [55, 14], [20, 38]]


def mask_of(roi: Any, size: tuple[int, int] = SIZE) -> np.ndarray:
    area = parse_roi(roi)
    assert isinstance(area, Polygons | Bitmap)
    return area.over((0, 0, *size), *size, size)


def rectangle(top: int, left: int, bottom: int, right: int) -> np.ndarray:
    mask = np.zeros(SIZE, bool)
    mask[top:bottom, left:right] = True
    return mask


@pytest.mark.parametrize(
    "given",
    ["10,20,30,50", " 10, 20, 30, 50", [10, 20, 30, 50], (10.0, 20, 30, 50), np.array([10, 20, 30, 50])],
)
def test_a_rectangle_is_top_left_bottom_right(given: Any) -> None:
    assert np.array_equal(mask_of(given), rectangle(10, 20, 30, 50))


def test_numbers_up_to_one_are_shares() -> None:
    assert np.array_equal(mask_of("0.25,0.5,0.75,1"), rectangle(10, 30, 30, 60))
    assert mask_of("0,0,1,1").all()
    assert mask_of([0.25, 0.5, 0.75, 1], (8, 8)).sum() == 4 * 4  # of any image


def test_a_polygon_is_what_lies_within_its_corners() -> None:
    y, x = np.mgrid[0 : SIZE[0], 0 : SIZE[1]] + 0.5
    triangle = [[3, 2], [50, 10], [20, 39]]
    inside = Outline([*triangle, triangle[0]]).contains_points(np.stack([x.ravel(), y.ravel()], axis=1))
    assert np.array_equal(mask_of(triangle), inside.reshape(SIZE))
    assert np.array_equal(mask_of(triangle[::-1]), inside.reshape(SIZE))


def test_several_polygons_are_together_one_region() -> None:
    squares = [[[0, 0], [10, 0], [10, 10], [0, 10]], [[5, 5], [20, 5], [20, 20], [5, 20]]]
    assert np.array_equal(mask_of(squares), mask_of(squares[0]) | mask_of(squares[1]))


def test_a_part_of_an_image_is_looked_up_at_the_middles_of_its_cells() -> None:
    area = parse_roi(STAR)
    assert isinstance(area, Polygons)
    whole = area.over((0, 0, *SIZE), *SIZE, SIZE)
    assert np.array_equal(area.over((8, 20, 32, 50), 24, 30, SIZE), whole[8:32, 20:50])
    odd = area.over((0, 0, 39, 60), 13, 20, SIZE)  # the middles of three by three
    assert np.array_equal(odd, whole[1:39:3, 1::3])


@pytest.mark.parametrize("labelme", [False, True])
def test_corners_come_from_a_file(tmp_path: Path, labelme: bool) -> None:
    box = {"shape_type": "rectangle", "points": [[2, 30], [9, 36]]}
    content = {"shapes": [{"shape_type": "polygon", "points": STAR}, box]} if labelme else STAR
    (tmp_path / "polygon.json").write_text(json.dumps(content))
    expected = mask_of(STAR) | (rectangle(30, 2, 36, 9) if labelme else False)
    assert np.array_equal(mask_of(str(tmp_path / "polygon.json")), expected)
    assert np.array_equal(mask_of(tmp_path / "polygon.json"), expected)


@pytest.mark.parametrize("mode", ["1", "L", "RGB", "P"])
def test_a_mask_is_black_outside(tmp_path: Path, mode: str) -> None:
    drawn = mask_of(STAR)
    Image.fromarray(drawn * np.uint8(255)).convert(mode).save(tmp_path / "mask.png")
    assert np.array_equal(mask_of(tmp_path / "mask.png"), drawn)
    assert np.array_equal(mask_of(drawn), drawn) and np.array_equal(mask_of(drawn * np.uint8(7)), drawn)
    twice = drawn.repeat(2, axis=0).repeat(2, axis=1)
    assert np.array_equal(mask_of(tmp_path / "mask.png", (80, 120)), twice)  # stretched over the image


@pytest.mark.parametrize("size", [(3000, 1700), (1025, 1025), (700, 5001)])
def test_a_large_mask_is_kept_smaller_and_never_shows_more(size: tuple[int, int]) -> None:
    drawn = mask_of((np.array(STAR) * (size[1] / SIZE[1], size[0] / SIZE[0])).tolist(), size)
    area = Bitmap.of_mask(drawn)
    assert max(area.rows, area.columns) <= MOST_SIDE and len(area.bits) < 10_000
    again = area.over((0, 0, *size), *size, size)
    assert not (again & ~drawn).any()
    assert again.sum() > 0.97 * drawn.sum()


@pytest.mark.parametrize("given", [None, "1,2,30,40", STAR, "mask", "folder"])
def test_a_model_keeps_it(tmp_path: Path, given: Any) -> None:
    given = {"mask": mask_of(STAR), "folder": tmp_path}.get(given, given) if isinstance(given, str) else given
    config = Config(roi=given)
    assert Config.from_json(json.loads(json.dumps(config.to_json()))) == config
    assert hash(config) == hash(Config(roi=given))
    assert config.roi is None or str(config.roi)


def test_regions_of_each_image_are_equal_wherever_they_are(tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    assert Config(roi=tmp_path) == Config(roi=tmp_path / "other") != Config()


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("10,20,30", "a rectangle such as .*, not '10,20,30'"),
        ("10,20,5,50", "is empty"),
        ("10,20,30,abc", "a rectangle such as"),
        ([[0, 0], [1, 1]], "3 to .* corners"),
        ([[0, 0], [1, 1], [2]], r"two numbers, \[x, y\]"),
        ([[0, 0], [1, 1], [2, float("nan")]], "two numbers"),
        ([], "a rectangle such as"),
        (7, "a rectangle such as"),
        (True, "a rectangle such as"),
        ({"bits": "x", "rows": 4, "columns": 4}, "a rectangle such as"),
        ({"bits": "", "rows": 10**9, "columns": 10**9}, "a rectangle such as"),
        ({"source": 5}, "a rectangle such as"),
        ({"surprise": 5}, "a rectangle such as"),
        (np.zeros((5, 5), bool), "black all over"),
        ("nowhere/regions.csv", "there is no file"),
        ("nowhere/polygon.json", "cannot read"),
        ("nowhere/mask.png", "there is no image"),
    ],
    ids=str,
)
def test_what_is_no_region_is_refused_in_one_line(given: Any, message: str) -> None:
    with pytest.raises(UserError, match=message) as error:
        Config(roi=given)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("content", ["{", "[]", '{"shapes": 5}', '{"version": 1}', "[[1, 2], [3, 4]]", "7"])
def test_a_file_without_corners_is_refused(tmp_path: Path, content: str) -> None:
    (tmp_path / "polygon.json").write_text(content)
    with pytest.raises(UserError, match=r"polygon\.json"):
        parse_roi(tmp_path / "polygon.json")


def save_mask(path: Path, mask: np.ndarray) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(mask * np.uint8(255)).save(path)


def test_masks_are_found_by_the_names_of_images(tmp_path: Path) -> None:
    masks = tmp_path / "masks"
    one, two, three = rectangle(0, 0, 9, 9), rectangle(5, 5, 20, 20), rectangle(1, 1, 40, 60)
    save_mask(masks / "a.png", one)
    save_mask(masks / "b_mask.png", two)
    save_mask(masks / "line2" / "a.bmp", three)
    each = parse_roi(masks)
    assert isinstance(each, AreaOfEach)

    def found(image: str) -> np.ndarray:
        return each.of(image).over((0, 0, *SIZE), *SIZE, SIZE)

    assert np.array_equal(found("parts/good/a.jpg"), one)
    assert np.array_equal(found("parts/b.jpg"), two)
    assert np.array_equal(found("/parts/line2/a.jpg"), three)  # the most alike of several
    with pytest.raises(ImageError, match=r"no region of interest for parts/c.jpg in .*masks.*roi="):
        each.of("parts/c.jpg")
    with pytest.raises(ImageError, match="an array has no name"):
        each.of(np.zeros((4, 4), np.uint8))


def test_a_black_mask_of_one_image_is_an_error_of_that_image(tmp_path: Path) -> None:
    save_mask(tmp_path / "a.png", np.zeros(SIZE, bool))
    with pytest.raises(ImageError, match="black all over"):
        AreaOfEach(str(tmp_path)).of("a.jpg")


@pytest.mark.parametrize("separate", [False, True])
def test_a_table_names_the_region_of_each_image(tmp_path: Path, separate: bool) -> None:
    save_mask(tmp_path / "masks" / "b.png", rectangle(5, 5, 20, 20))
    table = tmp_path / "regions.csv"
    if separate:
        table.write_text("image,top,left,bottom,right\na.jpg,0,0,9,9\nline2/a.jpg,1,1,40,60\n")
    else:
        table.write_text('image,roi\na.jpg,"0,0,9,9"\nline2/a.jpg,"1,1,40,60"\nb.jpg,masks/b.png\n')
    each = parse_roi(str(table))
    assert isinstance(each, AreaOfEach)

    def found(image: str) -> np.ndarray:
        return each.of(image).over((0, 0, *SIZE), *SIZE, SIZE)

    assert np.array_equal(found("parts/a.jpg"), rectangle(0, 0, 9, 9))
    assert np.array_equal(found("parts/line2/a.jpg"), rectangle(1, 1, 40, 60))
    if not separate:
        assert np.array_equal(found("b.jpg"), rectangle(5, 5, 20, 20))
    with pytest.raises(ImageError, match=r"no region of interest for c\.jpg"):
        each.of("c.jpg")
    table.write_text("image,top,left,bottom,right\na.jpg,0,0,9,12\n")  # it is read again
    assert np.array_equal(found("parts/a.jpg"), rectangle(0, 0, 9, 12))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("image,where\na.jpg,5\n", "no column"),
        ('image,roi\na.jpg,"0,0"\n', "line 2: a region of interest is"),
        ("image,top,left,bottom,right\nb.jpg,0,0,9,9\na.jpg,9,9,0,0\n", "line 3: .* is empty"),
        ("image,top,left,bottom,right\na.jpg,9\n", "line 2"),
    ],
)
def test_a_line_that_cannot_be_read_is_named(tmp_path: Path, content: str, message: str) -> None:
    (tmp_path / "regions.csv").write_text(content)
    with pytest.raises(UserError, match=message):
        AreaOfEach(str(tmp_path / "regions.csv")).of("a.jpg")
