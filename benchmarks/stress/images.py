"""Image files: PNG chunks, TIFF tags, JPEG markers, BMP and GIF headers, and bytes anywhere.

Each is refused in one line that names it, or gives pixels of the view's shape in 0..255. A PNG whose checksums were
left as they are must be refused, or show what it showed before.
"""

from __future__ import annotations

import io
import struct
import zlib
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
from PIL import Image

from benchmarks.stress.mutations import INTERESTING, Random, damaged_bytes, one_of, random_of
from benchmarks.stress.processes import HARMLESS, Family, Violation
from benchmarks.stress.tiny import pictures
from mhpatchcore.errors import ImageError
from mhpatchcore.inputs.loading import load_pixels, load_views
from mhpatchcore.inputs.views import View
from mhpatchcore.inputs.window import Window, learnt_window
from mhpatchcore.runtime.arrays import Array

EIGHT_BIT = (View(32, 32), View(48, 32))
DEEP = tuple(replace(view, window=Window(0, 65535)) for view in EIGHT_BIT)
SIDE = 48


def prepare(folder: Path) -> None:
    """One picture in every format and mode that is read."""
    pixels = pictures(1, 1, SIDE)[0]
    rgb = Image.fromarray(pixels)
    exif = Image.Exif()
    exif[0x0112] = 6
    deep = Image.fromarray(pixels[:, :, 0].astype(np.uint16) * 257)
    saved: dict[str, tuple[Image.Image, dict[str, object]]] = {
        "rgb.png": (rgb, {}),
        "gray.png": (rgb.convert("L"), {}),
        "palette.png": (rgb.quantize(16), {}),
        "alpha.png": (rgb.convert("RGBA"), {}),
        "deep.png": (deep, {}),
        "turned.png": (rgb, {"exif": exif}),
        "rgb.jpg": (rgb, {"quality": 90}),
        "turned.jpg": (rgb, {"exif": exif}),
        "progressive.jpg": (rgb, {"progressive": True}),
        "cmyk.jpg": (rgb.convert("CMYK"), {}),
        "rgb.tif": (rgb, {}),
        "deflate.tif": (rgb, {"compression": "tiff_adobe_deflate"}),
        "lzw.tif": (rgb.convert("L"), {"compression": "tiff_lzw"}),
        "deep.tif": (deep, {}),
        "float.tif": (Image.fromarray(pixels[:, :, 0].astype(np.float32)), {}),
        "pages.tif": (rgb.convert("L"), {"save_all": True, "append_images": [rgb.convert("L")]}),
        "many pages.tif": (rgb, {"save_all": True, "append_images": [rgb, rgb, rgb]}),
        "rgb.bmp": (rgb, {}),
        "palette.bmp": (rgb.quantize(16), {}),
        "rgb.gif": (rgb.quantize(16), {}),
        "animated.gif": (rgb.quantize(16), {"save_all": True, "append_images": [rgb.quantize(8)]}),
        "rgb.webp": (rgb, {}),
        "rgb.ppm": (rgb, {}),
        "gray.pgm": (rgb.convert("L"), {}),
    }
    for suffix in ("jp2", "avif"):  # not every build of Pillow has them
        try:
            rgb.save(folder / f"rgb.{suffix}")
        except (OSError, KeyError, ValueError):
            continue
    for name, (image, options) in saved.items():
        image.save(folder / name, **options)


def attempt(folder: Path, seed: int) -> str:
    random = random_of("images", seed)
    name = one_of(random, sorted(_originals(folder)))
    content, seen = _originals(folder)[name]
    suffix = Path(name).suffix
    mutation = one_of(random, (damaged_bytes, *STRUCTURED.get(suffix, ())))
    path = folder / f"{seed}{suffix}"
    try:
        path.write_bytes(mutation(content, random))
        views = _views(path, random, _is_deep(name))
        if suffix == ".png" and mutation in WITH_STALE_CHECKSUMS and not np.array_equal(views, seen):
            raise Violation("verdict: a damaged PNG shows something else, without an error")
    except ImageError as error:
        if str(path) not in str(error):
            raise Violation(f"message: the file is not named: {error}") from error
        raise
    finally:
        path.unlink(missing_ok=True)
    return HARMLESS


def undamaged(folder: Path) -> None:
    _originals(folder)


FAMILY = Family("images", prepare, undamaged, attempt)


@cache
def _originals(folder: Path) -> dict[str, tuple[bytes, Array]]:
    paths = [path for path in folder.iterdir() if not path.stem.isdigit() and path.suffix in SUFFIXES]
    return {
        path.name: (path.read_bytes(), _views(path, np.random.default_rng(1), _is_deep(path.name)))
        for path in paths
    }


SUFFIXES = (".png", ".jpg", ".tif", ".bmp", ".gif", ".webp", ".ppm", ".pgm", ".jp2", ".avif")


def _views(path: Path, random: Random, deep: bool) -> Array:
    """The views of a file, one after the other, as floats."""
    views = DEEP if deep else EIGHT_BIT
    seen = load_views(path, views)
    for view, (one, _) in zip(views, seen, strict=True):
        pixels = np.asarray(one, np.float64)
        if pixels.shape != (view.height, view.width, 3):
            raise Violation(f"shape: a view of {pixels.shape}")
        if not (np.isfinite(pixels).all() and pixels.min() >= 0 and pixels.max() <= 255):
            raise Violation(f"range: pixels from {pixels.min()} to {pixels.max()}")
    if random.random() < 0.3:
        learnt_window([path])
        load_pixels(path)
    return np.concatenate([np.asarray(one, np.float64).ravel() for one, _ in seen])


def _is_deep(name: str) -> bool:
    """Whether it has more than 8 bits, or frames of one part as its pages."""
    return name.startswith(("deep", "float", "pages"))


def _chunks(content: bytes) -> list[tuple[bytes, bytes, bytes]]:
    """The chunks of a PNG: type, data, checksum."""
    at, found = 8, []
    while at + 12 <= len(content):
        (length,) = struct.unpack(">I", content[at : at + 4])
        data = content[at + 8 : at + 8 + length]
        found.append((content[at + 4 : at + 8], data, content[at + 8 + length : at + 12 + length]))
        at += 12 + length
    return found


def _png(chunks: list[tuple[bytes, bytes, bytes]]) -> bytes:
    pieces = [struct.pack(">I", len(data)) + kind + data + crc for kind, data, crc in chunks]
    return b"\x89PNG\r\n\x1a\n" + b"".join(pieces)


def _png_stale(content: bytes, random: Random) -> bytes:
    """A chunk's data changed, its checksum left as it is."""
    chunks = _chunks(content)
    at = int(random.integers(len(chunks)))
    kind, data, crc = chunks[at]
    flipped = bytearray(data or b"\0")
    flipped[int(random.integers(len(flipped)))] ^= 1 << int(random.integers(8))
    chunks[at] = (kind, bytes(flipped), crc)
    return _png(chunks)


def _png_chunk(content: bytes, random: Random) -> bytes:
    """A chunk changed, doubled, moved or removed, with right checksums; or another header."""
    chunks = _chunks(content)
    at = int(random.integers(len(chunks)))
    kind, data, _ = chunks[at]
    match int(random.integers(6)):
        case 0:
            chunks.insert(int(random.integers(len(chunks))), chunks[at])
        case 1:
            del chunks[at]
        case 2:
            kind = one_of(
                random,
                (b"IDAT", b"IHDR", b"PLTE", b"tRNS", b"eXIf", b"iCCP", b"zTXt", b"iTXt", b"acTL", b"fdAT"),
            )
            chunks[at] = _checked(kind, data)
        case 3:
            chunks[at] = _checked(kind, damaged_bytes(data, random))
        case 4:
            height, width = (int(one_of(random, INTERESTING)) % 2**32 for _ in range(2))
            chunks[0] = _checked(b"IHDR", struct.pack(">II", width, height) + chunks[0][1][8:])
        case 5:
            fields = bytearray(chunks[0][1])
            fields[8 + int(random.integers(5))] = int(random.integers(256))
            chunks[0] = _checked(b"IHDR", bytes(fields))
    return _png(chunks)


def _png_bomb(content: bytes, random: Random) -> bytes:
    """Compressed zeros, many times more than the header says, in the pixels, a text or a profile."""
    chunks = _chunks(content)
    zeros = zlib.compress(b"\0" * int(one_of(random, (10**5, 10**6, 5 * 10**7))))
    kind = one_of(random, (b"IDAT", b"zTXt", b"iCCP", b"iTXt"))
    before = {b"zTXt": b"a\0\0", b"iCCP": b"a\0\0", b"iTXt": b"a\0\1\0\0\0"}.get(kind, b"")
    chunks.insert(1, _checked(kind, before + zeros))
    return _png(chunks)


def _checked(kind: bytes, data: bytes) -> tuple[bytes, bytes, bytes]:
    return kind, data, struct.pack(">I", zlib.crc32(kind + data))


def _tiff_tag(content: bytes, random: Random) -> bytes:
    """An entry of the first directory: its tag, type, count or value."""
    data = bytearray(content)
    order = "<" if content[:2] == b"II" else ">"
    (start,) = struct.unpack(f"{order}I", content[4:8])
    (count,) = struct.unpack(f"{order}H", content[start : start + 2])
    at = start + 2 + 12 * int(random.integers(count))
    tag, kind, number, value = struct.unpack(f"{order}HHII", content[at : at + 12])
    match int(random.integers(6)):
        case 0:
            tag = int(
                one_of(random, (*range(254, 300), 317, 320, 322, 323, 324, 325, 330, 338, 34675, 34665))
            )
        case 1:
            kind = int(random.integers(20))
        case 2:
            number = int(one_of(random, INTERESTING)) % 2**32
        case 3:
            value = int(one_of(random, (*INTERESTING, start, at, 8))) % 2**32
        case 4:
            value = int(random.integers(64))
        case 5:  # the next directory is this one
            end = start + 2 + 12 * count
            data[end : end + 4] = struct.pack(f"{order}I", start)
    data[at : at + 12] = struct.pack(f"{order}HHII", tag, kind, number, value)
    return bytes(data)


def _jpeg_marker(content: bytes, random: Random) -> bytes:
    """A segment's length, its data, its kind; doubled or removed; or another size in the frame header."""
    data = bytearray(content)
    marks = [at for at in range(2, len(data) - 4) if data[at] == 0xFF and 0xC0 <= data[at + 1] <= 0xFE]
    at = int(one_of(random, marks))
    length = int.from_bytes(data[at + 2 : at + 4], "big")
    match int(random.integers(6)):
        case 0:
            data[at + 2 : at + 4] = int(one_of(random, (0, 1, 2, 3, length + 1, 65535))).to_bytes(2, "big")
        case 1:
            data[at + 1] = int(random.integers(0xC0, 0xFF))
        case 2:
            data[at:at] = data[at : at + 2 + length] * int(random.integers(1, 50))
        case 3:
            del data[at : at + 2 + length]
        case 4:
            inside = at + 4 + int(random.integers(max(length - 2, 1)))
            if inside < len(data):
                data[inside] = int(random.integers(256))
        case 5:
            frames = [mark for mark in marks if data[mark + 1] in (0xC0, 0xC2)]
            if frames:
                side = int(one_of(random, (0, 1, 7, 65535, 40000, 20000))).to_bytes(2, "big")
                data[frames[0] + 5 : frames[0] + 9] = side + int(one_of(random, (1, 65535, 17))).to_bytes(
                    2, "big"
                )
    return bytes(data)


def _small_header(content: bytes, random: Random) -> bytes:
    """Numbers in the first bytes, where BMP, GIF, PPM and WebP have their sizes."""
    data = bytearray(content)
    for _ in range(int(random.integers(1, 4))):
        at, width = int(random.integers(min(64, len(data)))), int(one_of(random, (1, 2, 4)))
        data[at : at + width] = (int(one_of(random, INTERESTING)) % 256**width).to_bytes(width, "little")
    return bytes(data)


def _other_format(content: bytes, random: Random) -> bytes:
    """The picture in a format that no input has, under the name of one that is read."""
    buffer = io.BytesIO()
    with Image.open(io.BytesIO(content)) as image:
        image.convert("RGB").save(
            buffer, one_of(random, ("ICO", "PCX", "TGA", "SGI", "DDS", "ICNS", "EPS", "PDF"))
        )
    return damaged_bytes(buffer.getvalue(), random)


Mutation = Callable[[bytes, Random], bytes]
STRUCTURED: dict[str, tuple[Mutation, ...]] = {
    ".png": (_png_stale, _png_chunk, _png_chunk, _png_bomb),
    ".tif": (_tiff_tag, _tiff_tag, _tiff_tag),
    ".jpg": (_jpeg_marker, _jpeg_marker, _jpeg_marker),
    ".bmp": (_small_header, _small_header, _other_format),
    ".gif": (_small_header, _small_header),
    ".webp": (_small_header,),
    ".ppm": (_small_header,),
    ".pgm": (_small_header,),
}
WITH_STALE_CHECKSUMS = (_png_stale, damaged_bytes)
