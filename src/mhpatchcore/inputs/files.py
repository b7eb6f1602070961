"""From the name of an image to its content.

    parts/1.png              a file
    parts.zip/good/1.png     a member of an archive, as if that were a folder
    {cam0,cam1}/1.png        a stack: the frames cam0/1.png and cam1/1.png of one part
    line.mp4/000120          a frame of a video (`pixels.py`)
    s3://bucket/1.png        a file elsewhere; s3://bucket/parts.tar/1.png a member of an archive there

All names are texts that can be listed, stored in a model and printed, and that lead back to the image.

Zip and tar archives are read in their place: nothing is unpacked to disk. The table of one is read once; each member is
then found by its offset, so threads and processes read side by side. The names from a table know where their members
lie, so that no other process has to read it again.
"""

from __future__ import annotations

import io
import os
import re
import struct
import tarfile
import zipfile
import zlib
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path, PurePosixPath
from typing import Any, BinaryIO, NamedTuple

from mhpatchcore.errors import ImageError, UserError
from mhpatchcore.runtime.parallel import ordered_map
from mhpatchcore.runtime.urls import READ_ONLY, open_url, read_url, size_and_state, url_of

ARCHIVES = (".zip", ".tar")
UNREAD_ARCHIVES = (".tgz", ".tbz2", ".txz", ".gz", ".bz2", ".xz", ".zst", ".7z", ".rar")
MOST_BYTES = 2**30  # of a member: a few kilobytes can claim to unpack to any number of them
ENCRYPTED = 1  # the flag of a zip's member
# in a zip before the content: the lengths of the name and of the further fields
LOCAL_HEADER = struct.Struct("<26xHH")
NAME_AND_FIELDS = 2048  # bytes of these that are read together with the content
KEPT_TABLES = 8
HIDDEN = (".", "/", "__MACOSX")  # beginnings of parts of the names of members that are left out
STACK = re.compile(r"(.*?)\{([^{}]*,[^{}]*)\}(.*)", re.DOTALL)
MOST_FRAMES = 3  # of a stack
ASKED_AT_ONCE = 8  # of what lies elsewhere: waiting for an answer takes no core
GONE = "gone"
VIDEOS = (".mp4", ".m4v", ".avi", ".mov", ".mkv", ".webm", ".mpg", ".mpeg", ".wmv")


class FetchedFile(str):
    """The name of a file elsewhere together with its content, so that it is asked for once and read several times."""

    content: bytes

    def __new__(cls, name: str, content: bytes = b"") -> FetchedFile:
        made = super().__new__(cls, name)
        made.content = content
        return made


class Place(NamedTuple):
    """Where a member lies in its archive; in a zip it has a header before it, and a checksum."""

    offset: int
    size: int
    packed: int
    method: int = zipfile.ZIP_STORED
    checksum: int | None = None


class MemberName(str):
    """The name of an archive's member that knows where it lies. There may be millions of them."""

    __slots__ = ("archive", "place")
    archive: Path | str
    place: Place

    def __new__(cls, archive: Path | str, inside: str, place: Place) -> MemberName:
        made = super().__new__(cls, f"{archive}/{inside}")
        made.archive, made.place = archive, place
        return made

    @property
    def inside(self) -> str:
        """The member's name in its archive."""
        return self[len(str(self.archive)) + 1 :]

    def __reduce__(self) -> tuple[Any, ...]:
        return MemberName, (self.archive, self.inside, self.place)


def absolute_name(name: str | Path) -> str:
    """The same image by a name that leads to it from anywhere on this machine."""
    if isinstance(name, MemberName):
        return MemberName(absolute(name.archive), name.inside, name.place)
    return str(absolute(name))


def absolute(path: str | Path) -> str | Path:
    """Absolute, without . and .. but through the links it names; a URL stays."""
    return url_of(path) or Path(os.path.abspath(path))  # noqa: PTH100 (Path.absolute keeps ..)


def fetch_file(name: str | Path) -> str | Path:
    """A file elsewhere together with its content; any other name is returned as it is."""
    url = url_of(name)
    if isinstance(name, FetchedFile) or url is None or frames_of(name):
        return name
    with open_bytes(name) as file:
        return FetchedFile(url, file.read())


def open_bytes(name: str | Path, whole: bool = True) -> BinaryIO:
    """The content of a file or of an archive's member, to be read; not as a `whole` if only its beginning is."""
    if isinstance(name, FetchedFile):
        return io.BytesIO(name.content)
    if isinstance(name, MemberName):
        return _open_member(name)
    url = url_of(name)
    if url is not None and archive_of(name) is None:
        if whole or url.startswith(READ_ONLY):  # not every web server gives parts of files
            return io.BytesIO(read_url(url, ImageError))
        return open_url(url, ImageError)
    if url is None:
        if Path(name).exists() and not Path(name).is_file():  # a device or a pipe may have no end
            raise ImageError(f"cannot read image {name}: it is not a file; give images, or folders of them")
        try:
            return Path(name).open("rb")
        except (FileNotFoundError, NotADirectoryError):
            pass
        except OSError as error:
            raise ImageError(f"cannot read image {name}: {error.strerror}; replace or remove it") from error
    member = member_of(name)
    if member is None:
        raise ImageError(f"there is no image {url or name}; check the {'address' if url else 'path'}")
    return _open_member(member)


def frames_of(name: str | Path) -> tuple[str, ...]:
    """The names of a stack's frames; empty for the name of anything else.

    >>> frames_of("line/{cam0,cam1}/a/1.png"), frames_of("1.png")
    (('line/cam0/a/1.png', 'line/cam1/a/1.png'), ())
    """
    match = STACK.fullmatch(str(name))
    if match is None or isinstance(name, FetchedFile) or Path(name).exists():
        return ()
    before, folders, after = match.groups()
    return tuple(f"{before}{folder}{after}" for folder in folders.split(","))


def is_video(path: str | Path) -> bool:
    return Path(path).suffix.lower() in VIDEOS and Path(path).is_file()


def is_frame(name: str | Path) -> bool:
    """Whether a name is that of a video's frame, such as line.mp4/000120."""
    path = Path(name)
    return path.name.isdecimal() and is_video(path.parent)


def is_file(name: str | Path) -> bool:
    """Whether a name leads to a file, or a member of an archive, on this machine."""
    return Path(name).is_file() or member_of(name) is not None


def members_of(path: str | Path) -> list[MemberName]:
    """The names of the files in an archive, sorted, without hidden ones."""
    return list(_table(url_of(path) or Path(path)).values())


def member_of(name: str | Path) -> MemberName | None:
    """The member that a name such as parts.zip/good/1.png stands for; None if for nothing."""
    archive = archive_of(name)
    return _table(archive).get(Path(name).relative_to(archive).as_posix()) if archive else None


def archive_of(name: str | Path) -> Path | str | None:
    """The archive that a name is of a member of; a URL's by its looks, where hosts and buckets are not archives.

    >>> archive_of("https://example.zip/parts.tar/1.png"), archive_of("https://example.zip/1.png")
    ('https://example.zip/parts.tar', None)
    """
    above = [one for one in Path(name).parents if one.suffix.lower() in ARCHIVES]
    if url_of(name) is None:
        return next((one for one in above if one.is_file()), None)
    return next((url_of(one) for one in reversed(above) if len(one.parts) > 2), None)


def _open_member(name: MemberName) -> BinaryIO:
    place = name.place
    try:
        if place.size > MOST_BYTES:
            raise ValueError(f"it takes {place.size / 1e9:.1f} GB, more than is read from an archive")
        content = _packed(name.archive, place)
        if place.method == zipfile.ZIP_DEFLATED:
            content = zlib.decompressobj(-zlib.MAX_WBITS).decompress(content, place.size)
        if len(content) != place.size or place.checksum not in (None, zlib.crc32(content)):
            raise ValueError("its checksum is wrong")
    except (OSError, ValueError, struct.error, zlib.error) as error:
        raise ImageError(
            f"cannot read image {name}: {error}; unpack the archive, or pack it again"
        ) from error
    return io.BytesIO(content)


def _packed(archive: Path | str, place: Place) -> bytes:
    """A member's bytes as they lie in the archive, by one read."""

    def span(start: int, size: int) -> bytes:
        if isinstance(archive, str):
            return read_url(archive, ImageError, start, start + size)
        with archive.open("rb") as file:
            file.seek(start)
            return file.read(size)

    if place.checksum is None:
        return span(place.offset, place.packed)
    block = span(place.offset, LOCAL_HEADER.size + NAME_AND_FIELDS + place.packed)
    start = LOCAL_HEADER.size + sum(LOCAL_HEADER.unpack_from(block))
    if start + place.packed > len(block):  # a longer header than is usual
        return span(place.offset + start, place.packed)
    return block[start : start + place.packed]


def _table(archive: Path | str) -> dict[str, MemberName]:
    """The members of an archive by their names in it, sorted."""
    if isinstance(archive, str):
        return _read_table(archive, str(size_and_state(archive)))
    status = archive.stat()
    return _read_table(archive, f"{status.st_mtime_ns} {status.st_size}")


@lru_cache(maxsize=KEPT_TABLES)
def _read_table(archive: Path | str, state: str) -> dict[str, MemberName]:
    """`_table` of an archive as it was in this state, without hidden members and those outside of it."""
    try:
        with open_url(archive) if isinstance(archive, str) else archive.open("rb") as file:
            places = _places(file, Path(archive).suffix.lower())
    except UserError:
        raise
    except Exception as error:  # damaged archives raise nearly anything
        raise UserError(
            f"cannot read archive {archive}: {error}; unpack it, or pack the images as .zip or as plain .tar"
        ) from error
    hidden = {name for name in places if any(one.startswith(HIDDEN) for one in PurePosixPath(name).parts)}
    return {
        name: MemberName(archive, name, places[name])
        for name in sorted(places.keys() - hidden, key=PurePosixPath)
    }


def _places(file: BinaryIO, suffix: str) -> dict[str, Place]:
    if suffix == ".tar":
        with tarfile.open(fileobj=file, mode="r:") as tar:
            infos = [info for info in tar if info.isreg() and not info.issparse()]
        return {one.name.removeprefix("./"): Place(one.offset_data, one.size, one.size) for one in infos}
    if suffix != ".zip":
        raise ValueError("it can only be read from the beginning to the end")
    with zipfile.ZipFile(file) as packed:
        members = [info for info in packed.infolist() if not info.is_dir()]
    for one in members:
        if one.flag_bits & ENCRYPTED or one.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            raise ValueError(f"it is encrypted or compressed in an unusual way ({one.filename})")
    return {
        one.filename: Place(one.header_offset, one.file_size, one.compress_size, one.compress_type, one.CRC)
        for one in members
    }


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
    if isinstance(name, MemberName):
        return str(name.archive)
    if is_frame(name):
        return str(Path(name).parent)
    here = url_of(name) is None and Path(name).exists()
    return str((None if here else archive_of(name)) or url_of(name) or name)


def _state(file: str) -> str:
    try:
        if url_of(file) is not None:
            found = size_and_state(file)
            return GONE if found is None else found[1]
        status = Path(file).stat()
    except (OSError, UserError):  # whoever reads it reports what is wrong
        return GONE
    return f"{status.st_size} {status.st_mtime_ns}"
