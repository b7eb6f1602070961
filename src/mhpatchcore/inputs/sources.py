"""Where images come from: folders, files, patterns, lists, archives, videos, URLs of these, arrays, functions that give
images, or any collection of these; and what they are called.
"""

from __future__ import annotations

import glob
import hashlib
import io
import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn, cast

import numpy as np
from PIL import Image, ImageOps

from mhpatchcore.errors import ImageError, UserError
from mhpatchcore.inputs.archives import MemberName, has_archive_suffix, is_archive, members_of
from mhpatchcore.inputs.deep import depth_of
from mhpatchcore.inputs.files import Held, frames_of, held, is_file, is_pattern, open_bytes, ranged
from mhpatchcore.inputs.folders import SUFFIXES, UNREAD_SUFFIXES, has_suffix, images_below, images_below_url
from mhpatchcore.inputs.lists import LISTS, is_list, listed_paths
from mhpatchcore.inputs.matching import stack_names
from mhpatchcore.inputs.replay import Later, Replay
from mhpatchcore.inputs.video import VIDEOS, frame, is_frame, is_video, video_frames
from mhpatchcore.runtime.arrays import Array
from mhpatchcore.runtime.parallel import ordered_map
from mhpatchcore.runtime.urls import READ_ONLY, files_below, url_of

ImageLike = str | Path | Array | Later
GivenImage = ImageLike | Image.Image
Images = GivenImage | Iterable[GivenImage] | Callable[[], Iterable[GivenImage]]

FROM_PYTHON = "given in Python"
SEVERAL_PLACES = "several places"
TABLES_AT_ONCE = 8  # of archives elsewhere: waiting for an answer takes no core


@dataclass(frozen=True, eq=False)
class Gathered:
    """Images, what each is called, and where they come from: the folder that holds them all, as an absolute path.

    Names are relative to that folder. Arrays have numbers and come from Python. `is_whole` says that all of one folder
    or archive was given, and not some files of it; `passed_over` are files there that are no images.
    """

    images: tuple[ImageLike, ...]
    names: tuple[str, ...]
    source: str
    is_whole: bool = False
    passed_over: tuple[str, ...] = ()


def gather(source: Images, as_given: bool = False) -> Gathered:
    """The images in whatever was given, by name: each file once, in the order of the names or `as_given`.

    So a list of a folder's files, in any order, is learnt like the folder. Arrays stay in their order.
    """
    passed_over: list[str] = []
    found = _replayed(source) if callable(source) else list(_each(source, passed_over))
    folders = [folder for _, folder in found if folder is not None]
    if not found or len(folders) < len(found):
        numbered = enumerate(image for image, _ in found)
        names = [str(image) if isinstance(image, str | Path) else f"array {i}" for i, image in numbered]
        return Gathered(tuple(image for image, _ in found), tuple(names), FROM_PYTHON)
    root = _common(folders)
    by_name: dict[str, ImageLike] = {}
    for image, _ in found:
        place = _absolute(str(image))
        name = url_of(place) or str(place) if root is None else place.relative_to(root).as_posix()
        by_name.setdefault(name, image)
    names = list(by_name) if as_given else sorted(by_name, key=Path)
    source = SEVERAL_PLACES if root is None else url_of(root) or str(root)
    is_whole = all(folder == root for folder in folders)
    return Gathered(
        tuple(by_name[name] for name in names), tuple(names), source, is_whole, tuple(passed_over)
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
        _check_name(source)
        frames = frames_of(source)
        if frames:
            return source if all(single_image(frame) is not None for frame in frames) else None
        several = (_is_folder, is_pattern, is_archive, is_list, is_video)
        return None if any(true_of(source) for true_of in several) else source
    if isinstance(source, np.ndarray):
        return source if source.ndim != 4 else None
    if isinstance(source, Later):
        return source
    return pixels_of(source) if isinstance(source, Image.Image) else None


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


def stacked(*places: str | Path) -> list[str]:
    """The names of the stacks in two or three places (folders, archives, patterns), whose frames are matched by name.

    `Detector.fit(stacked("cam0/*.png", "cam1/*.png"))` learns from cam0/1.png with cam1/1.png, and so on.
    """
    return stack_names(
        [str(place) for place in places], lambda place: [str(one) for one in list_images(place)]
    )


def spread(n: int, size: int) -> list[int]:
    """At most `size` of the indices of n images, evenly spread.

    >>> spread(10, 3)
    [1, 5, 8]
    """
    size = min(size, n)
    return [int((i + 0.5) * n / size) for i in range(size)]


def leads_somewhere(path: str | Path) -> bool:
    """Whether there is anything at a path, or may be if it is a pattern or a URL."""
    frames = frames_of(path)
    if frames:
        return all(map(leads_somewhere, frames))
    return url_of(path) is not None or Path(path).exists() or is_pattern(path) or is_there(path)


def is_there(name: str | Path) -> bool:
    """Whether an image of this name can be looked for further: a file, a member of an archive, a stack, a frame."""
    return all(map(is_file, frames_of(name) or [name])) or is_frame(name)


def fetched(source: ImageLike) -> str | Path | Array:
    """What has to be made is made: an image of a function, a frame of a video; a file elsewhere comes with its content.

    Others stay.
    """
    if isinstance(source, Later):
        made = source.made()
        return pixels_of(made) if isinstance(made, Image.Image) else made
    if not isinstance(source, str | Path):
        return source
    return frame(source) if is_frame(source) else held(source)


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


def told(source: ImageLike) -> str:
    """An image in a message."""
    return "given as an array" if isinstance(source, np.ndarray) else str(source)


def _replayed(run: Callable[[], Iterable[GivenImage]]) -> list[tuple[ImageLike, Path | None]]:
    """The images of a function, to be made when they are needed."""
    replay = Replay(run)
    return [(Later(replay, number), None) for number in range(replay.length)]


def _each(source: Images, passed_over: list[str]) -> Iterator[tuple[ImageLike, Path | None]]:
    """Every image with the folder it was found in, which arrays do not have; other files there are passed over."""
    if isinstance(source, str | Path):
        _check_name(source)
        if not leads_somewhere(source):
            raise UserError(f"there is no file or folder {source}; check the path")
        yield from _at(source, passed_over)
    elif isinstance(source, Image.Image) or (isinstance(source, np.ndarray) and source.ndim < 4):
        raise UserError("one array is one image: give a list of them")
    elif callable(source):
        yield from _each(source(), passed_over)
    elif isinstance(source, Iterable):
        for one in source:
            yield from _of(one, passed_over)
    else:
        _refuse(source)


def _of(one: Any, passed_over: list[str]) -> Iterator[tuple[ImageLike, Path | None]]:
    """What one item of a collection stands for."""
    if isinstance(one, str | Path):
        yield from _at(one, passed_over)
    elif isinstance(one, Image.Image):
        yield pixels_of(one), None
    elif isinstance(one, np.ndarray):
        yield from ((image, None) for image in (one if one.ndim == 4 else [one]))
    elif isinstance(one, Later):
        yield one, None
    else:
        _refuse(one)


def _at(path: str | Path, passed_over: list[str]) -> Iterator[tuple[ImageLike, Path]]:
    """The images at a path. One where nothing is stays: whoever reads it will say so.

    What a URL is, is told by its looks: who gives a million of them does not wait for as many answers.
    """
    _check_name(path)
    url = url_of(path)
    if isinstance(path, Held | MemberName):  # it was found before
        yield path, _absolute(path).parent
    elif frames_of(path) and single_image(path) is None:
        yield from ((name, _absolute(name).parent) for name in stacked(*frames_of(path)))
    elif _is_folder(path):
        images = images_below_url(url, passed_over) if url else images_below(Path(path), passed_over)
        if not images:
            raise UserError(f"no images in {path} (looked for {', '.join(SUFFIXES)}, also in its subfolders)")
        yield from ((image, _absolute(path)) for image in images)
    elif is_pattern(path):
        matches = _matching(url or str(path))
        if not matches:
            raise UserError(f"no images match {url or path}; check the pattern")
        yield from ((image, _absolute(image).parent) for image in matches)
    elif is_archive(path):
        yield from ((name, _absolute(path)) for name in _members(path, passed_over))
    elif is_video(path):
        yield from ((name, _absolute(path)) for name in video_frames(path))
    elif is_list(path):
        for entry in listed_paths(path):
            if not leads_somewhere(entry) or is_list(entry):
                raise UserError(f"list {url or path}: there is no image {entry}; correct the line")
            yield from _at(entry, passed_over)
    elif url and has_suffix(url, VIDEOS):
        raise UserError(f"videos are read on this machine only: copy {url}")
    else:
        yield url or path, _absolute(path).parent


def _matching(pattern: str) -> list[str | Path]:
    """The images that a pattern stands for: files, those in folders, those in archives."""
    found: list[str | Path] = []
    for one in ranged(pattern):
        if not is_pattern(one):
            found.append(one if url_of(one) else Path(one))
        elif url_of(one):
            found += files_below(one, pattern=True)
        else:
            found += sorted(map(Path, glob.glob(one, recursive=True)))  # noqa: PTH207 (absolute ones too)
    elsewhere = url_of(pattern) is not None
    images = [one for one in found if has_suffix(one, SUFFIXES) and (elsewhere or Path(one).is_file())]
    images += [image for one in found if Path(one).is_dir() for image in images_below(Path(one))]
    archives = [one for one in found if is_archive(one)]
    tables = ordered_map(lambda archive: _members(archive, []), archives, TABLES_AT_ONCE)
    images += [name for some in tables for name in some]
    return list(dict.fromkeys(images))


def _members(archive: str | Path, passed_over: list[str]) -> list[MemberName]:
    everything = members_of(archive)
    members = [name for name in everything if has_suffix(name, SUFFIXES)]
    passed_over += [str(name) for name in everything if not has_suffix(name, SUFFIXES)]
    if not members:
        raise UserError(f"no images in {archive} (looked for {', '.join(SUFFIXES)})")
    return members


def _is_folder(path: str | Path) -> bool:
    """Whether it is a folder; of a URL, whether it looks like one."""
    url = url_of(path)
    if url is None:
        return Path(path).is_dir()
    named = (*SUFFIXES, *UNREAD_SUFFIXES, *LISTS, *VIDEOS)
    return not (url.startswith(READ_ONLY) or has_suffix(url, named) or has_archive_suffix(url))


def _common(folders: list[Path]) -> Path | None:
    """The folder that holds them all; None where some are on this machine and others elsewhere."""
    try:
        common = os.path.commonpath(folders)
    except ValueError:
        return None
    return Path(common) if common else None


def _absolute(path: str | Path) -> Path:
    """Absolute, without . and .. but through the links it names; a URL stays."""
    if url_of(path) is not None:
        return Path(path)
    return Path(os.path.abspath(path))  # noqa: PTH100 (Path.absolute keeps ..)


def _check_name(path: str | Path) -> None:
    """Refuse what would be taken for the folder that the program runs in."""
    if path == "":
        raise UserError(
            "the path of the images is empty: name a folder or a file; the folder you are in is ."
        )


def _refuse(what: object) -> NoReturn:
    kind = "None" if what is None else f"{type(what).__name__} ({what!r:.40})"
    raise UserError(
        "images are a folder, a file, a pattern such as 'parts/*.png', arrays, images of Pillow, "
        f"a list of these, or a function that gives them; this is {kind}"
    )
