"""Values that Pillow does not give: of images with more than 8 bits, of large JPEGs and of videos; and stacks.

Colours with 16 bits are read by imagecodecs (PNG) and tifffile (TIFF), as are kinds of TIFF that Pillow does not know:
`pip install 'mhpatchcore[tiff]'`. Videos and cameras are read by OpenCV: `pip install 'mhpatchcore[video]'`. A camera
gives its frames once: score them as they come, or record them and learn from the record.

A stack is two or three registered frames of one part as the channels of one image. Of two frames the third channel is
their mean, so that all channels are in the same range. Frames in colour count by their brightness.
"""

from __future__ import annotations

import io
import logging
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache, partial
from math import prod
from pathlib import Path
from typing import Any, Literal

import numpy as np
from PIL import Image

from mhpatchcore.errors import ImageError, ImageTooLargeError, UserError
from mhpatchcore.inputs.files import MOST_FRAMES, open_bytes
from mhpatchcore.runtime.arrays import Array
from mhpatchcore.runtime.parallel import Replay
from mhpatchcore.runtime.system import releasable_memory, release

BRIGHTNESS = np.array([0.299, 0.587, 0.114])  # of red, green and blue, as in ITU-R BT.601
Depth = Literal["8-bit", "16-bit", "32-bit", "float"]
DEPTHS: tuple[Depth, ...] = ("8-bit", "16-bit", "32-bit", "float")
WIDTH, HEIGHT, BITS, PHOTOMETRIC, SAMPLE_FORMAT = 256, 257, 258, 262, 339  # tags of TIFF
ORIENTATION = 274  # in TIFF as in EXIF
WHITE_IS_ZERO, BLACK_IS_ZERO, RGB = 0, 1, 2  # photometric
SEPARATE, UNSIGNED = 2, 1
MOST_SAMPLES = 4  # numbers of a pixel: colours and transparency
PARTS_MISSING = "parts of it are missing"
NO_COLOURS = "its colours are neither gray nor RGB (save it as RGB)"
TIFF_BEGINNINGS = (b"II*\0", b"MM\0*", b"II+\0", b"MM\0+")
NO_LOG = logging.NullHandler()
LARGE = 2**25  # pixels: planes of smaller images save little
STRIP = 2**20  # pixels that are moved to planes at a time
TO_UPRIGHT: dict[int, Callable[[Array], Array]] = {  # by orientation, as EXIF defines it
    2: lambda a: a[:, ::-1],
    3: lambda a: a[::-1, ::-1],
    4: lambda a: a[::-1],
    5: lambda a: a.swapaxes(0, 1),
    6: lambda a: np.rot90(a, -1),
    7: lambda a: a[::-1, ::-1].swapaxes(0, 1),
    8: lambda a: np.rot90(a),
}


def stacked_values(frames: Sequence[Image.Image | Array], name: str) -> Image.Image | Array:
    """Frames of one size and depth → an image of Pillow in mode RGB, or (H, W, 3)."""
    if not 2 <= len(frames) <= MOST_FRAMES:
        raise ImageError(f"a stack has two or three frames; {name} has {len(frames)}")
    gray = [gray_values(frame) for frame in frames]
    if len(gray) == 2:
        mean = (gray[0].astype(np.float64) + gray[1]) / 2
        gray.append(mean.astype(gray[0].dtype))
    channels = np.stack(gray, axis=2)
    return Image.fromarray(channels) if channels.dtype == np.uint8 else channels


def gray_values(frame: Image.Image | Array) -> Array:
    """(H, W) of a frame that may be in colour, in its own type."""
    values = np.asarray(frame.convert("L") if isinstance(frame, Image.Image) else frame)
    return values if values.ndim == 2 else (values @ BRIGHTNESS).astype(values.dtype)


class UnknownTiffError(Exception):
    """Pillow would not read this TIFF, or not right."""


def depth_of(image: Image.Image) -> Depth:
    """How deep an image is in its file; it need not be decoded."""
    if image.mode == "F":
        return "float"
    if image.mode == "I":
        return "16-bit" if image.format in ("PNG", "PPM") else "32-bit"
    # what Pillow is about to decode, and how: the layout of its pixels, and of a PPM the largest number
    how = [one if isinstance(one, tuple) else (one,) for *_, one in getattr(image, "tile", None) or ()]
    deep = image.mode.startswith("I;16") or any(";16" in str(one[0]) for one in how if one)
    white = how[0][-1] if image.format == "PPM" and how and len(how[0]) == 2 else 0
    return "16-bit" if deep or _tiff_bits(image) > 8 or (isinstance(white, int) and white > 255) else "8-bit"


def deep_pixels(image: Image.Image, name: str | Path) -> Array:
    """(H, W) or (H, W, 3) of an image that is deeper than 8 bits, in uint16, int32, uint32 or float32.

    Transparency is left out.
    """
    depth = depth_of(image)
    if image.mode == "F" or image.mode.startswith("I"):
        pixels: Array = np.asarray(image)
        if depth == "16-bit":
            pixels = pixels.astype(np.uint16)
            inverted = _tag(image, PHOTOMETRIC) == WHITE_IS_ZERO
            return np.uint16(2 ** _tiff_bits(image) - 1) - pixels if inverted else pixels
        unsigned = depth == "32-bit" and _tag(image, SAMPLE_FORMAT) in (None, UNSIGNED)
        return pixels.view(np.uint32) if unsigned else pixels
    if image.mode == "CMYK":
        raise ValueError(NO_COLOURS)
    if image.format == "TIFF":
        raise UnknownTiffError
    if image.format != "PNG":
        raise ValueError("its colours have more than 8 bits: save it as PNG or TIFF")
    try:
        from imagecodecs import png_decode
    except ImportError:
        raise ImageError(
            f"cannot read image {name}: colours or transparency with 16 bits take pip install 'mhpatchcore[tiff]'; "
            "or save it with 8 bits"
        ) from None
    with open_bytes(name) as file:
        pixels = png_decode(file.read())
    return pixels[:, :, :3] if pixels.shape[2] > 2 else pixels[:, :, 0]


def stored_size(image: Image.Image) -> tuple[int, int]:
    """Width and height as they are in the file; newer versions of Pillow give those of an upright TIFF."""
    return (_tag(image, WIDTH), _tag(image, HEIGHT)) if image.format == "TIFF" else image.size


def check_tiles(image: Image.Image) -> None:
    """Refuse a TIFF that names fewer strips than its height takes: Pillow would leave the rest black."""
    tiles = getattr(image, "tile", None) if image.format == "TIFF" else None
    if tiles and max(tile[1][3] for tile in tiles) < image.height:
        raise ValueError(PARTS_MISSING)


def upright(pixels: Array, orientation: int) -> Array:
    """(H, W, …) as the orientation in its file says it is to be seen."""
    return TO_UPRIGHT[orientation](pixels) if orientation in TO_UPRIGHT else pixels


def by_tifffile(name: str | Path, most_pixels: int) -> Array:
    """The first page of a TIFF, (H, W) or (H, W, C)."""
    with open_bytes(name) as file:
        if file.read(4) not in TIFF_BEGINNINGS:
            raise ValueError("it is damaged, or in a format that is not known")
    try:
        from tifffile import TiffFile, logger
    except ImportError:
        raise ImageError(
            f"cannot read image {name}: it is damaged, or a TIFF of more than 8-bit colours or a rare kind: these take "
            "pip install 'mhpatchcore[tiff]'; or save it with 8 bits"
        ) from None
    logger().addHandler(NO_LOG)  # it would write to standard error
    with open_bytes(name) as file, TiffFile(file) as tiff:
        page: Any = tiff.pages[0]
        if page.imagewidth * page.imagelength > most_pixels:
            raise ImageTooLargeError(
                f"image {name} has {page.imagewidth} × {page.imagelength} pixels, too many: save it smaller"
            )
        if page.photometric not in (WHITE_IS_ZERO, BLACK_IS_ZERO, RGB) or page.samplesperpixel > MOST_SAMPLES:
            raise ValueError(NO_COLOURS)
        size = file.seek(0, io.SEEK_END)
        pieces = list(zip(page.dataoffsets, page.databytecounts, strict=True))
        inside = all(0 < start < start + length <= size for start, length in pieces)
        if not inside or len(pieces) != prod(page.chunked):  # tifffile would fill in zeros
            raise ValueError(PARTS_MISSING)
        pixels: Array = page.asarray()
        if pixels.ndim == 3 and page.planarconfig == SEPARATE:
            pixels = np.moveaxis(pixels, 0, -1)
        if pixels.dtype == np.float16:
            pixels = pixels.astype(np.float32)
        if page.photometric == WHITE_IS_ZERO and pixels.dtype.kind == "u":
            pixels = pixels.dtype.type(2**page.bitspersample - 1) - pixels
        return upright(pixels, int(page.tags.valueof(ORIENTATION, 1)))


def _tag(image: Image.Image, number: int) -> Any:
    """The (first) value of a tag of a TIFF; None without it."""
    value = getattr(image, "tag_v2", {}).get(number)
    return value[0] if isinstance(value, tuple) and value else value


def _tiff_bits(image: Image.Image) -> int:
    """Of a number in a TIFF; 0 for other files."""
    return int(_tag(image, BITS) or 0) if image.format == "TIFF" else 0


def as_planes(image: Image.Image) -> Array | None:
    """The values (H, W, 3), in planes, of a large JPEG that is not decoded yet; None for what Pillow should keep.

    Pillow keeps a pixel in four bytes, planes take three. It is decoded into memory of ours, which goes back strip by
    strip: the two are never held whole side by side.
    """
    width, height = image.size
    if image.mode != "RGB" or width * height < LARGE:
        return None
    memory = releasable_memory(4 * width * height)
    if memory is None:
        return None
    pixels = np.frombuffer(memory, np.uint8).reshape(height, width, 4)
    image.im = ours = Image.frombuffer("RGBX", image.size, pixels, "raw", "RGBX", 0, 1).im
    image.load()
    if image.im is not ours:  # older versions of Pillow decode into their own memory all the same
        return None
    planes = np.empty((3, height, width), np.uint8)
    rows, gone = -(-STRIP // width), 0
    for top in range(0, height, rows):
        bottom = min(top + rows, height)
        planes[:, top:bottom] = pixels[top:bottom, :, :3].transpose(2, 0, 1)
        gone = release(memory, gone, 4 * width * bottom)
    return planes.transpose(1, 2, 0)


def frames(source: str | Path | int, every: int = 1) -> Iterator[Array]:
    """Every N-th frame (`every`) (H, W, 3) of a video file, or of the camera of a number, as long as there are any."""
    for number, capture in enumerate(_grabbed(source)):
        if number % every == 0:
            there, pixels = capture.retrieve()
            if not there:
                return
            yield np.ascontiguousarray(pixels[:, :, ::-1])  # OpenCV's order is blue, green, red


def video_frames(path: str | Path, every: int = 1) -> list[str]:
    """The names of every N-th frame of a video file."""
    length = sum(1 for _ in _grabbed(path))
    if not length:
        raise UserError(
            f"video {path} has no frames that can be read: record it again, or convert it to .mp4"
        )
    return [f"{path}/{number:06d}" for number in range(0, length, every)]


def frame(name: str | Path) -> Array:
    """The frame (H, W, 3) of a name."""
    video, number = Path(name).parent, Path(name).name
    try:
        pixels: Array = _video(video, video.stat().st_mtime_ns)[0][int(number)]
    except IndexError:
        raise ImageError(f"there is no frame {number} in {video}") from None
    return pixels


def frame_size(name: str | Path) -> tuple[int, int]:
    """Height and width of a video's frames, by its first."""
    video = Path(name).parent
    return _video(video, video.stat().st_mtime_ns)[1]


@lru_cache(maxsize=8)
def _video(path: Path, changed: int) -> tuple[Replay[Array], tuple[int, int]]:
    """The frames of a video, and their height and width."""
    first = next(frames(path), None)
    if first is None:
        raise ImageError(f"video {path} has no frames that can be read")
    return Replay(partial(frames, path)), (first.shape[0], first.shape[1])


def _grabbed(source: str | Path | int) -> Iterator[Any]:
    """OpenCV's video or camera at one frame after the other."""
    try:
        import cv2
    except ImportError:
        raise UserError(f"reading {source} takes OpenCV: pip install 'mhpatchcore[video]'") from None
    capture = cv2.VideoCapture(source if isinstance(source, int) else str(source))
    try:
        if not capture.isOpened():
            what = f"camera {source}" if isinstance(source, int) else f"video {source}"
            raise UserError(f"cannot open {what}: check that it is there and of a usual kind")
        while capture.grab():
            yield capture
    finally:
        capture.release()
