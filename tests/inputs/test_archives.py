"""Zip and tar archives, read in their place."""

from __future__ import annotations

import io
import tarfile
import zipfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from pictures import picture
from PIL import Image

from mhpatchcore.errors import ImageError, UserError
from mhpatchcore.inputs import files
from mhpatchcore.inputs.loading import load_pixels
from mhpatchcore.inputs.places import images_below, is_there
from mhpatchcore.inputs.sources import content_hash, gather, list_images, single_image

NAMES = ("2.png", "good/1.png", "good/deep/3.JPG")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for i, name in enumerate((*NAMES, ".hidden.png", "__MACOSX/x.png", "notes.txt")):
        path = tmp_path / "parts" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        pixels = np.roll(picture(), i, axis=0)
        Image.fromarray(pixels).save(path) if path.suffix != ".txt" else path.write_text("no image")
    return tmp_path / "parts"


def zipped(folder: Path, method: int = zipfile.ZIP_DEFLATED) -> Path:
    path = folder.with_suffix(".zip")
    with zipfile.ZipFile(path, "w", method) as archive:
        for file in sorted(folder.rglob("*")):
            archive.write(file, file.relative_to(folder))
    return path


def tarred(folder: Path) -> Path:
    path = folder.with_suffix(".tar")
    with tarfile.open(path, "w") as archive:
        archive.add(folder, ".")
    return path


@pytest.mark.parametrize("pack", [zipped, lambda folder: zipped(folder, zipfile.ZIP_STORED), tarred])
def test_an_archive_is_like_its_folder(folder: Path, pack: Callable[[Path], Path]) -> None:
    archive = pack(folder)
    found = gather(archive)
    assert found.names == NAMES and found.source == str(archive)
    assert list_images(archive) == [f"{archive}/{name}" for name in NAMES]
    for name in NAMES:
        assert content_hash(archive / name) == content_hash(folder / name)
        assert np.array_equal(load_pixels(archive / name), load_pixels(folder / name))
        assert is_there(archive / name) and single_image(archive / name) == archive / name
    assert not is_there(archive / "good/7.png") and single_image(archive) is None
    with pytest.raises(ImageError, match=r"there is no image .*good/7\.png"):
        content_hash(archive / "good/7.png")
    assert sorted(path.name for path in folder.parent.iterdir()) == [
        "parts",
        archive.name,
    ]  # nothing is unpacked


def test_threads_read_side_by_side(folder: Path) -> None:
    archive = zipped(folder)
    expected = [content_hash(folder / name) for name in NAMES]
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda i: content_hash(archive / NAMES[i % 3]), range(300)))
    assert found == expected * 100


def test_an_archive_that_was_replaced_is_read_anew(folder: Path) -> None:
    archive = zipped(folder)
    assert len(list_images(archive)) == 3
    (folder / "2.png").unlink()
    zipped(folder)
    assert len(list_images(archive)) == 2


def test_links_and_paths_out_of_an_archive_are_left_out(tmp_path: Path) -> None:
    buffer = io.BytesIO()
    Image.fromarray(picture()).save(buffer, "PNG")
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        for name in ("../out.png", "/etc/out.png", "in.png"):
            archive.writestr(name, buffer.getvalue())
    assert list_images(tmp_path / "a.zip") == [f"{tmp_path}/a.zip/in.png"]
    with tarfile.open(tmp_path / "a.tar", "w") as archive:
        link = tarfile.TarInfo("link.png")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
        archive.addfile(link)
    with pytest.raises(UserError, match=r"no images in .*a\.tar"):
        list_images(tmp_path / "a.tar")


def test_damage_is_named(folder: Path) -> None:
    archive = zipped(folder, zipfile.ZIP_STORED)
    content = bytearray(archive.read_bytes())
    content[content.index(b"IDAT", content.index(b"2.png")) + 20] ^= 1
    archive.write_bytes(content)
    with pytest.raises(ImageError, match=r"cannot read image .*parts\.zip/2\.png: its checksum is wrong"):
        content_hash(archive / "2.png")
    archive.write_bytes(b"no archive")
    with pytest.raises(UserError, match=r"cannot read archive .*parts\.zip"):
        list_images(archive)


@pytest.mark.parametrize("name", ["parts.tar.gz", "parts.tgz", "parts.7z", "parts.rar"])
def test_archives_that_are_only_read_in_order_are_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(b"whatever")
    with pytest.raises(UserError, match=r"unpack it, or pack the images as \.zip or as plain \.tar"):
        list_images(tmp_path / name)


def test_unusual_compression_and_encryption_are_refused(folder: Path) -> None:
    with pytest.raises(UserError, match="compressed in an unusual way"):
        list_images(zipped(folder, zipfile.ZIP_BZIP2))
    archive = zipped(folder)
    content = bytearray(archive.read_bytes())
    content[content.rindex(b"2.png") - 46 + 8] |= 1  # the flags in its entry of the table
    archive.write_bytes(content)
    with pytest.raises(UserError, match=r"is encrypted .*unpack it"):
        list_images(archive)


def test_a_member_that_claims_to_be_huge_is_refused(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    archive = zipped(folder)
    monkeypatch.setattr(files, "MOST_BYTES", 100)
    with pytest.raises(ImageError, match=r"2\.png: it takes .* GB, .*unpack the archive"):
        content_hash(archive / "2.png")


def test_archives_within_folders_are_not_opened(folder: Path) -> None:
    zipped(folder).rename(folder / "more.zip")
    assert not [path for path in images_below(folder) if "more.zip" in path.parts]
