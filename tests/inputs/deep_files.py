"""Files with more than 8 bits, which Pillow does not write."""

from __future__ import annotations

import struct
import zlib
from pathlib import Path

import numpy as np

COLOUR_TYPES = {1: 0, 2: 4, 3: 2, 4: 6}  # of a PNG, by its channels


def write_png16(path: Path, pixels: np.ndarray) -> Path:
    """A PNG of 16 bits from (H, W, C): gray, gray and alpha, RGB or RGBA; its rows are filtered in all five ways."""
    height, width, channels = pixels.shape
    rows = pixels.astype(">u2").view(np.uint8).reshape(height, -1).astype(int)
    step = 2 * channels
    left = np.pad(rows, ((0, 0), (step, 0)))[:, :-step]
    above = np.pad(rows, ((1, 0), (0, 0)))[:-1]
    corner = np.pad(above, ((0, 0), (step, 0)))[:, :-step]
    guesses = [0 * rows, left, above, (left + above) // 2, _paeth(left, above, corner)]
    content = bytearray()
    for row in range(height):
        kind = row % 5
        content += bytes([kind]) + ((rows[row] - guesses[kind][row]) % 256).astype(np.uint8).tobytes()
    head = struct.pack(">IIBBBBB", width, height, 16, COLOUR_TYPES[channels], 0, 0, 0)
    chunks = _chunk(b"IHDR", head) + _chunk(b"IDAT", zlib.compress(bytes(content))) + _chunk(b"IEND", b"")
    path.write_bytes(b"\x89PNG\r\n\x1a\n" + chunks)
    return path


def write_tiff(path: Path, pixels: np.ndarray, photometric: int = 1, bits: int = 0) -> Path:
    """A TIFF of one uncompressed strip from (H, W) or (H, W, C) of any integers or floats.

    photometric: 0 white is zero, 1 black is zero, 2 RGB, 5 CMYK. `bits` of each number are packed, if they are given.
    """
    height, width = pixels.shape[:2]
    channels = pixels.shape[2] if pixels.ndim == 3 else 1
    kind = {"u": 1, "i": 2, "f": 3}[pixels.dtype.kind]
    content = pixels.astype(pixels.dtype.newbyteorder("<")).tobytes() if not bits else packed(pixels, bits)
    depth = bits or 8 * pixels.dtype.itemsize
    tags = [(256, [width]), (257, [height]), (258, [depth] * channels), (259, [1]), (262, [photometric]), (273, [8]),
            (277, [channels]), (278, [height]), (279, [len(content)]), (339, [kind] * channels)]  # fmt: skip
    after, entries, more = 8 + len(content) + 2 + 12 * len(tags) + 4, b"", b""
    for tag, values in tags:
        data = struct.pack(f"<{len(values)}I", *values)
        if len(values) > 1:
            data, more = struct.pack("<I", after + len(more)), more + data
        entries += struct.pack("<HHI", tag, 4, len(values)) + data
    directory = struct.pack("<H", len(tags)) + entries + bytes(4)
    path.write_bytes(b"II*\0" + struct.pack("<I", 8 + len(content)) + content + directory + more)
    return path


def packed(pixels: np.ndarray, bits: int) -> bytes:
    """Rows of numbers of so many bits each, one after the other, the highest bit first."""
    numbers = pixels.reshape(len(pixels), -1)
    each = (numbers[:, :, None] >> np.arange(bits - 1, -1, -1)) & 1
    return np.packbits(each.reshape(len(pixels), -1).astype(np.uint8), axis=1).tobytes()


def _paeth(left: np.ndarray, above: np.ndarray, corner: np.ndarray) -> np.ndarray:
    guess = left + above - corner
    a, b, c = (abs(guess - one) for one in (left, above, corner))
    return np.where((a <= b) & (a <= c), left, np.where(b <= c, above, corner))


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
