"""Where images come from: folders, files, lists and arrays, and what they are called."""

from __future__ import annotations

import io
import os
from itertools import repeat
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from mhpatchcore.errors import ImageError, ImageWarning, UserError
from mhpatchcore.inputs.places import images_below
from mhpatchcore.inputs.sources import (
    FROM_PYTHON,
    content_hash,
    each_image,
    gather,
    list_images,
    pixels_of,
    single_image,
)


def test_a_folder_is_listed_sorted_and_deep_without_hidden_files(tmp_path: Path) -> None:
    wanted = ["b/2.JPG", "a.png", "b/1.tiff", "b/deep/3.bmp"]
    for name in [*wanted, ".hidden.png", ".cache/x.png", "b/.x/y.png", "notes.txt", "c.npy"]:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    (tmp_path / "folder.png").mkdir()
    assert list_images(tmp_path) == [tmp_path / name for name in sorted(wanted)]
    assert list_images(str(tmp_path)) == list_images(tmp_path)


def test_hidden_parents_of_the_folder_do_not_matter(tmp_path: Path) -> None:
    (tmp_path / ".data").mkdir()
    (tmp_path / ".data" / "a.png").touch()
    assert list_images(tmp_path / ".data") == [tmp_path / ".data" / "a.png"]


def test_a_file_or_a_sequence_is_listed_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "x.png").touch()
    assert list_images(tmp_path / "x.png") == [tmp_path / "x.png"]
    assert list_images(["b.png", "a.png"]) == ["b.png", "a.png"]


def test_an_empty_or_missing_folder_says_so(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").touch()
    with pytest.raises(UserError, match=r"no images in .*\.png"):
        list_images(tmp_path)
    with pytest.raises(UserError, match=r"there is no file or folder .*nowhere"):
        list_images(tmp_path / "nowhere")


def test_one_array_is_no_list_of_images() -> None:
    with pytest.raises(UserError, match="give a list"):
        list_images(np.zeros((40, 64, 3), np.uint8))
    assert len(list_images(np.zeros((2, 40, 64, 3), np.uint8))) == 2


def test_a_folder_that_cannot_be_read_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "shut").mkdir()
    (tmp_path / "a.png").touch()
    scandir = os.scandir

    def guarded(path: str) -> object:
        if str(path).endswith("shut"):
            raise PermissionError(13, "Permission denied", path)
        return scandir(path)

    monkeypatch.setattr(os, "scandir", guarded)
    with pytest.raises(UserError, match=r"cannot read folder .*shut: Permission denied"):
        list_images(tmp_path)


def test_files_are_learnt_by_name_and_arrays_as_they_come() -> None:
    files = ["b.png", "c.png", "a.png", "b.png"]
    assert gather(files).images == ("a.png", "b.png", "c.png")
    assert gather(files, as_given=True).images == ("b.png", "c.png", "a.png")
    mixed = ["b.png", np.zeros((4, 4), np.uint8), "a.png"]
    assert [type(image) for image in gather(mixed).images] == [str, np.ndarray, str]


def test_names_are_relative_to_the_folder_that_holds_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("a.png", "deep/b.png", "deep/er/c.png"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    monkeypatch.chdir(tmp_path)
    every = ("a.png", "deep/b.png", "deep/er/c.png")
    for given in (tmp_path, ".", ["."], ["deep", "a.png"], "**/*.png", ["deep/er/c.png", "deep", "a.png"]):
        found = gather(given)  # type: ignore[arg-type]
        assert (found.names, found.source) == (every, str(tmp_path))
    assert gather("deep/../deep/b.png").names == ("b.png",)
    assert gather("deep/../deep/b.png").source == gather(tmp_path / "deep").source == str(tmp_path / "deep")


def test_arrays_are_numbered_and_come_from_python() -> None:
    found = gather(["x.png", np.zeros((2, 2), np.uint8)])
    assert (found.names, found.source) == (("x.png", "array 1"), FROM_PYTHON)
    assert gather([]).images == ()


def test_collections_of_any_kind() -> None:
    picture = np.arange(48, dtype=np.uint8).reshape(4, 4, 3)
    pillow = Image.fromarray(picture)
    for given in (
        [pillow],
        (picture,),
        iter([picture]),
        (one for one in [pillow]),
        picture[None],
        [picture[None]],
    ):
        (found,) = list_images(given)
        assert np.array_equal(found, picture)
    endless = each_image(repeat(picture))  # nothing is read ahead
    assert np.array_equal(next(endless), picture)


@pytest.mark.parametrize("given", [None, 3, 0.5, [None], ["a.png", 7], object()])
def test_what_is_no_collection_of_images_is_told_in_a_sentence(given: object) -> None:
    with pytest.raises(UserError, match=r"images are a folder, a file, a pattern .*; this is "):
        list_images(given)  # type: ignore[arg-type]


def test_one_file_is_not_a_collection() -> None:
    for given in (b"abc", io.BytesIO(b"abc")):
        with pytest.raises(UserError, match="one file is one image"):
            list_images(given)


def test_a_single_image_is_told_from_a_collection(tmp_path: Path) -> None:
    picture = np.zeros((4, 4, 3), np.uint8)
    assert single_image("part.png") == "part.png" and single_image(picture) is picture
    assert np.array_equal(single_image(Image.fromarray(picture)), picture)  # type: ignore[arg-type]
    for given in (tmp_path, "parts/*.png", picture[None], ["part.png"], iter([picture]), None):
        assert single_image(given) is None  # type: ignore[arg-type]


def test_images_of_pillow_become_what_their_file_would_be(tmp_path: Path) -> None:
    colours = np.random.default_rng(0).integers(0, 256, (6, 4, 3), np.uint8)
    image = Image.fromarray(colours)
    assert np.array_equal(pixels_of(image.convert("CMYK")), np.asarray(image.convert("CMYK").convert("RGB")))
    assert pixels_of(image.convert("L")).shape == (6, 4)
    deep = np.array([[0, 300], [65535, 7]], np.uint16)
    assert np.array_equal(pixels_of(Image.fromarray(deep)), deep)
    exif = Image.Exif()
    exif[0x0112] = 6
    image.save(tmp_path / "turned.png", exif=exif)
    assert np.array_equal(pixels_of(Image.open(tmp_path / "turned.png")), np.rot90(colours, -1))
    numbers = np.array([[0, 0.25]], np.float32)
    assert np.array_equal(pixels_of(Image.fromarray(numbers)), numbers)
    (tmp_path / "torn.png").write_bytes((tmp_path / "turned.png").read_bytes()[:90])
    with pytest.raises(ImageError, match="cannot read an image of Pillow"):
        pixels_of(Image.open(tmp_path / "torn.png"))


def test_files_of_other_image_formats_are_named(tmp_path: Path) -> None:
    for name in ("a.png", "b.HEIC", "c.txt"):
        (tmp_path / name).touch()
    with pytest.warns(ImageWarning, match=r"1 in formats that are not read .*b\.HEIC.* save as PNG"):
        assert images_below(tmp_path) == [tmp_path / "a.png"]


def test_an_image_is_known_by_its_content_alone(tmp_path: Path) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (6, 4, 3), np.uint8)
    for name in ("a.png", "b.png"):
        Image.fromarray(pixels).save(tmp_path / name)
    Image.fromarray(pixels ^ 1).save(tmp_path / "c.png")
    a, b, c = (content_hash(tmp_path / name) for name in ("a.png", "b.png", "c.png"))
    assert a == b != c
    arrays = [pixels, pixels.reshape(4, 6, 3), pixels.astype(np.uint16), np.asfortranarray(pixels)]
    hashes = [content_hash(array) for array in arrays]
    assert len(set(hashes)) == 3 and hashes[0] == hashes[3]
    with pytest.raises(ImageError, match=r"there is no image .*gone\.png"):
        content_hash(tmp_path / "gone.png")
    with pytest.raises(ImageError, match="cannot read image"):
        content_hash(tmp_path)
