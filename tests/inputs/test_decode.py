"""Decoding: file formats, depths and orientations, damaged files, arrays."""

from __future__ import annotations

import struct
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
from pictures import picture, saved, seen
from PIL import Image, ImageCms, ImageFile

from mhpatchcore import Config
from mhpatchcore.errors import ImageError
from mhpatchcore.inputs.decode import decoded
from mhpatchcore.inputs.loading import load_image, load_pixels, load_views
from mhpatchcore.inputs.views import Geometry, View


@pytest.mark.parametrize("name", ["a.png", "a.bmp", "a.tif", "a.ppm", "a.JPG", "a.webp"])
def test_formats(tmp_path: Path, name: str) -> None:
    options = {"lossless": True} if name == "a.webp" else {}
    path = saved(tmp_path, Image.fromarray(picture()), name, **options)
    view, where = seen(path)
    reference = np.asarray(Image.fromarray(picture()).resize((32, 32), Image.Resampling.BILINEAR))
    assert view.shape == (32, 32, 3)
    assert np.abs(view.astype(int) - reference).max() <= (8 if name == "a.JPG" else 0)
    assert where == Geometry(40, 60, 0, 0, 40, 60)


def test_gray_has_three_equal_channels(tmp_path: Path) -> None:
    gray = picture()[:, :, 0]
    view, _ = seen(saved(tmp_path, Image.fromarray(gray), "a.png"))
    assert np.array_equal(view, np.repeat(view[:, :, :1], 3, axis=2))
    assert np.array_equal(view, seen(np.repeat(gray[:, :, None], 3, axis=2))[0])


def test_transparency_is_ignored(tmp_path: Path) -> None:
    alpha = np.linspace(0, 255, 40 * 60).reshape(40, 60, 1).astype(np.uint8)
    path = saved(tmp_path, Image.fromarray(np.concatenate([picture(), alpha], axis=2)), "a.png")
    assert np.array_equal(load_pixels(path), picture())


def test_palette_colours_are_looked_up(tmp_path: Path) -> None:
    blocks = np.kron([[0, 1], [2, 3]], np.ones((16, 16))).astype(np.uint8)
    colours = [(255, 0, 0), (0, 255, 0), (0, 0, 255), (10, 20, 30)]
    image = Image.fromarray(blocks).convert("P")
    image.putpalette([value for colour in colours for value in colour])
    pixels = load_pixels(saved(tmp_path, image, "a.png"))
    assert [tuple(pixels[i, j].tolist()) for i in (8, 24) for j in (8, 24)] == colours


@pytest.mark.parametrize("roi", [None, [30, 40, 200, 150]])
@pytest.mark.parametrize("sizes", ["tile:64", "tile:64@0.5", "48,tile:96@0.7", "32"])
def test_large_jpegs_are_kept_in_planes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sizes: str, roi: list[int] | None
) -> None:
    """A third less memory, and the same pixels in every view."""
    path = saved(tmp_path, Image.fromarray(noisy(301, 222)), "a.jpg", quality=90)
    config = Config(sizes=sizes, roi=roi)
    plain = load_views(path, config.views, config.roi)
    monkeypatch.setattr("mhpatchcore.inputs.pixels.LARGE", 1000)
    monkeypatch.setattr("mhpatchcore.inputs.pixels.STRIP", 5000)
    picture = load_image(path, config.views, config.roi)
    assert [band.mode for band in picture.bands] == ["L", "L", "L"]
    assert (picture.height, picture.width) == (301, 222)
    for (ours, where), (theirs, expected) in zip(
        load_views(path, config.views, config.roi), plain, strict=True
    ):
        assert np.array_equal(ours, theirs) and where == expected


def test_what_is_not_kept_in_planes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pixels = Image.fromarray(noisy(120, 80))
    exif = Image.Exif()
    exif[0x0112] = 6
    paths = [
        saved(tmp_path, pixels.convert("L"), "gray.jpg"),
        saved(tmp_path, pixels.convert("CMYK"), "cmyk.jpg"),
        saved(tmp_path, pixels, "turned.jpg", exif=exif),
        saved(tmp_path, pixels, "a.png"),
    ]
    before = [seen(path)[0] for path in paths]
    monkeypatch.setattr("mhpatchcore.inputs.pixels.LARGE", 1000)
    for path, pixels_before in zip(paths, before, strict=True):
        assert len(load_image(path, [View(32, 32)]).bands) == 1
        assert np.array_equal(seen(path)[0], pixels_before)


def test_a_damaged_large_jpeg_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = saved(tmp_path, Image.fromarray(noisy(301, 222)), "a.jpg")
    path.write_bytes(path.read_bytes()[:20_000])
    monkeypatch.setattr("mhpatchcore.inputs.pixels.LARGE", 1000)
    with pytest.raises(ImageError, match=r"cannot read image .*a\.jpg: image file is truncated"):
        seen(path)


def test_a_pillow_that_takes_its_own_memory_is_good_enough(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = saved(tmp_path, Image.fromarray(noisy(301, 222)), "a.jpg")
    before = seen(path)[0]
    monkeypatch.setattr("mhpatchcore.inputs.pixels.LARGE", 1000)
    prepare = ImageFile.ImageFile.load_prepare

    def older(image: ImageFile.ImageFile) -> None:
        image.im = Image.core.new(image.mode, image.size)
        prepare(image)

    monkeypatch.setattr(ImageFile.ImageFile, "load_prepare", older)
    assert np.array_equal(seen(path)[0], before)


def noisy(height: int, width: int) -> np.ndarray:
    return np.random.default_rng(0).integers(0, 256, (height, width, 3)).astype(np.uint8)


def test_cmyk_jpeg_becomes_rgb(tmp_path: Path) -> None:
    path = saved(tmp_path, Image.new("CMYK", (16, 16), (0, 255, 255, 0)), "a.jpg", quality=95)
    assert np.allclose(load_pixels(path).mean(axis=(0, 1)), [255, 0, 0], atol=12)


@pytest.mark.parametrize("orientation", range(1, 9))
def test_exif_orientation_is_undone(tmp_path: Path, orientation: int) -> None:
    turns: dict[int, Callable[[np.ndarray], np.ndarray]] = {  # what the viewer has to do, as EXIF defines it
        1: lambda a: a,
        2: lambda a: a[:, ::-1],
        3: lambda a: a[::-1, ::-1],
        4: lambda a: a[::-1],
        5: lambda a: a.swapaxes(0, 1),
        6: lambda a: np.rot90(a, -1),
        7: lambda a: a[::-1, ::-1].swapaxes(0, 1),
        8: lambda a: np.rot90(a),
    }
    exif = Image.Exif()
    exif[0x0112] = orientation
    path = saved(tmp_path, Image.fromarray(picture()), "a.png", exif=exif)
    upright = turns[orientation](picture())
    assert np.array_equal(load_pixels(path), upright)
    view, where = seen(path)
    assert np.array_equal(view, seen(np.ascontiguousarray(upright))[0])
    assert (where.height, where.width) == upright.shape[:2]


@pytest.mark.parametrize("name", ["a.png", "a.jpg", "a.tif", "a.bmp", "a.webp"])
@pytest.mark.parametrize("share", [0.0, 0.02, 0.6])
def test_a_truncated_file_is_named(tmp_path: Path, name: str, share: float) -> None:
    rng = np.random.default_rng(0)
    path = saved(tmp_path, Image.fromarray(rng.integers(0, 256, (60, 60, 3), dtype=np.uint8)), name)
    content = path.read_bytes()
    path.write_bytes(content[: int(share * len(content))])
    for load in (lambda: seen(path), lambda: load_pixels(path)):
        with pytest.raises(ImageError) as caught:
            load()
        assert str(path) in str(caught.value) and "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "content", [b"not an image\n", b"\x89PNG\r\n\x1a\n" + b"\xff" * 50, b"\xff\xd8\xff" + b"\0" * 50]
)
def test_something_else_named_png_is_named(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "part 7.png"
    path.write_bytes(content)
    with pytest.raises(ImageError, match=r"cannot read image .*part 7\.png"):
        seen(path)


def test_a_missing_file_or_a_folder_is_named(tmp_path: Path) -> None:
    with pytest.raises(ImageError, match=r"there is no image .*gone\.png"):
        seen(tmp_path / "gone.png")
    with pytest.raises(ImageError, match=r"cannot read image"):
        seen(tmp_path)


@pytest.mark.parametrize("tag", [0x100, 0x11A])
def test_damaged_exif_is_at_worst_an_image_error(tmp_path: Path, tag: int) -> None:
    # an entry of a type that its tag cannot have, beside an orientation that makes the entries be rewritten
    entries = struct.pack("<HHHIIHHI", 2, 0x112, 3, 1, 6, tag, 2, 4) + b"abc\0" + bytes(4)
    exif = b"Exif\0\0II*\0" + struct.pack("<I", 8) + entries
    path = saved(tmp_path, Image.fromarray(picture()), "a.jpg", exif=exif)
    with suppress(ImageError):
        assert seen(path)[0].shape == (32, 32, 3)


@pytest.mark.parametrize("shape", [(20, 30), (20, 30, 1), (20, 30, 3), (20, 30, 4)])
def test_arrays_of_bytes(shape: tuple[int, ...]) -> None:
    array = np.random.default_rng(0).integers(0, 256, shape, dtype=np.uint8)
    view, where = seen(array, View(20, 30))
    colour = array if array.ndim == 3 else array[:, :, None]
    assert np.array_equal(view, np.broadcast_to(colour[:, :, :3], (20, 30, 3)))
    assert np.array_equal(load_pixels(array), view)
    assert where == Geometry(20, 30, 0, 0, 20, 30)


@pytest.mark.parametrize(
    "array",
    [
        np.zeros((8, 8), np.int64),
        np.zeros((8, 8), np.float16),
        np.zeros((8, 8), bool),
        np.zeros((8, 8, 5), np.uint8),
        np.zeros((2, 8, 8, 3), np.uint8),
        np.zeros(8, np.uint8),
    ],
)
def test_other_arrays_are_refused_with_their_type_and_shape(array: np.ndarray) -> None:
    with pytest.raises(ImageError) as caught:
        seen(array)
    assert str(array.dtype) in str(caught.value) and str(array.shape) in str(caught.value)


def test_colour_profiles_are_not_applied(tmp_path: Path) -> None:
    profile = ImageCms.ImageCmsProfile(ImageCms.createProfile("LAB")).tobytes()
    path = saved(tmp_path, Image.fromarray(picture()), "a.png", icc_profile=profile)
    assert np.array_equal(load_pixels(path), picture())


def test_lab_becomes_rgb(tmp_path: Path) -> None:
    srgb, lab = ImageCms.createProfile("sRGB"), ImageCms.createProfile("LAB")
    image = ImageCms.profileToProfile(Image.fromarray(picture()), srgb, lab, outputMode="LAB")
    found = load_pixels(saved(tmp_path, image, "a.tif")).astype(int)
    assert np.abs(found - picture()).mean() < 2  # LAB with 8 bits is coarse


@pytest.mark.parametrize("mode", ["1", "L", "LA"])
def test_gray_stays_single_until_the_network_sees_it(tmp_path: Path, mode: str) -> None:
    image = Image.fromarray(picture()).convert("L").convert(mode)
    found = decoded(saved(tmp_path, image, "a.png")).values
    assert isinstance(found, Image.Image) and found.mode == "L"


@pytest.mark.parametrize("source", [None, 3, Image.new("RGB", (4, 4)), np.zeros((0, 64, 3), np.uint8)])
def test_what_is_no_image_is_refused(source: object) -> None:
    with pytest.raises(ImageError, match="an image"):
        seen(source)  # type: ignore[arg-type]
