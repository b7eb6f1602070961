"""What comes in: files or arrays become the network's view of them, and the view knows its way back."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from PIL import Image, ImageOps

from mhpatchcore.errors import ImageError, UserError
from mhpatchcore.runtime.arrays import Array

ImageLike = str | Path | Array
# pixels differed by at most 3 levels (0.1 on average) from those of a full decode; with a margin of 2 by up to 5
DRAFT_MARGIN = 3
ORIENTATION = 0x0112  # in EXIF
SUFFIXES = (".png", ".jpg", ".jpeg", ".bmp", ".tif", ".tiff", ".webp", ".pgm", ".ppm")


@dataclass(frozen=True)
class Geometry:
    """Where the view lies in the original image: its size, and the viewed box in original pixels."""

    height: int
    width: int
    top: float
    left: float
    bottom: float
    right: float


@dataclass(frozen=True)
class Preprocessing:
    """How an image becomes a view of height × width pixels.

    Without `resize` the whole image is stretched to the view, so nothing on the part goes unseen. With it the
    shorter side is first resized to `resize` and the centre is cropped (the paper: 256, then 224 × 224).
    """

    height: int = 224
    width: int = 224
    resize: int | None = None

    def geometry(self, height: int, width: int) -> Geometry:
        """The box that the view shows of an image of height × width.

        >>> Preprocessing(224, 224, resize=256).geometry(512, 1024)
        Geometry(height=512, width=1024, top=32.0, left=288.0, bottom=480.0, right=736.0)
        """
        if self.resize is None:
            return Geometry(height, width, 0, 0, height, width)
        scale = min(height, width) / self.resize
        tall, wide = min(self.height * scale, height), min(self.width * scale, width)
        top, left = (height - tall) / 2, (width - wide) / 2
        return Geometry(height, width, top, left, top + tall, left + wide)


def load_view(source: ImageLike, preprocessing: Preprocessing) -> tuple[Array, Geometry]:
    """The view (H, W, 3), values in 0..255, and its place in the original image.

    A JPEG that is many times larger than the view is decoded at 1/2, 1/4 or 1/8 of its size, which saves most of the
    time: at the smallest of these at which the box still has DRAFT_MARGIN times the view's pixels in both directions.
    """
    reduced = 1
    if isinstance(source, str | Path):
        image, reduced, (width, height) = _opened(source, preprocessing)
    else:
        image = _from_array(source)
        width, height = image.size
    where = preprocessing.geometry(height, width)
    size = (preprocessing.width, preprocessing.height)
    corners = (where.left, where.top, where.right, where.bottom)
    box = (corners[0] / reduced, corners[1] / reduced, corners[2] / reduced, corners[3] / reduced)
    try:
        view = np.asarray(image.resize(size, Image.Resampling.BILINEAR, box=box))
    except (OSError, ValueError) as error:
        raise ImageError(f"cannot read image {_name(source)}: {error}; replace or remove it") from error
    if view.ndim == 2:
        view = np.repeat(view[:, :, None], 3, axis=2)
    return view, where


def load_pixels(source: ImageLike) -> Array:
    """The original image as (H, W, 3) uint8, for drawing on."""
    image = _opened(source)[0] if isinstance(source, str | Path) else _from_array(source)
    pixels = np.asarray(image)
    if pixels.ndim == 2:
        pixels = np.repeat(pixels[:, :, None], 3, axis=2)
    eight_bit: Array = np.clip(pixels, 0, 255).astype(np.uint8)
    return eight_bit


def list_images(source: str | Path | Sequence[ImageLike]) -> list[ImageLike]:
    """A folder's images (recursively, sorted), one image file, or a sequence as it is."""
    if isinstance(source, np.ndarray) and source.ndim < 4:
        raise UserError("one array is one image: give a list of them")
    if not isinstance(source, str | Path):
        return list(source)
    folder = Path(source)
    if folder.is_file():
        return [folder]
    if not folder.is_dir():
        raise UserError(f"there is no file or folder {folder}")
    found: list[ImageLike] = [*images_below(folder)]
    if not found:
        raise UserError(f"no images in {folder} (looked for {', '.join(SUFFIXES)}, also in its subfolders)")
    return found


def images_to_learn(source: str | Path | Sequence[ImageLike], as_given: bool) -> list[ImageLike]:
    """`list_images`, with files by their names: a list of a folder's files, in any order, is learnt like the folder.

    Arrays have no names and stay in their order; `as_given` keeps that of files too.
    """
    images = list_images(source)
    files = [Path(image) for image in images if isinstance(image, str | Path)]
    return images if as_given or len(files) < len(images) else [*sorted(files)]


def images_below(folder: Path) -> list[Path]:
    """Image files in a folder and its subfolders, sorted, without hidden ones."""

    def refuse(error: OSError) -> None:
        raise UserError(f"cannot read folder {error.filename}: {error.strerror}; change that or move it away")

    found = []
    for place, folders, names in os.walk(folder, onerror=refuse if folder.is_dir() else None):
        folders[:] = [name for name in folders if not name.startswith(".")]
        files = (Path(place, name) for name in names if not name.startswith("."))
        found += [path for path in files if path.suffix.lower() in SUFFIXES and path.is_file()]
    return sorted(found)


def spread(n: int, size: int) -> list[int]:
    """At most `size` of the indices of n images, evenly spread.

    >>> spread(10, 3)
    [1, 5, 8]
    """
    size = min(size, n)
    return [int((i + 0.5) * n / size) for i in range(size)]


def image_names(images: Sequence[ImageLike], source: object) -> tuple[str, ...]:
    """Training images by name: relative to their folder, as given, or numbered."""
    folder = Path(source) if isinstance(source, str | Path) else None
    return tuple(
        f"array {i}"
        if isinstance(image, np.ndarray)
        else Path(image).relative_to(folder).as_posix()
        if folder is not None and folder.is_dir()
        else str(image)
        for i, image in enumerate(images)
    )


def source_name(source: str | Path | Sequence[ImageLike]) -> str:
    """Where images come from, for the history."""
    return str(source) if isinstance(source, str | Path) else "given in Python"


def _opened(
    path: str | Path, preprocessing: Preprocessing | None = None
) -> tuple[Image.Image, int, tuple[int, int]]:
    """Decode a file to mode RGB, or to mode F in 0..255 where it has more than 8 bits.

    With `preprocessing` a JPEG may be decoded smaller than it is. The image, how many times, and its full width and
    height.
    """
    try:
        with Image.open(path) as image:
            width, height = image.size
            reduced = 1 if preprocessing is None else _reduction(image, preprocessing)
            if reduced > 1:
                image.draft(None, (width // reduced, height // reduced))
            image.load()
            upright = _in_known_mode(ImageOps.exif_transpose(image))
            return upright, reduced, upright.size if reduced == 1 else (width, height)
    except FileNotFoundError:
        raise ImageError(f"there is no image {path}") from None
    except Exception as error:  # Pillow raises nearly anything on damaged files (struct.error, TypeError)
        raise ImageError(f"cannot read image {path}: {error}; replace or remove it") from error


def _reduction(image: Image.Image, preprocessing: Preprocessing) -> int:
    """1, 2, 4 or 8: how many times smaller a file may be decoded for this view."""
    # sizes that do not divide are rounded up at the right and at the bottom, which turning would put elsewhere
    if image.format != "JPEG" or image.getexif().get(ORIENTATION, 1) != 1:
        return 1
    where = preprocessing.geometry(image.height, image.width)
    spare = min(
        (where.right - where.left) / preprocessing.width, (where.bottom - where.top) / preprocessing.height
    )
    return next((times for times in (8, 4, 2) if spare >= DRAFT_MARGIN * times), 1)


def _in_known_mode(image: Image.Image) -> Image.Image:
    if image.mode == "F":
        raise ValueError(
            "it holds floating-point numbers, whose range is not known: save it with 8 or 16 bits"
        )
    if image.mode.startswith("I"):
        return Image.fromarray(np.asarray(image).astype(np.float32) / 257)
    return image if image.mode == "RGB" else image.convert("RGB")


def _from_array(array: Array) -> Image.Image:
    """(H, W), (H, W, 1), (H, W, 3) or (H, W, 4) of uint8, or (H, W) of uint16."""
    if not isinstance(array, np.ndarray):
        raise ImageError(
            f"an image is a path or an array, not {type(array).__name__}: np.asarray may make one of it"
        )
    if array.size == 0:
        raise ImageError(f"an image array has pixels; this one is {array.shape}")
    if array.ndim == 3 and array.shape[2] == 1:
        array = array[:, :, 0]
    if array.dtype == np.uint16 and array.ndim == 2:
        return Image.fromarray(array.astype(np.float32) / 257)
    if array.dtype != np.uint8 or not (array.ndim == 2 or (array.ndim == 3 and array.shape[2] in (3, 4))):
        raise ImageError(
            f"an image array must be uint8 (H, W), (H, W, 3) or (H, W, 4), or uint16 (H, W); "
            f"this one is {array.dtype} {array.shape}"
        )
    return _in_known_mode(Image.fromarray(array))


def _name(source: ImageLike) -> str:
    return str(source) if isinstance(source, str | Path) else "given as an array"
