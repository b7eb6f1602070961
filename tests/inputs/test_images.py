"""What comes in: file formats, depths and orientations, damaged files, the crop, folders and arrays."""

from __future__ import annotations

import os
import struct
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from mhpatchcore.inputs import images
from mhpatchcore.errors import ImageError, UserError
from mhpatchcore.inputs.images import Geometry, Preprocessing, list_images, load_pixels, load_view

VIEW = Preprocessing(32, 32)


def picture(height: int = 40, width: int = 60) -> np.ndarray:
    """A smooth picture (H, W, 3), so that neither JPEG nor resizing changes it much."""
    y, x = np.mgrid[0:height, 0:width]
    return np.stack([255 * x / width, 255 * y / height, 128 + 0 * x], axis=2).astype(np.uint8)


def saved(tmp_path: Path, image: Image.Image, name: str, **options: object) -> Path:
    image.save(tmp_path / name, **options)
    return tmp_path / name


@pytest.mark.parametrize("name", ["a.png", "a.bmp", "a.tif", "a.ppm", "a.JPG", "a.webp"])
def test_formats(tmp_path: Path, name: str) -> None:
    options = {"lossless": True} if name == "a.webp" else {}
    path = saved(tmp_path, Image.fromarray(picture()), name, **options)
    view, where = load_view(path, VIEW)
    reference = np.asarray(Image.fromarray(picture()).resize((32, 32), Image.Resampling.BILINEAR))
    assert view.shape == (32, 32, 3)
    assert np.abs(view.astype(int) - reference).max() <= (8 if name == "a.JPG" else 0)
    assert where == Geometry(40, 60, 0, 0, 40, 60)


def test_gray_has_three_equal_channels(tmp_path: Path) -> None:
    gray = picture()[:, :, 0]
    view, _ = load_view(saved(tmp_path, Image.fromarray(gray), "a.png"), VIEW)
    assert np.array_equal(view, np.repeat(view[:, :, :1], 3, axis=2))
    assert np.array_equal(view, load_view(np.repeat(gray[:, :, None], 3, axis=2), VIEW)[0])


@pytest.mark.parametrize("name", ["a.png", "a.tif", "a.pgm"])
def test_sixteen_bits_keep_their_depth(tmp_path: Path, name: str) -> None:
    deep = np.linspace(0, 65535, 32 * 32).reshape(32, 32).astype(np.uint16)
    view, _ = load_view(saved(tmp_path, Image.fromarray(deep), name), VIEW)
    assert view.shape == (32, 32, 3)
    assert np.allclose(view, deep[:, :, None] / 257, atol=1e-3)
    assert len(np.unique(view)) > 1000  # more than eight bits can tell apart
    assert np.array_equal(view, load_view(deep, VIEW)[0])
    pixels = load_pixels(tmp_path / name)
    assert (pixels.dtype, pixels.min(), pixels.max()) == (np.uint8, 0, 255)


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
    view, where = load_view(path, VIEW)
    assert np.array_equal(view, load_view(np.ascontiguousarray(upright), VIEW)[0])
    assert (where.height, where.width) == upright.shape[:2]


@pytest.mark.parametrize("name", ["a.png", "a.jpg", "a.tif", "a.bmp", "a.webp"])
@pytest.mark.parametrize("share", [0.0, 0.02, 0.6])
def test_a_truncated_file_is_named(tmp_path: Path, name: str, share: float) -> None:
    rng = np.random.default_rng(0)
    path = saved(tmp_path, Image.fromarray(rng.integers(0, 256, (60, 60, 3), dtype=np.uint8)), name)
    content = path.read_bytes()
    path.write_bytes(content[: int(share * len(content))])
    for load in (lambda: load_view(path, VIEW), lambda: load_pixels(path)):
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
        load_view(path, VIEW)


def test_a_missing_file_or_a_folder_is_named(tmp_path: Path) -> None:
    with pytest.raises(ImageError, match=r"there is no image .*gone\.png"):
        load_view(tmp_path / "gone.png", VIEW)
    with pytest.raises(ImageError, match=r"cannot read image"):
        load_view(tmp_path, VIEW)


@pytest.mark.parametrize("tag", [0x100, 0x11A])
def test_damaged_exif_is_at_worst_an_image_error(tmp_path: Path, tag: int) -> None:
    # an entry of a type that its tag cannot have, beside an orientation that makes the entries be rewritten
    entries = struct.pack("<HHHIIHHI", 2, 0x112, 3, 1, 6, tag, 2, 4) + b"abc\0" + bytes(4)
    exif = b"Exif\0\0II*\0" + struct.pack("<I", 8) + entries
    path = saved(tmp_path, Image.fromarray(picture()), "a.jpg", exif=exif)
    with suppress(ImageError):
        assert load_view(path, VIEW)[0].shape == (32, 32, 3)


def test_geometry_without_resize_is_the_whole_image() -> None:
    assert Preprocessing(224, 224).geometry(100, 333) == Geometry(100, 333, 0, 0, 100, 333)


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
    view, where = load_view(image, Preprocessing(224, 224, resize=256))
    assert np.abs(view.astype(int) - reference).max() <= 1
    box = [where.top * scale, where.left * scale, where.bottom * scale, where.right * scale]
    assert box == pytest.approx([top, left, top + 224, left + 224])


def test_a_crop_larger_than_the_image_stays_inside() -> None:
    view, where = load_view(picture(50, 80), Preprocessing(64, 64, resize=48))
    assert view.shape == (64, 64, 3)
    assert (where.top, where.bottom) == (0, 50) and where.left > 0 and where.right < 80


def test_a_folder_is_listed_sorted_and_deep_without_hidden_files(tmp_path: Path) -> None:
    wanted = ["b/2.JPG", "a.png", "b/1.tiff", "b/deep/3.bmp"]
    for name in [*wanted, ".hidden.png", ".cache/x.png", "b/.x/y.png", "notes.txt", "c.npy"]:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    (tmp_path / "folder.png").mkdir()
    assert list_images(tmp_path) == [tmp_path / name for name in sorted(wanted)]
    assert list_images(str(tmp_path)) == list_images(tmp_path)


def test_hidden_parents_of_the_folder_do_not_matter(tmp_path: Path) -> None:
    (tmp_path / ".data").mkdir()
    (tmp_path / ".data" / "a.png").touch()
    assert list_images(tmp_path / ".data") == [tmp_path / ".data" / "a.png"]


def test_a_file_or_a_sequence_is_listed_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "x.png").touch()
    assert list_images(tmp_path / "x.png") == [tmp_path / "x.png"]
    assert list_images(["b.png", "a.png"]) == ["b.png", "a.png"]


def test_an_empty_or_missing_folder_says_so(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").touch()
    with pytest.raises(UserError, match=r"no images in .*\.png"):
        list_images(tmp_path)
    with pytest.raises(UserError, match=r"there is no file or folder .*nowhere"):
        list_images(tmp_path / "nowhere")


@pytest.mark.parametrize("shape", [(20, 30), (20, 30, 1), (20, 30, 3), (20, 30, 4)])
def test_arrays_of_bytes(shape: tuple[int, ...]) -> None:
    array = np.random.default_rng(0).integers(0, 256, shape, dtype=np.uint8)
    view, where = load_view(array, Preprocessing(20, 30))
    colour = array if array.ndim == 3 else array[:, :, None]
    assert np.array_equal(view, np.broadcast_to(colour[:, :, :3], (20, 30, 3)))
    assert np.array_equal(load_pixels(array), view)
    assert where == Geometry(20, 30, 0, 0, 20, 30)


@pytest.mark.parametrize(
    "array",
    [
        np.zeros((8, 8, 3), np.float32),
        np.zeros((8, 8, 3), np.uint16),
        np.zeros((8, 8), np.int64),
        np.zeros((8, 8), bool),
        np.zeros((8, 8, 2), np.uint8),
        np.zeros((2, 8, 8, 3), np.uint8),
        np.zeros(8, np.uint8),
    ],
)
def test_other_arrays_are_refused_with_their_type_and_shape(array: np.ndarray) -> None:
    with pytest.raises(ImageError) as caught:
        load_view(array, VIEW)
    assert str(array.dtype) in str(caught.value) and str(array.shape) in str(caught.value)


@pytest.mark.parametrize("orientation", [1, 6])
def test_a_large_jpeg_is_decoded_smaller_and_looks_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, orientation: int
) -> None:
    small = Image.fromarray(np.random.default_rng(0).integers(0, 256, (9, 12, 3), np.uint8))
    exif = Image.Exif()
    exif[images.ORIENTATION] = orientation
    path = tmp_path / "large.jpg"
    small.resize((803, 601), Image.Resampling.BICUBIC).save(path, quality=92, exif=exif)
    preprocessing = Preprocessing(64, 64, resize=72)
    view, where = load_view(path, preprocessing)
    with Image.open(path) as file:
        assert images._reduction(file, preprocessing) == (2 if orientation == 1 else 1)
    monkeypatch.setattr(images, "DRAFT_MARGIN", 10**6)
    whole, expected = load_view(path, preprocessing)
    assert where == expected
    assert (where.height, where.width) == ((601, 803) if orientation == 1 else (803, 601))
    assert np.abs(view.astype(int) - whole).max() <= 3


def test_images_near_the_view_and_other_formats_are_decoded_whole(tmp_path: Path) -> None:
    picture = Image.new("RGB", (800, 800))
    for name, size in (("near.jpg", 150), ("large.png", 32)):
        picture.save(tmp_path / name)
        with Image.open(tmp_path / name) as file:
            assert images._reduction(file, Preprocessing(size, size)) == 1


def test_floating_point_pixels_are_refused(tmp_path: Path) -> None:
    Image.fromarray(np.linspace(0, 1, 64, dtype=np.float32).reshape(8, 8)).save(tmp_path / "a.tif")
    with pytest.raises(ImageError, match=r"a\.tif: it holds floating-point numbers.*8 or 16 bits"):
        load_view(tmp_path / "a.tif", VIEW)


def test_one_array_is_no_list_of_images() -> None:
    with pytest.raises(UserError, match="give a list"):
        list_images(np.zeros((40, 64, 3), np.uint8))
    assert len(list_images(np.zeros((2, 40, 64, 3), np.uint8))) == 2


@pytest.mark.parametrize("source", [None, 3, Image.new("RGB", (4, 4)), np.zeros((0, 64, 3), np.uint8)])
def test_what_is_no_image_is_refused(source: object) -> None:
    with pytest.raises(ImageError, match="an image"):
        load_view(source, VIEW)  # type: ignore[arg-type]


def test_a_folder_that_cannot_be_read_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "shut").mkdir()
    (tmp_path / "a.png").touch()
    scandir = os.scandir

    def guarded(path: str) -> object:
        if str(path).endswith("shut"):
            raise PermissionError(13, "Permission denied", path)
        return scandir(path)

    monkeypatch.setattr(os, "scandir", guarded)
    with pytest.raises(UserError, match=r"cannot read folder .*shut: Permission denied"):
        list_images(tmp_path)
