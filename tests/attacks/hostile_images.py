"""Images that are small as files and large in memory, that loop, that lie about themselves, or that are programs."""

from __future__ import annotations

import io
import os
import struct
import zlib
from pathlib import Path

import numpy as np
from PIL import Image
from recipes import MARKER, Recipes

from mhpatchcore.inputs.decode import size_of
from mhpatchcore.inputs.loading import load_pixels, load_views
from mhpatchcore.inputs.sources import content_hash
from mhpatchcore.inputs.views import View


def used(path: Path) -> None:
    """What a fit does with an image, and a report."""
    size_of(path)
    content_hash(path)
    ((seen, _),) = load_views(path, [View(64, 64)])
    assert seen.shape == (64, 64, 3) and np.isfinite(seen).all()
    load_pixels(path)


IMAGES = Recipes(used)


def zeros(number: int) -> bytes:
    """So many zeros, compressed a thousand times and more, without ever being in memory."""
    packer, piece = zlib.compressobj(), b"\0" * 10**6
    return b"".join([*(packer.compress(piece) for _ in range(number // len(piece))), packer.flush()])


def chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def png(
    folder: Path, width: int, height: int, *extra: bytes, data: bytes | None = None, bits: int = 1
) -> Path:
    """A gray PNG of zeros, or of this data."""
    rows = (1 + width * bits // 8) * height
    content = zlib.compress(b"\0" * rows) if data is None else data
    header = struct.pack(">IIBBBBB", width, height, bits, 0, 0, 0, 0)
    path = folder / "hostile.png"
    pieces = [chunk(b"IHDR", header), *extra, chunk(b"IDAT", content), chunk(b"IEND", b"")]
    path.write_bytes(b"\x89PNG\r\n\x1a\n" + b"".join(pieces))
    return path


@IMAGES.refused
def more_pixels_than_are_read(folder: Path) -> Path:
    """450 MB of zeros in half a megabyte; 3.6 thousand million pixels."""
    return png(folder, 60_000, 60_000, data=zlib.compress(b"\0" * 10**6))


@IMAGES.refused
def sides_beyond_all_counting(folder: Path) -> Path:
    return png(folder, 2**31 - 1, 2**31 - 1, data=zlib.compress(b"\0"))


@IMAGES.refused
def far_fewer_rows_than_the_header_says(folder: Path) -> Path:
    return png(folder, 4096, 4096, data=zlib.compress(b"\0" * 1000), bits=8)


@IMAGES.harmless
def far_more_rows_than_the_header_says(folder: Path) -> Path:
    return png(folder, 64, 64, data=zeros(10**8), bits=8)


@IMAGES.harmless
def a_text_that_unpacks_to_gigabytes(folder: Path) -> Path:
    bomb = chunk(b"zTXt", b"a\0\0" + zeros(5 * 10**8))
    return png(folder, 64, 64, bomb, bits=8)


@IMAGES.harmless
def a_colour_profile_that_unpacks_to_gigabytes(folder: Path) -> Path:
    bomb = chunk(b"iCCP", b"a\0\0" + zeros(5 * 10**8))
    return png(folder, 64, 64, bomb, bits=8)


@IMAGES.harmless
def ten_thousand_small_chunks(folder: Path) -> Path:
    return png(folder, 64, 64, *[chunk(b"tEXt", b"a\0b")] * 10_000, bits=8)


@IMAGES.refused
def a_flipped_bit_in_the_pixels(folder: Path) -> Path:
    """The last pixels; decoding alone does not notice it."""
    noise = np.random.default_rng(0).integers(0, 256, (65, 64)).astype(np.uint8)
    noise[:, 0] = 0
    data = bytearray(zlib.compress(noise[:64].tobytes() + noise[64:].tobytes(), 0))
    path = png(folder, 63, 65, data=bytes(data), bits=8)
    content = bytearray(path.read_bytes())
    content[-12 - 4 - 4 - 2] ^= 0x10
    path.write_bytes(content)
    return path


@IMAGES.refused
def a_program_in_postscript_called_png(folder: Path) -> Path:
    """Pillow hands PostScript to Ghostscript, whatever the file is called."""
    path = folder / "hostile.png"
    program = f"({folder / MARKER}) (w) file closefile showpage\n"
    path.write_text(f"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 64 64\n%%EndComments\n{program}%%EOF\n")
    return path


@IMAGES.refused
def a_drawing_called_png(folder: Path) -> Path:
    path = folder / "hostile.png"
    path.write_text('<svg xmlns="http://www.w3.org/2000/svg"><image href="file:///etc/passwd"/></svg>')
    return path


def tiff(folder: Path, entries: list[tuple[int, int, int, int]], after: int = 0, body: bytes = b"") -> Path:
    """A TIFF of one directory: (tag, type, count, value) each; `after` is where the next one is."""
    directory = struct.pack("<H", len(entries)) + b"".join(struct.pack("<HHII", *entry) for entry in entries)
    path = folder / "hostile.tif"
    path.write_bytes(b"II*\0" + struct.pack("<I", 8) + directory + struct.pack("<I", after) + body)
    return path


GRAY = [
    (256, 4, 1, 8),
    (257, 4, 1, 8),
    (258, 3, 1, 8),
    (259, 3, 1, 1),
    (262, 3, 1, 1),
    (277, 3, 1, 1),
    (278, 4, 1, 8),
]


@IMAGES.harmless
def a_directory_that_follows_itself(folder: Path) -> Path:
    entries = sorted([*GRAY, (273, 4, 1, 8 + 2 + 9 * 12 + 4), (279, 4, 1, 64)])
    return tiff(folder, entries, after=8, body=bytes(range(64)))


@IMAGES.refused
def four_thousand_million_strips(folder: Path) -> Path:
    return tiff(folder, sorted([*GRAY, (273, 4, 2**32 - 1, 8), (279, 4, 2**32 - 1, 8)]))


@IMAGES.harmless
def a_strip_of_four_gigabytes(folder: Path) -> Path:
    return tiff(folder, sorted([*GRAY, (273, 4, 1, 8), (279, 4, 1, 2**32 - 1)]))


@IMAGES.refused
def a_hundred_bits_for_every_sample(folder: Path) -> Path:
    changed = [entry for entry in GRAY if entry[0] != 258]
    return tiff(folder, sorted([*changed, (258, 3, 1, 100), (273, 4, 1, 8), (279, 4, 1, 64)]))


@IMAGES.harmless
def ten_thousand_pages(folder: Path) -> Path:
    """Only the first is read, and the others are not counted."""
    frames = [Image.fromarray(np.full((8, 8), i % 256, np.uint8)) for i in range(2)]
    buffer = io.BytesIO()
    frames[0].save(buffer, "GIF", save_all=True, append_images=frames[1:])
    content = buffer.getvalue()
    at = content.rindex(b"\x2c\x00\x00\x00\x00")  # where the last frame begins
    path = folder / "hostile.gif"
    path.write_bytes(content[:at] + content[at:-1] * 10_000 + b";")
    return path


@IMAGES.harmless
def a_jpeg_of_megabytes_about_itself(folder: Path) -> Path:
    buffer = io.BytesIO()
    Image.fromarray(np.full((64, 64, 3), 99, np.uint8)).save(buffer, "JPEG")
    content = buffer.getvalue()
    segment = b"\xff\xe1" + (65533).to_bytes(2, "big") + b"Exif\0\0" + b"\xff" * (65533 - 8)
    path = folder / "hostile.jpg"
    path.write_bytes(content[:2] + segment * 30 + content[2:])
    return path


@IMAGES.refused
def a_jpeg_whose_size_is_a_lie(folder: Path) -> Path:
    buffer = io.BytesIO()
    Image.fromarray(np.full((64, 64, 3), 99, np.uint8)).save(buffer, "JPEG")
    content = bytearray(buffer.getvalue())
    at = content.index(b"\xff\xc0")
    content[at + 5 : at + 9] = struct.pack(">HH", 65500, 65500)
    path = folder / "hostile.jpg"
    path.write_bytes(content)
    return path


@IMAGES.refused
def no_pixels_at_all(folder: Path) -> Path:
    return png(folder, 0, 0, data=zlib.compress(b""))


@IMAGES.refused
def numbers_without_a_range(folder: Path) -> Path:
    path = folder / "hostile.tif"
    Image.fromarray(np.full((8, 8), np.nan, np.float32)).save(path)
    return path


@IMAGES.refused
def a_device_that_never_ends(folder: Path) -> Path:
    return Path("/dev/zero")


@IMAGES.refused
def a_pipe_that_nobody_writes_to(folder: Path) -> Path:
    path = folder / "pipe.png"
    path.unlink(missing_ok=True)
    os.mkfifo(path)
    return path


@IMAGES.refused
def a_link_to_itself(folder: Path) -> Path:
    path = folder / "loop.png"
    path.unlink(missing_ok=True)
    path.symlink_to(path)
    return path
