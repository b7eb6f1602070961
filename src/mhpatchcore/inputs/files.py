"""Names of images, and the one place where a name becomes bytes.

    parts/1.png              a file
    parts.zip/good/1.png     a member of an archive, as if that were a folder
    {cam0,cam1}/1.png        a stack: the frames cam0/1.png and cam1/1.png of one part
    line.mp4/000120          a frame of a video (`video.py`)

All of them are texts that can be listed, stored in a model and printed, and that lead back to the image.
"""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import BinaryIO

from mhpatchcore.errors import ImageError
from mhpatchcore.inputs import archives

STACK = re.compile(r"(.*?)\{([^{}]*,[^{}]*)\}(.*)", re.DOTALL)


def open_bytes(name: str | Path) -> BinaryIO:
    """The content of a file or of an archive's member, to be read."""
    if Path(name).exists() and not Path(name).is_file():  # a device or a pipe may have no end
        raise ImageError(f"cannot read image {name}: it is no file; give images, or folders of them")
    try:
        return Path(name).open("rb")
    except (FileNotFoundError, NotADirectoryError):
        found = archives.within(name)
        if found is None:
            raise ImageError(f"there is no image {name}") from None
        return archives.open_member(*found)
    except OSError as error:
        raise ImageError(f"cannot read image {name}: {error.strerror}; replace or remove it") from error


def is_file(name: str | Path) -> bool:
    """Whether a name leads to bytes."""
    return Path(name).is_file() or archives.within(name) is not None


def is_pattern(path: str | Path) -> bool:
    """Whether it is something like parts/*.png, and not the name of a file."""
    return glob.has_magic(str(path)) and not Path(path).exists()


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
    """The names of a stack's frames; none if it is no stack.

    >>> frames_of("line/{cam0,cam1}/a/1.png"), frames_of("1.png")
    (('line/cam0/a/1.png', 'line/cam1/a/1.png'), ())
    """
    match = STACK.fullmatch(str(name))
    if match is None or Path(name).exists():
        return ()
    before, folders, after = match.groups()
    return tuple(f"{before}{folder}{after}" for folder in folders.split(","))
