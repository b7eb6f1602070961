"""Decoding: a name or an array becomes values, as deep as they are in their file.

Images of 8 bits are images of Pillow in mode L or RGB: gray ones stay single until the network sees them. Deeper ones
and large JPEGs (`pixels.as_planes`) are arrays. What is left out or not applied: transparency (the colours under it
count as they are stored) and colour profiles (they say how to show a picture, not what was measured).
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
from PIL import Image, ImageOps, UnidentifiedImageError

from mhpatchcore.errors import ImageError, ImageTooLargeError, ImageWarning
from mhpatchcore.inputs.files import MOST_FRAMES, fetch_file, frames_of, is_frame, open_bytes
from mhpatchcore.inputs.pixels import (
    ORIENTATION,
    Depth,
    UnknownTiffError,
    as_planes,
    by_tifffile,
    check_tiles,
    deep_pixels,
    depth_of,
    frame_size,
    stacked_values,
    stored_size,
    upright,
)
from mhpatchcore.inputs.sources import ImageLike, describe, fetched
from mhpatchcore.runtime.arrays import Array
from mhpatchcore.runtime.parallel import ProcessState

# three bytes each while an image is decoded; a file of a few kilobytes can claim to have any number of them
MOST_PIXELS = 400_000_000
# the formats of `places.SUFFIXES`, the usual first. Pillow knows some fifty, whatever a file is called: one of them
# runs a program (PostScript: Ghostscript), and how well the others are guarded is not known
FORMATS = ("PNG", "JPEG", "BMP", "PPM", "GIF", "TIFF", "WEBP", "JPEG2000", "AVIF")
LARGEST = 1e30  # of numbers that can be windowed
TURNED = 5  # orientations from here on swap height and width
DEPTH_OF: dict[str, Depth] = {"uint8": "8-bit", "uint16": "16-bit", "float32": "float", "float64": "float"}
# by modes of Pillow; a palette holds either, which is not known before it is decoded
IN_COLOUR = dict.fromkeys(("1", "L", "LA", "I", "F"), False)
IN_COLOUR |= dict.fromkeys(("RGB", "RGBA", "CMYK", "LAB"), True)
ARRAY, VIDEO = "array", "video"


@dataclass(frozen=True, eq=False)
class Decoded:
    """An image's values: of Pillow in mode L or RGB, or where they are deeper or in planes (H, W) or (H, W, 3).

    `frames` is the number of frames in a stack, else 1; None for an array of three channels, which may be either.
    A JPEG was decoded `reduced` times smaller than it is; height and width are its full size.
    """

    values: Image.Image | Array
    depth: Depth
    frames: int | None
    reduced: int
    height: int
    width: int


class Header(NamedTuple):
    """What can be known of an image without decoding it: its size as it is seen upright, its depth, its frames.

    It is `stored` as "PNG RGB", in the words of Pillow; a palette may hold gray or colour, so it may not be known.
    """

    height: int
    width: int
    depth: Depth
    frames: int | None
    stored: str = ARRAY
    in_colour: bool | None = None


def decoded(source: ImageLike, reduced: Callable[[int, int], int] | None = None) -> Decoded:
    """The image; a JPEG may be decoded 2, 4 or 8 times smaller, as `reduced(height, width)` says, or in planes."""
    image = fetched(source)
    if not isinstance(image, str | Path):
        return _from_array(image)
    names = frames_of(image)
    if names:
        return _stacked(str(image), [_from_file(fetch_file(name), None) for name in names])
    return _from_file(image, reduced)


def header_of(source: ImageLike) -> Header | None:
    """What an image is, without decoding it; None where that cannot be read."""
    try:
        return _header_of(source)
    except Exception:  # Pillow raises nearly anything
        return None


def _header_of(source: ImageLike) -> Header:
    if not isinstance(source, str | Path):
        return _header(decoded(source))
    if is_frame(source):
        return Header(*frame_size(source), "8-bit", 1, VIDEO, True)
    names = frames_of(source)
    if names:
        return _header_of(names[0])._replace(frames=len(names))
    try:
        with open_image(source, whole=False) as image:
            width, height = stored_size(image)
            depth, frames, in_colour = depth_of(image), _pages(image), _in_colour(image)
            # a PNG may have it behind its pixels, which would have to be decoded
            known = image.format != "PNG" or "exif" in image.info
            if known and image.getexif().get(ORIENTATION, 1) >= TURNED:
                width, height = height, width
            return Header(height, width, depth, frames, f"{image.format} {image.mode}", in_colour)
    except UnidentifiedImageError:
        return _header(_from_file(source, None), "TIFF")


def _header(image: Decoded, stored: str = ARRAY) -> Header:
    values = image.values
    in_colour = values.mode == "RGB" if isinstance(values, Image.Image) else values.ndim == 3
    return Header(image.height, image.width, image.depth, image.frames, stored, in_colour)


def _in_colour(image: Image.Image) -> bool | None:
    return IN_COLOUR.get(image.mode.partition(";")[0])


def size_of(source: ImageLike) -> tuple[int, int] | None:
    """Height and width of an image as it is seen upright; None where they cannot be read."""
    header = header_of(source)
    return None if header is None else (header.height, header.width)


@contextmanager
def open_image(name: str | Path, whole: bool = True) -> Iterator[Image.Image]:
    """A file's image, not yet decoded; one that is too large is refused. If not as a `whole`, its header is wanted.

    Pillow's own limit is lower and warns before it refuses. It holds for the process, so it is set aside meanwhile.
    """
    with open_bytes(name, whole) as file:
        try:
            with _no_limit():
                image = Image.open(file, formats=FORMATS)
        except KeyError:  # the last of the formats, which not every build of Pillow has
            raise UnidentifiedImageError from None
        with image:
            if image.width * image.height > MOST_PIXELS:
                raise ImageTooLargeError(
                    f"image {name} has {image.width} × {image.height} pixels, more than the {MOST_PIXELS // 10**6} "
                    "million that are read: save it smaller, or cut it into several images"
                )
            yield image


@contextmanager
def _without_limit() -> Iterator[None]:
    before, Image.MAX_IMAGE_PIXELS = Image.MAX_IMAGE_PIXELS, None
    try:
        yield
    finally:
        Image.MAX_IMAGE_PIXELS = before


_no_limit = ProcessState(_without_limit)


def _from_file(name: str | Path, reduced: Callable[[int, int], int] | None) -> Decoded:
    try:
        try:
            with open_image(name) as image:
                return _from_image(image, name, reduced)
        except (UnidentifiedImageError, UnknownTiffError):
            return _from_array(by_tifffile(name, MOST_PIXELS), str(name))
    except ImageError:
        raise
    except Exception as error:  # Pillow raises nearly anything on damaged files (struct.error, TypeError)
        raise ImageError(f"cannot read image {name}: {error}; replace or remove it") from error


def _from_image(image: Image.Image, name: str | Path, reduced: Callable[[int, int], int] | None) -> Decoded:
    if image.format == "PNG":  # decoding skips the checksums of pixels, and may show others in silence
        with open_image(name) as again:
            again.verify()
    pages = _pages(image)
    if pages > 1:
        every = []
        for page in range(pages):
            image.seek(page)
            every.append(_page(image, name, several=True))
        return _stacked(str(name), every)
    if image.format != "MPO" and getattr(image, "is_animated", False):  # an MPO holds one scene
        warnings.warn(f"{name} has several pages: only the first is read", ImageWarning, stacklevel=2)
    width, height = image.size
    # sizes that do not divide are rounded up at the right and at the bottom, which turning would put elsewhere
    may = image.format == "JPEG" and image.getexif().get(ORIENTATION, 1) == 1
    if reduced is None or not may:
        return _page(image, name)
    times = reduced(height, width)
    if times > 1:
        image.draft(None, (width // times, height // times))
    values = as_planes(image)
    seen = _page(image, name) if values is None else Decoded(values, "8-bit", 1, 1, *values.shape[:2])
    return replace(seen, reduced=times, height=height, width=width)


def _page(image: Image.Image, name: str | Path, several: bool = False) -> Decoded:
    """The page of a file that Pillow stands at, upright; a copy of it if there are several."""
    check_tiles(image)
    depth = depth_of(image)
    if depth == "8-bit":
        ImageOps.exif_transpose(image, in_place=True)  # without a copy, which a large image has no room for
        if image.mode not in ("L", "RGB"):
            shown = image.convert("RGB" if _in_colour(image) is not False else "L")
        else:
            shown = image.copy() if several else image
        return Decoded(shown, depth, 1, 1, shown.height, shown.width)
    turned = upright(deep_pixels(image, name), image.getexif().get(ORIENTATION, 1))
    return _deep(turned, depth, 1, str(name))


def _pages(image: Image.Image) -> int:
    """The pages of a TIFF that are frames of a stack: two or three gray ones, alike in size and depth; otherwise 1."""
    n = getattr(image, "n_frames", 1) if image.format == "TIFF" else 1
    if not 2 <= n <= MOST_FRAMES:
        return 1
    kinds = set()
    for page in range(n):
        image.seek(page)
        kinds.add((image.mode, image.size))
    image.seek(0)
    return n if len(kinds) == 1 and _in_colour(image) is False else 1


def _from_array(array: Array, name: str = "") -> Decoded:
    """(H, W), (H, W, 1), (H, W, 2), (H, W, 3) or (H, W, 4) of uint8, uint16, float32 or float64."""
    which = f"image {name}" if name else "an image array"
    if not isinstance(array, np.ndarray):
        raise ImageError(
            f"an image is a path or an array, not {type(array).__name__}: np.asarray may make one of it"
        )
    channels = array.shape[2] if array.ndim == 3 else 1
    if array.size == 0 or array.dtype.name not in DEPTH_OF or array.ndim not in (2, 3) or channels > 4:
        raise ImageError(
            f"{which} must be uint8, uint16, float32 or float64, (H, W), (H, W, 3), or (H, W, 2) for a stack; "
            f"this one is {array.dtype} {array.shape}"
        )
    depth = DEPTH_OF[array.dtype.name]
    if channels == 2:
        every = [_deep(np.ascontiguousarray(array[:, :, i]), depth, 1, name) for i in range(2)]
        return _stacked(name or describe(array), every)
    pixels = array if array.ndim == 2 else array[:, :, 0] if channels == 1 else array[:, :, :3]
    frames = None if channels == 3 and not name else 1
    return _deep(pixels, depth, frames, name or describe(array))


def _deep(pixels: Array, depth: Depth, frames: int | None, name: str) -> Decoded:
    """(H, W) or (H, W, 3) of any depth; 8 bits become an image of Pillow."""
    height, width = pixels.shape[:2]
    if depth == "8-bit":
        return Decoded(Image.fromarray(np.ascontiguousarray(pixels)), depth, frames, 1, height, width)
    if depth == "float" and not (np.abs(pixels) < LARGEST).all():
        raise ImageError(f"cannot read image {name}: it holds numbers that are not finite; replace them")
    return Decoded(pixels, depth, frames, 1, height, width)


def _stacked(name: str, frames: list[Decoded]) -> Decoded:
    first = frames[0]
    for one in frames[1:]:
        if (one.depth, one.height, one.width) != (first.depth, first.height, first.width):
            raise ImageError(
                f"the frames of {name} differ: {first.width} × {first.height} in {first.depth} and "
                f"{one.width} × {one.height} in {one.depth}; a stack has frames of one size and depth"
            )
    values = stacked_values([one.values for one in frames], name)
    return replace(first, values=values, frames=len(frames))
