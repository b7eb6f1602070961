"""Archives of images: names that lead elsewhere, members that unpack to anything, tables that lie."""

from __future__ import annotations

import io
import struct
import tarfile
import zipfile
from pathlib import Path

import numpy as np
from PIL import Image
from recipes import Recipes

from mhpatchcore.inputs.loading import load_views
from mhpatchcore.inputs.sources import content_hash, list_images
from mhpatchcore.inputs.views import View


def used(path: Path) -> None:
    """Read every image of the archive."""
    for image in list_images(path):
        content_hash(image)
        load_views(image, [View(64, 64)])


ARCHIVES = Recipes(used)


def picture() -> bytes:
    buffer = io.BytesIO()
    Image.fromarray(np.full((64, 64, 3), 99, np.uint8)).save(buffer, "PNG")
    return buffer.getvalue()


def zipped(folder: Path, members: dict[str, bytes], compression: int = zipfile.ZIP_DEFLATED) -> Path:
    path = folder / "hostile.zip"
    with zipfile.ZipFile(path, "w", compression) as file:
        for name, content in members.items():
            file.writestr(name, content)
    return path


@ARCHIVES.refused
def members_that_lie_outside(folder: Path) -> Path:
    return zipped(folder, {"../../outside.png": picture(), "/etc/outside.png": picture()})


@ARCHIVES.refused
def a_member_that_unpacks_to_far_more_than_it_says(folder: Path) -> Path:
    path = zipped(folder, {"a.png": b"\0" * 10**8})
    content = bytearray(path.read_bytes())
    at = content.rindex(b"PK\x01\x02")
    content[at + 24 : at + 28] = struct.pack("<I", 1000)
    path.write_bytes(content)
    return path


@ARCHIVES.refused
def a_member_that_says_four_gigabytes(folder: Path) -> Path:
    path = zipped(folder, {"a.png": picture()})
    content = bytearray(path.read_bytes())
    at = content.rindex(b"PK\x01\x02")
    content[at + 24 : at + 28] = struct.pack("<I", 2**32 - 2)
    path.write_bytes(content)
    return path


@ARCHIVES.refused
def a_member_that_begins_behind_the_end(folder: Path) -> Path:
    path = zipped(folder, {"a.png": picture()})
    content = bytearray(path.read_bytes())
    at = content.rindex(b"PK\x01\x02")
    content[at + 42 : at + 46] = struct.pack("<I", 2**31)
    path.write_bytes(content)
    return path


@ARCHIVES.refused
def an_archive_within_an_archive(folder: Path) -> Path:
    inner = zipped(folder, {"a.png": picture()}).read_bytes()
    return zipped(folder, {"inner.zip": inner})


@ARCHIVES.harmless
def a_hundred_members(folder: Path) -> Path:
    return zipped(folder, {f"{i}.png": picture() for i in range(100)})


@ARCHIVES.refused
def links_and_devices(folder: Path) -> Path:
    path = folder / "hostile.tar"
    with tarfile.open(path, "w") as file:
        for name, kind, target in (
            ("link.png", tarfile.SYMTYPE, "/etc/passwd"),
            ("device.png", tarfile.CHRTYPE, ""),
            ("pipe.png", tarfile.FIFOTYPE, ""),
        ):
            info = tarfile.TarInfo(name)
            info.type, info.linkname = kind, target
            file.addfile(info)
    return path


@ARCHIVES.refused
def a_tar_that_says_a_terabyte(folder: Path) -> Path:
    path = folder / "hostile.tar"
    info = tarfile.TarInfo("a.png")
    info.size = 10**12
    path.write_bytes(info.tobuf(tarfile.GNU_FORMAT) + b"\0" * 4096)
    return path


@ARCHIVES.refused
def something_else_called_zip(folder: Path) -> Path:
    path = folder / "hostile.zip"
    path.write_bytes(b"PK\x03\x04" + b"\xff" * 1000)
    return path
