"""Images as a user gives them: paths (`places.py`), arrays, images of Pillow, functions that give images, or
collections of these; and what each is called.
"""

from __future__ import annotations

import hashlib
import io
import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, cast

import numpy as np
from PIL import Image, ImageOps

from mhpatchcore.errors import ImageError, UserError
from mhpatchcore.inputs.files import FetchedFile, absolute, fetch_file, frames_of, is_frame, open_bytes
from mhpatchcore.inputs.pixels import depth_of, frame
from mhpatchcore.inputs.places import images_at, images_in, kind_of
from mhpatchcore.runtime.arrays import Array
from mhpatchcore.runtime.parallel import Replay
from mhpatchcore.runtime.urls import url_of


@dataclass(frozen=True)
class LazyImage:
    """One of the images of a function, which is made when it is asked for."""

    replay: Replay[Any]
    number: int

    def __str__(self) -> str:
        return f"number {self.number}"


ImageLike = str | Path | Array | LazyImage
GivenImage = ImageLike | Image.Image | bytes | BinaryIO
Images = GivenImage | Iterable[GivenImage] | Callable[[], Iterable[GivenImage]]
Found = tuple[ImageLike, str | Path | None]  # an image, and the folder or archive that it is in, if any

FROM_PYTHON = "given in Python"
SEVERAL_PLACES = "several places"


@dataclass(frozen=True, eq=False)
class Gathered:
    """Images, what each is called, and where they come from: the folder that holds them all, as an absolute path.

    Names are relative to that folder. Arrays have numbers and come from Python. `is_whole` says that all of one folder
    or archive was given, and not some files of it; `passed_over` are files there that are not images.
    """

    images: tuple[ImageLike, ...]
    names: tuple[str, ...]
    source: str
    is_whole: bool = False
    passed_over: tuple[str, ...] = ()


def gather(source: Images, as_given: bool = False) -> Gathered:
    """The images in whatever was given, by name: each file once, in the order of the names or `as_given`.

    So a list of a folder's files, in any order, is learnt like the folder. Arrays stay in their order. The images of a
    function are made when they are needed.
    """
    passed_over: list[str] = []
    if callable(source):
        replay = Replay(source)
        found: list[Found] = [(LazyImage(replay, number), None) for number, _ in enumerate(source())]
    else:
        found = list(_each(source, passed_over))
    folders = [Path(folder) for _, folder in found if folder is not None]
    if not found or len(folders) < len(found):
        numbered = enumerate(image for image, _ in found)
        names = [f"array {i}" if is_unnamed(image) else str(image) for i, image in numbered]
        return Gathered(tuple(image for image, _ in found), tuple(names), FROM_PYTHON)
    try:
        common = os.path.commonpath(folders)
    except ValueError:
        common = ""
    root = Path(common) if common else None  # some are on this machine and others elsewhere
    by_name: dict[str, ImageLike] = {}
    for image, _ in found:
        place = absolute(str(image))
        by_name.setdefault(str(place) if root is None else Path(place).relative_to(root).as_posix(), image)
    names = list(by_name) if as_given else sorted(by_name, key=Path)
    return Gathered(
        tuple(by_name[name] for name in names),
        tuple(names),
        SEVERAL_PLACES if root is None else url_of(root) or str(root),
        all(folder == root for folder in folders),
        tuple(passed_over),
    )


def list_images(source: Images) -> list[ImageLike]:
    """The images in whatever was given: those of a folder (recursively, sorted), of a file, a pattern, a collection."""
    return list(each_image(source))


def each_image(source: Images) -> Iterator[ImageLike]:
    """`list_images`, one after the other."""
    return (image for image, _ in _each(source, []))


def single_image(source: Images) -> ImageLike | None:
    """The image, where one was given and no folder, pattern or collection."""
    if isinstance(source, str | Path):
        return source if kind_of(source) == "image" else None
    if isinstance(source, np.ndarray) and source.ndim == 4:
        return None
    return _loose_image(source)


def is_unnamed(image: ImageLike) -> bool:
    """Whether an image is no file whose name leads to it: an array, or the content of a file."""
    return isinstance(image, FetchedFile) or not isinstance(image, str | Path)


def describe(source: ImageLike) -> str:
    """What an image is called in a message."""
    return "given as an array" if isinstance(source, np.ndarray) else str(source)


def _each(source: Any, passed_over: list[str], is_item: bool = False) -> Iterator[Found]:
    """Every image with the folder it was found in, which arrays do not have; other files there are passed over."""
    if isinstance(source, str | Path):
        yield from (images_at if is_item else images_in)(source, passed_over)
    elif isinstance(source, np.ndarray) and source.ndim == 4:
        yield from ((image, None) for image in source)
    elif (loose := _loose_image(source)) is not None:
        if not is_item:
            raise UserError("one array or one file is one image: give a list of them")
        yield loose, None
    elif callable(source) and not is_item:
        yield from _each(source(), passed_over)
    elif isinstance(source, Iterable) and not is_item and not isinstance(source, io.TextIOBase):
        for one in source:
            yield from _each(one, passed_over, is_item=True)
    else:
        raise _unknown(source)


def _loose_image(given: Any) -> Array | LazyImage | FetchedFile | None:
    """What is an image itself, and not a path to some: an array, an image of Pillow, the content of a file."""
    if isinstance(given, np.ndarray | LazyImage):
        return given
    if isinstance(given, Image.Image):
        return pixels_of(given)
    if isinstance(given, io.TextIOBase):
        raise _unknown(given)
    if isinstance(given, bytes) or hasattr(given, "read"):
        name = getattr(given, "name", None)
        content = given if isinstance(given, bytes) else given.read()
        return FetchedFile(name if isinstance(name, str) else "given as bytes", content)
    return None


def _unknown(what: object) -> UserError:
    kind = "None" if what is None else f"{type(what).__name__} ({what!r:.40})"
    return UserError(
        "images are a folder, a file, a pattern such as 'parts/*.png', arrays, images of Pillow, "
        f"files opened in binary mode, a list of these, or a function that gives them; this is {kind}"
    )


def pixels_of(image: Image.Image) -> Array:
    """An image of Pillow as an array, upright: (H, W) or (H, W, 3) of uint8, or (H, W) of uint16 or float32."""
    if image.mode in ("RGB", "RGBA") and depth_of(image) != "8-bit":
        raise ImageError("Pillow reads colours of 16 bits as 8: give the path of the file, or an array")
    try:
        upright = ImageOps.exif_transpose(image)
    except Exception as error:  # what is read only now may turn out to be damaged in any way
        raise ImageError(f"cannot read an image of Pillow: {error}; give another") from error
    if upright.mode.startswith("I"):
        deep: Array = np.clip(np.asarray(upright), 0, 65535).astype(np.uint16)
        return deep
    return np.asarray(upright if upright.mode in ("L", "RGB", "F") else upright.convert("RGB"))


def spread(n: int, size: int) -> list[int]:
    """At most `size` of the indices of n images, evenly spread.

    >>> spread(10, 3)
    [1, 5, 8]
    """
    size = min(size, n)
    return [int((i + 0.5) * n / size) for i in range(size)]


def fetched(source: ImageLike) -> str | Path | Array:
    """An image, loaded as far as it can only be read once: those of functions and frames of videos become arrays, files
    elsewhere come with their content. Others are returned as they are.
    """
    if isinstance(source, LazyImage):
        try:
            made = source.replay[source.number]
        except IndexError:
            raise ImageError(
                f"image {source.number} is missing: what gives the images has given fewer than before; give a list of "
                "them"
            ) from None
        return pixels_of(made) if isinstance(made, Image.Image) else made
    if not isinstance(source, str | Path):
        return source
    return frame(source) if is_frame(source) else fetch_file(source)


def content_hash(source: ImageLike) -> str:
    """What tells an image from all others, whatever it is called: the SHA-256 of its file, or of its pixels.

    That of a stack is made of those of its frames.
    """
    image = fetched(source)
    if isinstance(image, np.ndarray):
        digest = hashlib.sha256(f"{image.dtype.str} {image.shape}".encode())
        digest.update(np.ascontiguousarray(image).data)
        return digest.hexdigest()
    frames = frames_of(image)
    if frames:
        return hashlib.sha256(" ".join(map(content_hash, frames)).encode()).hexdigest()
    with open_bytes(image) as file:
        try:
            return hashlib.file_digest(cast(io.BytesIO, file), "sha256").hexdigest()
        except OSError as error:
            raise ImageError(f"cannot read image {image}: {error.strerror}; replace or remove it") from error
