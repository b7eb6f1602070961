"""The window: learnt from the normals, robust, independent of how the work is done, the same for every later image."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from deep_files import write_png16, write_tiff
from pictures import picture, seen
from PIL import Image

from mhpatchcore import Config
from mhpatchcore.errors import ImageError, UserError
from mhpatchcore.inputs.loading import LoadedImage, load_pixels, load_views
from mhpatchcore.inputs.views import View
from mhpatchcore.inputs.window import EIGHT_BIT, SAMPLE, Window, learnt_window, parse_window


def exposed(black: float, steps: float, kind: str = "uint16", seed: int = 0) -> np.ndarray:
    """A picture with noise, (40, 60, 3), of which 0 is `black` and each grey level `steps` more."""
    noise = np.random.default_rng(seed).random((40, 60, 3))
    return (black + steps * (picture() + noise)).astype(kind)


@pytest.mark.parametrize(("black", "steps"), [(0, 4), (0, 16), (180, 5), (3000, 25), (0, 256)])
def test_every_exposure_looks_like_the_image_of_8_bits(tmp_path: Path, black: int, steps: int) -> None:
    normals = [write_png16(tmp_path / f"{i}.png", exposed(black, steps, seed=i)) for i in range(5)]
    window = learnt_window(normals)
    assert (window.depth, window.frames) == ("16-bit", 1)
    ((view, _),) = load_views(normals[0], [View(32, 32, window=window)])
    assert view.dtype == np.float32
    assert np.abs(view - seen(picture())[0]).mean() < 6
    assert np.abs(load_pixels(normals[0], window).astype(int) - picture()).mean() < 6


@pytest.mark.parametrize("kind", ["float32", "float64"])
def test_floats_have_the_range_that_they_are_found_in(kind: str) -> None:
    normals = [exposed(-0.1, 1 / 256, kind, seed=i) for i in range(3)]
    window = learnt_window(normals)
    assert window.depth == "float" and -0.15 < window.low < -0.1 and 0.85 < window.high < 0.95
    assert np.abs(load_pixels(normals[0], window).astype(int) - picture()).mean() < 6


def test_hot_pixels_and_an_odd_image_do_not_move_it() -> None:
    normals = [exposed(100, 10, seed=i) for i in range(40)]
    clean = learnt_window(normals)
    for image in normals:
        image.reshape(-1)[7], image.reshape(-1)[99] = 65535, 0
    normals[3] = np.full_like(normals[3], 65535)
    found = learnt_window(normals)
    assert found.low == pytest.approx(clean.low, abs=60) and found.high == pytest.approx(clean.high, rel=0.05)


def test_only_a_spread_sample_is_looked_at(tmp_path: Path) -> None:
    many = [exposed(0, 1 + i % 2) for i in range(2 * SAMPLE)]
    assert learnt_window(many) == learnt_window(many[1::2])


@pytest.mark.parametrize("width", [1024, 1536])
def test_all_columns_and_channels_of_large_images_count(width: int) -> None:
    pixels = np.zeros((1024, width, 3), np.uint16)
    pixels[:, :, 1], pixels[:, 500:600, 2] = 1000, 3000
    window = learnt_window([pixels])
    assert window.low < 0 and window.high > 3000


def test_what_cannot_be_read_does_not_count(tmp_path: Path) -> None:
    good = exposed(0, 16)
    assert learnt_window([tmp_path / "gone.png", good]) == learnt_window([good])
    assert learnt_window([tmp_path / "gone.png"]) == EIGHT_BIT


def test_values_beyond_it_are_black_and_white() -> None:
    pixels = np.array([[0, 99, 100, 150, 200, 201, 65535]], np.uint16)
    assert Window(100, 200).applied(pixels).tolist() == [[0, 0, 0, 127.5, 255, 255, 255]]


def test_large_integers_keep_their_differences() -> None:
    pixels = np.array([[4_000_000_000, 4_000_000_100]], np.uint32)
    assert Window(4_000_000_000, 4_000_000_100).applied(pixels).tolist() == [[0, 255]]


def test_a_constant_image_has_a_window() -> None:
    window = learnt_window([np.full((8, 8), 700, np.uint16)])
    assert window.low < 700 < window.high


def test_images_of_8_bits_are_taken_as_they_are(tmp_path: Path) -> None:
    dark = picture() // 10
    Image.fromarray(dark).save(tmp_path / "a.png")
    for source in (dark, tmp_path / "a.png"):
        window = learnt_window([source])
        assert window == EIGHT_BIT and np.array_equal(load_pixels(source, window), dark)
    assert seen(dark)[0].dtype == np.uint8


def test_a_given_window_holds_for_any_depth(tmp_path: Path) -> None:
    given = parse_window("10,60")
    assert learnt_window([picture()], given) == Window(10, 60, "8-bit")
    assert learnt_window([exposed(0, 16)], given) == Window(10, 60, "16-bit")
    stretched = load_pixels(picture(), Window(10, 60, "8-bit"))
    assert np.abs(stretched - np.clip((picture() - 10.0) * 5.1, 0, 255)).max() < 0.51


@pytest.mark.parametrize(
    ("source", "window", "told"),
    [
        (picture(), Window(0, 4095, "16-bit"), "is 8-bit, and the model is for 16-bit images"),
        (exposed(0, 16), EIGHT_BIT, "is 16-bit, and the model is for 8-bit images"),
        (exposed(0, 1, "float32"), Window(0, 4095, "16-bit"), "is float, and the model .* 16-bit"),
        (picture()[:, :, 0], EIGHT_BIT._replace(frames=2), "is one frame, .* a stack of 2 frames"),
        (picture()[:, :, :2], EIGHT_BIT, "is a stack of 2 frames, .* one frame"),
    ],
)
def test_an_image_of_another_kind_is_refused(source: np.ndarray, window: Window, told: str) -> None:
    with pytest.raises(ImageError, match=told):
        load_views(source, [View(32, 32, window=window)])


def test_three_channels_of_an_array_may_be_colours_or_frames() -> None:
    for frames in (1, 3):
        assert load_views(picture(), [View(32, 32, window=EIGHT_BIT._replace(frames=frames))])


def test_most_images_decide_the_depth() -> None:
    window = learnt_window([picture(), exposed(0, 16), exposed(0, 16, seed=1)])
    assert window == learnt_window([exposed(0, 16), exposed(0, 16, seed=1)])


def test_settings() -> None:
    assert Config().window == "auto" and Config().views[0].window == EIGHT_BIT
    given = Config().with_changes(window="100,4000")
    assert given.views[0].window == Window(100, 4000) == parse_window([100, 4000])
    assert Config.from_json({"window": [100, 4000, "16-bit", 2]}).window == Window(100, 4000, "16-bit", 2)
    for wrong in (
        "4000,100",
        "1,2,3",
        "a,b",
        "7",
        7,
        [1, True],
        "0,nan",
        [0, 1, "9-bit"],
        [0, 1, "8-bit", 5],
        None,
    ):
        with pytest.raises(UserError, match="window"):
            Config().with_changes(window=wrong)


def test_drawing_without_a_window_uses_the_image_s_own_values(tmp_path: Path) -> None:
    path = write_tiff(tmp_path / "a.tif", exposed(3000, 2)[:, :, 0])
    pixels = load_pixels(path)
    assert pixels.dtype == np.uint8 and pixels.min() < 10 and pixels.max() > 245


@pytest.mark.parametrize("size", [(700, 40), (300, 290), (40, 700), (90, 64)])
@pytest.mark.parametrize("resample", [Image.Resampling.BILINEAR, Image.Resampling.LANCZOS])
def test_columns_are_resized_before_rows_whatever_the_shape(
    size: tuple[int, int], resample: Image.Resampling
) -> None:
    """Pillow rounds in between, and newer versions of it begin with the rows of a tall image."""
    pixels = np.random.default_rng(0).integers(0, 256, (*size, 3), dtype=np.uint8)
    image, (height, width) = Image.fromarray(pixels), size
    for top, left, bottom, right in ((0, 0, height, width), (17, 5, height - 9, width - 3), (30, 0, 39, 21)):
        columns = image.resize((48, height), resample, box=(left, 0, right, height))
        expected = columns.resize((48, 64), resample, box=(0, top, 48, bottom))
        found = LoadedImage((image,), 1, *size, "an image").resized(
            64, 48, (top, left, bottom, right), resample
        )
        np.testing.assert_array_equal(found, np.asarray(expected))
