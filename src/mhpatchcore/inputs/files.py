"""Names of images, and the one place where a name becomes bytes.

    parts/1.png              a file
    parts.zip/good/1.png     a member of an archive, as if that were a folder
    {cam0,cam1}/1.png        a stack: the frames cam0/1.png and cam1/1.png of one part
    line.mp4/000120          a frame of a video (`sequences.py`)
    s3://bucket/1.png        a file elsewhere; s3://bucket/parts.tar/1.png a member of an archive there

All of them are texts that can be listed, stored in a model and printed, and that lead back to the image.
"""

from __future__ import annotations

import glob
import io
import os
import re
from collections.abc import Callable, Sequence
from itertools import takewhile
from pathlib import Path
from typing import Any, BinaryIO

from mhpatchcore.errors import ImageError, UserError
from mhpatchcore.inputs import archives
from mhpatchcore.inputs.sequences import is_frame, is_video
from mhpatchcore.runtime.parallel import ordered_map
from mhpatchcore.runtime.urls import READ_ONLY, open_url, read_url, size_and_state, url_of

STACK = re.compile(r"(.*?)\{([^{}]*,[^{}]*)\}(.*)", re.DOTALL)
RANGE = re.compile(r"(.*?)\{(\d+)\.\.(\d+)\}(.*)", re.DOTALL)
MOST_NAMES = 1_000_000  # that a range stands for
ASKED_AT_ONCE = 8
GONE = "gone"
MOST_FRAMES = 3  # of a stack
SPECIAL = ("{", "}", ",")  # in the name of a stack


class FetchedFile(str):
    """The name of a file elsewhere together with its content, so that it is asked for once and read several times."""

    content: bytes

    def __new__(cls, name: str, content: bytes) -> FetchedFile:
        made = super().__new__(cls, name)
        made.content = content
        return made

    def __reduce__(self) -> tuple[Any, ...]:
        return FetchedFile, (str(self), self.content)


def fetch_file(name: str | Path) -> str | Path:
    """A file elsewhere together with its content; any other name is returned as it is."""
    url = url_of(name)
    if isinstance(name, FetchedFile) or url is None or frames_of(name):
        return name
    with open_bytes(name) as file:
        return FetchedFile(url, file.read())


def absolute_name(name: str | Path) -> str:
    """The same image by a name that leads to it from anywhere on this machine."""
    if isinstance(name, archives.MemberName):
        place = name.archive if isinstance(name.archive, str) else Path(os.path.abspath(name.archive))  # noqa: PTH100
        return archives.MemberName(place, name.inside, name.member)
    return url_of(name) or os.path.abspath(name)  # noqa: PTH100 (Path.absolute keeps ..)


def open_bytes(name: str | Path, whole: bool = True) -> BinaryIO:
    """The content of a file or of an archive's member, to be read; not as a `whole` if only its beginning is."""
    if isinstance(name, FetchedFile):
        return io.BytesIO(name.content)
    if isinstance(name, archives.MemberName):
        return archives.open_member(name.archive, name.inside, name.member)
    url = url_of(name)
    if url is not None:
        return _open_url(url, whole)
    if Path(name).exists() and not Path(name).is_file():  # a device or a pipe may have no end
        raise ImageError(f"cannot read image {name}: it is not a file; give images, or folders of them")
    try:
        return Path(name).open("rb")
    except (FileNotFoundError, NotADirectoryError):
        found = archives.within(name)
        if found is None:
            raise ImageError(f"there is no image {name}; check the path") from None
        return archives.open_member(*found)
    except OSError as error:
        raise ImageError(f"cannot read image {name}: {error.strerror}; replace or remove it") from error


def _open_url(url: str, whole: bool) -> BinaryIO:
    if archives.archive_of(url) is not None:
        found = archives.within(url)
        if found is None:
            raise ImageError(f"there is no image {url}; check the address")
        return archives.open_member(*found)
    if whole or url.startswith(READ_ONLY):  # not every web server gives parts of files
        return io.BytesIO(read_url(url, ImageError))
    return open_url(url, ImageError)


def is_file(name: str | Path) -> bool:
    """Whether a name leads to bytes on this machine: places elsewhere, which a model may name, are not contacted."""
    return url_of(name) is None and (Path(name).is_file() or archives.within(name) is not None)


def is_pattern(path: str | Path) -> bool:
    """Whether it is something like parts/*.png or shard-{000..099}.tar, and not the name of a file."""
    if RANGE.fullmatch(str(path)):
        return not Path(path).exists()
    url = url_of(path)
    if url is not None:
        return glob.has_magic(url) and not url.startswith(READ_ONLY)  # where ? begins a query
    return glob.has_magic(str(path)) and not Path(path).exists()


def ranged(name: str) -> list[str]:
    """The names that one with a range of numbers stands for; the name alone where it has none.

    >>> ranged("shard-{008..010}.tar")
    ['shard-008.tar', 'shard-009.tar', 'shard-010.tar']
    """
    match = RANGE.fullmatch(name)
    if match is None:
        return [name]
    before, first, last, after = match.groups()
    if not 0 <= int(last) - int(first) < MOST_NAMES:
        raise UserError(f"{name} has no such range: write the smaller number first, for example {{000..099}}")
    return [
        one
        for number in range(int(first), int(last) + 1)
        for one in ranged(f"{before}{number:0{len(first)}d}{after}")
    ]


def stack_name(folders: Sequence[str | Path], name: str) -> str:
    """The frames of one name in several folders, as one name.

    >>> stack_name(["line/cam0", "line/cam1"], "a/1.png")
    'line/{cam0,cam1}/a/1.png'
    """
    places = [os.path.normpath(folder) for folder in folders]
    if any(place.startswith((os.pardir, os.sep)) for place in places):
        places = [os.path.abspath(place) for place in places]  # noqa: PTH100 (Path.absolute keeps ..)
    common = os.path.commonpath(places)
    group = ",".join(os.path.relpath(place, common or os.curdir) for place in places)
    return os.path.join(common, f"{{{group}}}", name)  # noqa: PTH118 (a text)


def frames_of(name: str | Path) -> tuple[str, ...]:
    """The names of a stack's frames; empty for the name of anything else.

    >>> frames_of("line/{cam0,cam1}/a/1.png"), frames_of("1.png")
    (('line/cam0/a/1.png', 'line/cam1/a/1.png'), ())
    """
    match = STACK.fullmatch(str(name))
    if match is None or Path(name).exists():
        return ()
    before, folders, after = match.groups()
    return tuple(f"{before}{folder}{after}" for folder in folders.split(","))


def states_of(names: Sequence[str | Path]) -> list[str]:
    """For each image a text that changes when its file does, by size and time of change, as `make` does it.

    Nothing is read. The server of a file elsewhere is asked for them (object stores give a checksum). An archive's
    member changes with its archive, a frame with its video, a stack with any of its frames.
    """
    files = [[_file_of(frame) for frame in frames_of(name) or (name,)] for name in names]
    every = list(dict.fromkeys(file for some in files for file in some))
    known = dict(zip(every, ordered_map(_state, every, ASKED_AT_ONCE), strict=True))
    return [" ".join(known[file] for file in some) for some in files]


def _file_of(name: str | Path) -> str:
    """What holds an image's bytes."""
    if isinstance(name, archives.MemberName):
        return str(name.archive)
    if url_of(name) is not None:
        return archives.archive_of(name) or str(url_of(name))
    if is_frame(name):
        return str(Path(name).parent)
    found = None if Path(name).exists() else archives.within(name)
    return str(name if found is None else found[0])


def _state(file: str) -> str:
    try:
        if url_of(file) is not None:
            found = size_and_state(file)
            return GONE if found is None else found[1]
        status = Path(file).stat()
    except (OSError, UserError):  # whoever reads it reports what is wrong
        return GONE
    return f"{status.st_size} {status.st_mtime_ns}"


def check_frames(n: int) -> None:
    """Refuse a number of frames that no stack has."""
    if not 2 <= n <= MOST_FRAMES:
        raise UserError(
            f"a stack takes two or three folders, or patterns in quotes such as 'cam0/*.png', not {n}"
        )


def matched(places: Sequence[str], listed: Callable[[str], list[str]]) -> list[str]:
    """The names, relative to their places, that all of these have; a frame that is missing somewhere is an error."""
    names = [_names(place, listed(place)) for place in places]
    for i, one in enumerate(names):
        for j, other in enumerate(names):
            missing = [name for name in one if name not in other]
            if missing:
                more = f" (and {len(missing) - 1} more)" if len(missing) > 1 else ""
                raise UserError(
                    f"{places[j]} has no frame {missing[0]}{more}, which {places[i]} has: add it, or remove the others"
                )
    return list(names[0])


def folder_of(place: str) -> Path:
    """What names are relative to: a folder or archive, the folder of an image, or what comes before a pattern's magic.

    >>> str(folder_of("line/cam0/*/part*.png"))
    'line/cam0'
    """
    path = Path(place)
    if is_pattern(place):
        return Path(*takewhile(lambda part: not glob.has_magic(part), path.parts))
    return path.parent if path.is_file() and not (archives.is_archive(path) or is_video(path)) else path


def _names(place: str, images: list[str]) -> dict[str, None]:
    """The names of the images at a place, in their order."""
    folder = folder_of(place)
    names = [os.path.relpath(image, folder) for image in images]
    for name in (place, *names):
        if any(letter in name for letter in SPECIAL):
            raise UserError(f"{name} cannot be part of a stack: rename it without commas and braces")
    return dict.fromkeys(names)
