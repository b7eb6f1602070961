"""Images in a zip or tar archive, read in their place: nothing is unpacked to disk.

A member is named as if the archive were a folder: parts.zip/good/1.png. An archive's table is read once; each member
is then found by its offset, so threads and processes read side by side. Of an archive elsewhere (s3://bucket/parts.tar)
only the table and the members are asked for; its names know where their members lie, so that no other process has to
read the table again.
"""

from __future__ import annotations

import io
import struct
import tarfile
import zipfile
import zlib
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path, PurePosixPath
from typing import Any, BinaryIO

from mhpatchcore.errors import ImageError, UserError
from mhpatchcore.runtime.urls import open_url, read_url, size_and_state, url_of

ARCHIVES = (".zip", ".tar")
# only from the beginning to the end
UNREAD_ARCHIVES = (".tgz", ".tbz2", ".txz", ".gz", ".bz2", ".xz", ".zst", ".7z", ".rar")
MOST_BYTES = 2**30  # of a member: a few kilobytes can claim to unpack to any number of them
ENCRYPTED = 1  # the flag of a zip's member
LOCAL_HEADER = struct.Struct(
    "<26xHH"
)  # lengths of the name and of the further fields that come before the content
NAME_AND_FIELDS = 2048  # bytes of these that are read together with the content
KEPT_TABLES = 8


@dataclass(frozen=True, slots=True)
class Member:
    """Where a file lies in its archive; in a zip it has a header before it, and a checksum.

    It is smaller than the classes of `zipfile` and `tarfile`, and is read without the table of its archive.
    """

    offset: int
    size: int
    packed: int
    method: int = zipfile.ZIP_STORED
    checksum: int | None = None


class MemberName(str):
    """The name of an archive's member that knows where it lies. There may be millions of them."""

    __slots__ = ("archive", "member")
    archive: Path | str
    member: Member

    def __new__(cls, archive: Path | str, inside: str, member: Member) -> MemberName:
        made = super().__new__(cls, f"{archive}/{inside}")
        made.archive, made.member = archive, member
        return made

    @property
    def inside(self) -> str:
        """The member's name in its archive."""
        return self[len(str(self.archive)) + 1 :]

    def __reduce__(self) -> tuple[Any, ...]:
        return MemberName, (self.archive, self.inside, self.member)


def is_archive(path: str | Path) -> bool:
    return has_archive_suffix(path) and (url_of(path) is not None or Path(path).is_file())


def has_archive_suffix(path: str | Path) -> bool:
    return Path(path).suffix.lower() in (*ARCHIVES, *UNREAD_ARCHIVES)


def members_of(path: str | Path) -> list[MemberName]:
    """The names of the files in an archive, sorted, without hidden ones."""
    archive = url_of(path) or Path(path)
    table = _table(archive)
    return [MemberName(archive, name, table[name]) for name in sorted(table, key=PurePosixPath)]


def within(name: str | Path) -> tuple[Path | str, str] | None:
    """The archive and its member that a name such as parts.zip/good/1.png stands for; None if for nothing."""
    archive = archive_of(name) if url_of(name) else _archive_here(name)
    if archive is None:
        return None
    member = Path(name).relative_to(archive).as_posix()
    return (archive, member) if member in _table(archive) else None


def archive_of(url: str | Path) -> str | None:
    """The archive that a URL names a member of, by its looks; hosts and buckets are not archives.

    >>> archive_of("https://example.zip/parts.tar/1.png"), archive_of("https://example.zip/1.png")
    ('https://example.zip/parts.tar', None)
    """
    above = (one for one in reversed(Path(url).parents) if len(one.parts) > 2)
    return next((url_of(one) for one in above if one.suffix.lower() in ARCHIVES), None)


def _archive_here(name: str | Path) -> Path | None:
    return next((one for one in Path(name).parents if one.suffix.lower() in ARCHIVES and one.is_file()), None)


def open_member(archive: Path | str, name: str, member: Member | None = None) -> BinaryIO:
    """A member's content, to be read."""
    member = member or _table(archive)[name]
    whole = f"{archive}/{name}"
    if member.size > MOST_BYTES:
        raise ImageError(
            f"{whole} takes {member.size / 1e9:.1f} GB, more than is read from an archive: unpack it"
        )
    try:
        content = _packed(archive, member)
        if member.method == zipfile.ZIP_DEFLATED:
            content = zlib.decompressobj(-zlib.MAX_WBITS).decompress(content, member.size)
    except (OSError, struct.error, zlib.error) as error:
        raise _damaged(whole, error) from error
    if len(content) != member.size or member.checksum not in (None, zlib.crc32(content)):
        raise _damaged(whole, "its checksum is wrong")
    return io.BytesIO(content)


def _packed(archive: Path | str, member: Member) -> bytes:
    """A member's bytes as they lie in the archive, by one read."""
    if member.checksum is None:
        return _span(archive, member.offset, member.offset + member.packed)
    end = member.offset + LOCAL_HEADER.size + NAME_AND_FIELDS + member.packed
    block = _span(archive, member.offset, end)
    start = LOCAL_HEADER.size + sum(LOCAL_HEADER.unpack_from(block))
    if start + member.packed > len(block):  # a longer header than is usual
        return _span(archive, member.offset + start, member.offset + start + member.packed)
    return block[start : start + member.packed]


def _span(archive: Path | str, start: int, stop: int) -> bytes:
    if isinstance(archive, str):
        return read_url(archive, ImageError, start, stop)
    with archive.open("rb") as file:
        file.seek(start)
        return file.read(stop - start)


def _table(archive: Path | str) -> dict[str, Member]:
    if isinstance(archive, str):
        found = size_and_state(archive)
        if found is None:
            raise UserError(f"there is no archive {archive}; check the address")
        return _read_table(archive, found[1])
    status = archive.stat()
    return _read_table(archive, f"{status.st_mtime_ns} {status.st_size}")


@lru_cache(maxsize=KEPT_TABLES)
def _read_table(archive: Path | str, state: str) -> dict[str, Member]:
    """The members of an archive, as it was in this state."""
    suffix = Path(archive).suffix.lower()
    if suffix in UNREAD_ARCHIVES:
        raise UserError(
            f"{archive} cannot be read image by image: unpack it, or pack the images as .zip or as plain .tar"
        )
    try:
        with open_url(archive) if isinstance(archive, str) else archive.open("rb") as file:
            return _zip_table(file, archive) if suffix == ".zip" else _tar_table(file)
    except UserError:
        raise
    except Exception as error:  # damaged archives raise nearly anything
        raise UserError(f"cannot read archive {archive}: {error}; pack it again") from error


def _zip_table(file: BinaryIO, archive: Path | str) -> dict[str, Member]:
    with zipfile.ZipFile(file) as packed:
        infos = [info for info in packed.infolist() if not info.is_dir() and _is_plain(info.filename)]
    for info in infos:
        if info.flag_bits & ENCRYPTED:
            raise UserError(f"{archive} is encrypted ({info.filename}): unpack it")
        if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            raise UserError(
                f"{archive} is compressed in an unusual way ({info.filename}): pack it again as plain zip"
            )
    return {
        info.filename: Member(
            info.header_offset, info.file_size, info.compress_size, info.compress_type, info.CRC
        )
        for info in infos
    }


def _tar_table(file: BinaryIO) -> dict[str, Member]:
    with tarfile.open(fileobj=file, mode="r:") as packed:
        infos = [info for info in packed if info.isreg() and not info.issparse()]
    names = [(info.name.removeprefix("./"), info) for info in infos]
    return {name: Member(info.offset_data, info.size, info.size) for name, info in names if _is_plain(name)}


def _is_plain(name: str) -> bool:
    """Neither hidden nor outside of the archive."""
    parts = PurePosixPath(name).parts
    return not name.startswith("/") and not any(part.startswith((".", "__MACOSX")) for part in parts)


def _damaged(name: str, why: object) -> ImageError:
    return ImageError(f"cannot read image {name}: {why}; pack the archive again")
