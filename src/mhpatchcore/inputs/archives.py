"""Images in a zip or tar archive, read in their place: nothing is unpacked to disk.

A member is named as if the archive were a folder: parts.zip/good/1.png. An archive's table is read once; each member
is then found by its offset, so threads and processes read side by side.
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
from typing import BinaryIO

from mhpatchcore.errors import ImageError, UserError

ARCHIVES = (".zip", ".tar")
# only from the beginning to the end
UNREAD_ARCHIVES = (".tgz", ".tbz2", ".txz", ".gz", ".bz2", ".xz", ".zst", ".7z", ".rar")
MOST_BYTES = 2**30  # of a member: a few kilobytes can claim to unpack to any number of them
ENCRYPTED = 1  # the flag of a zip's member
LOCAL_HEADER = struct.Struct("<26xHH")  # lengths of the name and of what follows it, before the content


@dataclass(frozen=True)
class Member:
    """Where a file lies in its archive; a zip's has a header before it and a checksum."""

    offset: int
    size: int
    packed: int
    method: int = zipfile.ZIP_STORED
    checksum: int | None = None


def is_archive(path: str | Path) -> bool:
    return Path(path).suffix.lower() in (*ARCHIVES, *UNREAD_ARCHIVES) and Path(path).is_file()


def member_names(path: str | Path) -> list[str]:
    """The files in an archive, sorted, without hidden ones."""
    return sorted(_table(Path(path)), key=PurePosixPath)


def within(name: str | Path) -> tuple[Path, str] | None:
    """The archive and its member that a name such as parts.zip/good/1.png stands for; None if for nothing."""
    path = Path(name)
    for archive in path.parents:
        if archive.suffix.lower() in ARCHIVES and archive.is_file():
            member = path.relative_to(archive).as_posix()
            return (archive, member) if member in _table(archive) else None
    return None


def open_member(archive: Path, name: str) -> BinaryIO:
    """A member's content, to be read."""
    member = _table(archive)[name]
    if member.size > MOST_BYTES:
        raise ImageError(
            f"{archive / name} takes {member.size / 1e9:.1f} GB, more than is read from an archive: unpack it"
        )
    try:
        with archive.open("rb") as file:
            file.seek(member.offset)
            if member.checksum is not None:
                file.seek(sum(LOCAL_HEADER.unpack(file.read(LOCAL_HEADER.size))), io.SEEK_CUR)
            content = file.read(member.packed)
        if member.method == zipfile.ZIP_DEFLATED:
            content = zlib.decompressobj(-zlib.MAX_WBITS).decompress(content, member.size)
    except (OSError, struct.error, zlib.error) as error:
        raise _damaged(archive / name, error) from error
    if len(content) != member.size or member.checksum not in (None, zlib.crc32(content)):
        raise _damaged(archive / name, "its checksum is wrong")
    return io.BytesIO(content)


def _table(archive: Path) -> dict[str, Member]:
    status = archive.stat()
    return _read_table(archive, status.st_mtime_ns, status.st_size)


@lru_cache(maxsize=8)
def _read_table(archive: Path, changed: int, size: int) -> dict[str, Member]:
    """The members of an archive, as it was when it was `changed`."""
    if archive.suffix.lower() in UNREAD_ARCHIVES:
        raise UserError(
            f"{archive} cannot be read image by image: unpack it, or pack the images as .zip or as plain .tar"
        )
    try:
        return _zip_table(archive) if archive.suffix.lower() == ".zip" else _tar_table(archive)
    except UserError:
        raise
    except Exception as error:  # damaged archives raise nearly anything
        raise UserError(f"cannot read archive {archive}: {error}; pack it again") from error


def _zip_table(archive: Path) -> dict[str, Member]:
    with zipfile.ZipFile(archive) as packed:
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


def _tar_table(archive: Path) -> dict[str, Member]:
    with tarfile.open(archive, "r:") as packed:
        infos = [info for info in packed if info.isreg() and not info.issparse()]
    names = [(info.name.removeprefix("./"), info) for info in infos]
    return {name: Member(info.offset_data, info.size, info.size) for name, info in names if _is_plain(name)}


def _is_plain(name: str) -> bool:
    """Neither hidden nor outside of the archive."""
    parts = PurePosixPath(name).parts
    return not name.startswith("/") and not any(part.startswith((".", "__MACOSX")) for part in parts)


def _damaged(name: Path, why: object) -> ImageError:
    return ImageError(f"cannot read image {name}: {why}; pack the archive again")
