"""More than 8 bits: every bit of a file arrives, whatever its format; what cannot be read is refused."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
from deep_files import write_png16, write_tiff
from PIL import Image

from mhpatchcore.errors import ImageError, ImageWarning
from mhpatchcore.inputs.decode import decoded, header_of
from mhpatchcore.inputs.pixels import ORIENTATION, TO_UPRIGHT
from mhpatchcore.inputs.sources import pixels_of


def noise(*shape: int, most: int = 65535) -> np.ndarray:
    return np.random.default_rng(0).integers(0, most + 1, shape).astype(np.uint16)


def values(path: Path) -> np.ndarray:
    """What is decoded, after a look at whether the header says the same."""
    image = decoded(path)
    header = header_of(path)
    assert header is not None and header[:4] == (image.height, image.width, image.depth, image.frames)
    return np.asarray(image.values)


@pytest.mark.parametrize("channels", [1, 2, 3, 4])
def test_png_with_16_bits(tmp_path: Path, channels: int) -> None:
    pixels = noise(11, 7, channels)
    found = values(write_png16(tmp_path / "a.png", pixels))
    colours = pixels[:, :, :3] if channels > 2 else pixels[:, :, 0]
    assert found.dtype == np.uint16 and np.array_equal(found, colours)


@pytest.mark.parametrize("compression", [None, "tiff_lzw", "tiff_adobe_deflate"])
def test_gray_tiff_with_16_bits(tmp_path: Path, compression: str | None) -> None:
    pixels = noise(30, 20)
    Image.fromarray(pixels).save(tmp_path / "a.tif", compression=compression)
    assert np.array_equal(values(tmp_path / "a.tif"), pixels)


@pytest.mark.parametrize("channels", [3, 4])
def test_colour_tiff_with_16_bits(tmp_path: Path, channels: int) -> None:
    pixels = noise(30, 20, channels)
    path = write_tiff(tmp_path / "a.tif", pixels[:, :, :3], photometric=2)
    assert np.array_equal(values(path), pixels[:, :, :3])


@pytest.mark.parametrize(
    "name", ["lzw", "deflate", "predictor", "tiled", "big-endian", "tiled big-endian lzw", "big"]
)
def test_colour_tiff_of_all_layouts(tmp_path: Path, name: str) -> None:
    tifffile = pytest.importorskip("tifffile")
    pixels, layout = noise(40, 50, 3), {}
    if "lzw" in name:
        pytest.importorskip("imagecodecs")
        layout["compression"] = "lzw"
    if name in ("deflate", "predictor"):
        layout |= {"compression": "zlib", "predictor": name == "predictor"}
    if "tiled" in name:
        layout["tile"] = (16, 16)
    order = ">" if "endian" in name else "<"
    with tifffile.TiffWriter(tmp_path / "a.tif", byteorder=order, bigtiff=name == "big") as file:
        file.write(pixels, photometric="rgb", **layout)
    assert np.array_equal(values(tmp_path / "a.tif"), pixels)


def test_twelve_packed_bits(tmp_path: Path) -> None:
    pixels = noise(10, 20, most=4095)
    assert np.array_equal(values(write_tiff(tmp_path / "a.tif", pixels, bits=12)), pixels)


def test_white_is_zero(tmp_path: Path) -> None:
    pixels = noise(10, 20)
    assert np.array_equal(values(write_tiff(tmp_path / "a.tif", pixels, photometric=0)), 65535 - pixels)


@pytest.mark.parametrize("kind", [np.float32, np.int16, np.int32, np.uint32])
def test_other_numbers(tmp_path: Path, kind: type) -> None:
    pixels = (np.random.default_rng(0).normal(size=(10, 20)) * 1000 + 5000).astype(kind)
    pixels[0, 0] = 3_000_000_000 if kind is np.uint32 else -7
    path = write_tiff(tmp_path / "a.tif", pixels)
    assert np.array_equal(values(path), pixels)
    assert decoded(path).depth == ("float" if kind is np.float32 else "32-bit")


@pytest.mark.parametrize("white", [1023, 65535])
def test_pgm(tmp_path: Path, white: int) -> None:
    pixels = noise(5, 6, most=white)
    (tmp_path / "a.pgm").write_bytes(b"P5\n6 5\n%d\n" % white + pixels.astype(">u2").tobytes())
    found = values(tmp_path / "a.pgm")
    assert found.dtype == np.uint16 and np.abs(found - pixels * (65535 / white)).max() <= 1


def test_deep_colour_ppm_is_refused(tmp_path: Path) -> None:
    content = b"P6\n4 5\n65535\n" + noise(5, 4, 3).astype(">u2").tobytes()
    (tmp_path / "a.ppm").write_bytes(content)
    with pytest.raises(
        ImageError, match=r"a\.ppm: its colours have more than 8 bits: save it as PNG or TIFF"
    ):
        decoded(tmp_path / "a.ppm")


@pytest.mark.parametrize("orientation", TO_UPRIGHT)
@pytest.mark.parametrize("channels", [1, 3])
def test_orientation(tmp_path: Path, orientation: int, channels: int) -> None:
    pixels, exif = noise(11, 7, channels), Image.Exif()
    exif[ORIENTATION] = orientation
    plain = write_png16(tmp_path / "a.png", pixels).read_bytes()
    data = exif.tobytes().removeprefix(b"Exif\0\0")
    from deep_files import _chunk

    (tmp_path / "a.png").write_bytes(plain[:33] + _chunk(b"eXIf", data) + plain[33:])
    eight = Image.fromarray((pixels >> 8).astype(np.uint8).squeeze())
    eight.save(tmp_path / "b.png", exif=exif)
    deep, shallow = values(tmp_path / "a.png"), np.asarray(decoded(tmp_path / "b.png").values)
    assert np.array_equal(deep >> 8, shallow)


@pytest.mark.parametrize("kind", ["float colours", "planar", "double", "half", "ten bits"])
def test_rare_kinds_of_tiff(tmp_path: Path, kind: str) -> None:
    tifffile, path = pytest.importorskip("tifffile"), tmp_path / "a.tif"
    numbers = np.random.default_rng(0).random((30, 20, 3))
    expected = numbers[:, :, 0]
    if kind == "float colours":
        expected = numbers.astype(np.float32)
        write_tiff(path, expected, photometric=2)
    elif kind == "planar":
        expected = noise(30, 20, 3)
        tifffile.imwrite(path, np.moveaxis(expected, 2, 0), planarconfig="separate", photometric="rgb")
    elif kind == "ten bits":
        pytest.importorskip("imagecodecs")
        expected = noise(30, 20, most=1023)
        write_tiff(path, expected, bits=10)
    else:
        expected = expected.astype(np.float64 if kind == "double" else np.float16)
        write_tiff(path, expected)
    assert np.array_equal(values(path), expected)


def test_a_rare_kind_without_its_reader_names_the_installation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write_tiff(tmp_path / "a.tif", np.zeros((4, 4, 3), np.float32), photometric=2)
    monkeypatch.setitem(sys.modules, "tifffile", None)
    with pytest.raises(ImageError, match=r"a\.tif: .*pip install 'mhpatchcore\[tiff\]'"):
        decoded(path)
    assert header_of(path) is None


@pytest.mark.parametrize("channels", [2, 3, 4])
def test_colours_of_16_bits_without_their_reader_name_the_installation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, channels: int
) -> None:
    monkeypatch.setitem(sys.modules, "imagecodecs", None)
    path = write_png16(tmp_path / "a.png", noise(5, 6, channels))
    with pytest.raises(ImageError, match=r"a\.png: .*pip install 'mhpatchcore\[tiff\]'"):
        decoded(path)


@pytest.mark.parametrize("orientation", TO_UPRIGHT)
def test_colour_tiffs_are_turned_upright(tmp_path: Path, orientation: int) -> None:
    tifffile = pytest.importorskip("tifffile")
    pixels = noise(11, 7, 3)
    for name, values_ in (("a.tif", pixels), ("b.tif", (pixels >> 8).astype(np.uint8))):
        tag = (274, "H", 1, orientation, True)
        tifffile.imwrite(tmp_path / name, values_, photometric="rgb", extratags=[tag])
    assert np.array_equal(values(tmp_path / "a.tif") >> 8, values(tmp_path / "b.tif"))


def test_a_tiff_with_any_number_of_channels_is_refused(tmp_path: Path) -> None:
    pytest.importorskip("tifffile")
    path = write_tiff(tmp_path / "a.tif", noise(4, 4, 9), photometric=2)
    with pytest.raises(ImageError, match=r"a\.tif: "):
        decoded(path)


def test_a_rare_kind_that_is_cut_off_is_refused(tmp_path: Path) -> None:
    pytest.importorskip("tifffile")
    path = write_tiff(tmp_path / "a.tif", np.ones((40, 40, 3), np.float32), photometric=2)
    content = bytearray(path.read_bytes())
    place = content.index((279).to_bytes(2, "little") + (4).to_bytes(2, "little"))
    content[place + 8 : place + 12] = (10**7).to_bytes(4, "little")  # the strip is longer than the file
    path.write_bytes(content)
    with pytest.raises(ImageError, match=r"a\.tif: parts of it are missing"):
        decoded(path)


def test_cmyk_with_16_bits_is_refused(tmp_path: Path) -> None:
    path = write_tiff(tmp_path / "a.tif", noise(4, 4, 4), photometric=5)
    with pytest.raises(ImageError, match=r"a\.tif: .*save it as RGB"):
        decoded(path)


def test_numbers_that_are_not_finite_are_refused(tmp_path: Path) -> None:
    pixels = np.ones((4, 4), np.float32)
    for wrong in (np.nan, -np.inf, 1e38):
        pixels[1, 2] = wrong
        for source in (pixels, write_tiff(tmp_path / "a.tif", pixels)):
            with pytest.raises(ImageError, match="not finite"):
                decoded(source)


def test_pages_that_are_no_stack_are_told(tmp_path: Path) -> None:
    pages = [Image.new("L", (8, 6)), Image.new("L", (4, 3))]  # the second is a thumbnail
    pages[0].save(tmp_path / "a.tif", save_all=True, append_images=pages[1:])
    with pytest.warns(ImageWarning, match=r"a\.tif has several pages: only the first is read"):
        assert decoded(tmp_path / "a.tif").frames == 1


def test_deep_colours_in_an_image_of_pillow_are_not_lost_in_silence(tmp_path: Path) -> None:
    path = write_png16(tmp_path / "a.png", noise(5, 6, 3))
    with Image.open(path) as image, pytest.raises(ImageError, match="give the path"):
        pixels_of(image)


@pytest.mark.parametrize("kind", [np.uint8, np.uint16])
def test_a_tiff_that_claims_more_rows_than_it_has_is_refused(tmp_path: Path, kind: type) -> None:
    path = write_tiff(tmp_path / "a.tif", np.ones((40, 40), kind))
    content = bytearray(path.read_bytes())
    place = content.index((257).to_bytes(2, "little") + (4).to_bytes(2, "little"))
    content[place + 8 : place + 12] = (4000).to_bytes(4, "little")
    path.write_bytes(content)
    with pytest.raises(ImageError, match=r"a\.tif: parts of it are missing"):
        decoded(path)
