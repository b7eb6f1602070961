"""Stacks: frames of one part as channels, from folders, pages and arrays; rank images."""

from __future__ import annotations

import os
import zipfile
from pathlib import Path

import numpy as np
import pytest
from deep_files import write_png16
from pictures import picture
from PIL import Image

from mhpatchcore.cli.ranks import rank_images, write_ranks
from mhpatchcore.errors import ImageError, UserError
from mhpatchcore.inputs.datasets import load_stacks
from mhpatchcore.inputs.decode import decoded, header_of
from mhpatchcore.inputs.files import frames_of
from mhpatchcore.inputs.loading import load_pixels
from mhpatchcore.inputs.places import is_there, stack_name, stacked
from mhpatchcore.inputs.sources import content_hash, gather, list_images, single_image

FRAMES = tuple(np.ascontiguousarray(picture()[:, :, i]) for i in range(3))


def write_frames(
    folder: Path, frames: tuple[np.ndarray, ...], names: tuple[str, ...] = ("1.png", "2.png")
) -> None:
    for i, frame in enumerate(frames):
        for name in names:
            (folder / f"cam{i}" / name).parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(frame).save(folder / f"cam{i}" / name)


@pytest.mark.parametrize("kind", ["uint8", "uint16", "float32"])
def test_two_frames_and_their_mean(tmp_path: Path, kind: str) -> None:
    frames = np.stack([FRAMES[0], FRAMES[1]], axis=2).astype(kind) * (1 if kind == "uint8" else 100)
    values = np.asarray(decoded(frames).values)
    assert np.array_equal(values[:, :, :2], frames) and values.dtype == frames.dtype
    assert np.abs(values[:, :, 2] - frames.astype(float).mean(axis=2)).max() < 1
    assert decoded(frames).frames == 2


def test_folders_pages_and_arrays_are_the_same_stack(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for n in (2, 3):
        write_frames(tmp_path, FRAMES[:n])
        first, *others = map(Image.fromarray, FRAMES[:n])
        first.save("pages.tif", save_all=True, append_images=others)
        places = [f"cam{i}" for i in range(n)]
        names = stacked(*places)
        assert names == stacked(*(f"{place}/*.png" for place in places))
        assert names == [stack_name(places, "1.png"), stack_name(places, "2.png")]
        array = np.stack(FRAMES[:n], axis=2)
        for source in (names[0], tmp_path / names[0], "pages.tif", Path("pages.tif")):
            assert np.array_equal(load_pixels(source), load_pixels(array))
            header = header_of(source)
            assert header is not None and header[:4] == (40, 60, "8-bit", n) and decoded(source).frames == n


def test_deep_frames(tmp_path: Path) -> None:
    deep = [np.random.default_rng(i).integers(0, 4096, (8, 9, 1)).astype(np.uint16) for i in range(3)]
    for i, frame in enumerate(deep):
        (tmp_path / f"{i}").mkdir()
        write_png16(tmp_path / f"{i}" / "a.png", frame)
    (name,) = stacked(*(tmp_path / f"{i}" for i in range(3)))
    assert decoded(name).depth == "16-bit"
    assert np.array_equal(decoded(name).values, np.concatenate(deep, axis=2))


def test_frames_in_colour_count_by_their_brightness(tmp_path: Path) -> None:
    deep = np.random.default_rng(0).integers(0, 4096, (8, 9, 3)).astype(np.uint16)
    for i, folder in enumerate(("a", "b")):
        (tmp_path / folder).mkdir()
        write_png16(tmp_path / folder / "1.png", deep + np.uint16(i))
    (name,) = stacked(tmp_path / "a", tmp_path / "b")
    values = np.asarray(decoded(name).values)
    assert np.abs(values[:, :, 0] - deep @ [0.299, 0.587, 0.114]).max() <= 1
    assert np.array_equal(values[:, :, 1] - values[:, :, 0], np.ones((8, 9)))


def test_names_lead_back_from_anywhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_frames(tmp_path / "line", FRAMES[:2], ("deep/1.png", "2.png"))
    (tmp_path / "line" / "here").mkdir()
    monkeypatch.chdir(tmp_path / "line" / "here")
    for places in (
        ("../cam0", "../cam1"),
        (tmp_path / "line/cam0", "../cam1"),
        (tmp_path / "line/cam0/", "../cam1/."),
    ):
        found = gather(stacked(*places))
        assert found.names == ("2.png", "deep/1.png")
        assert found.source == str(tmp_path / "line" / "{cam0,cam1}")
        assert all(
            is_there(name) for name in (*found.images, *(Path(found.source, name) for name in found.names))
        )
        assert content_hash(Path(found.source, "2.png")) == content_hash(found.images[0])


def test_a_stack_may_be_asked_for_by_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write_frames(tmp_path, FRAMES[:2])
    both = stacked("cam0", "cam1")
    assert list_images("{cam0,cam1}") == list_images("{cam0,cam1}/*.png") == both
    assert list_images(["{cam0,cam1}/1.png"]) == both[:1]
    assert single_image("{cam0,cam1}/1.png") == "{cam0,cam1}/1.png" and single_image("{cam0,cam1}") is None
    with pytest.raises(UserError, match=r"there is no file or folder \{cam0,cam7\}"):
        list_images("{cam0,cam7}")


def test_a_file_whose_name_has_braces_is_a_file(tmp_path: Path) -> None:
    path = tmp_path / "{a,b}.png"
    Image.fromarray(FRAMES[0]).save(path)
    assert frames_of(path) == () and decoded(path).frames == 1


def test_the_content_tells_stacks_apart(tmp_path: Path) -> None:
    write_frames(tmp_path, FRAMES)
    places = [tmp_path / f"cam{i}" for i in range(3)]
    one, other, whole = (content_hash(stacked(*some)[0]) for some in (places[:2], places[1::-1], places))
    assert len({one, other, whole, content_hash(places[0] / "1.png")}) == 4


def test_a_missing_frame_is_named(tmp_path: Path) -> None:
    write_frames(tmp_path, FRAMES[:2], ("1.png", "2.png", "3.png"))
    (tmp_path / "cam1" / "2.png").unlink()
    with pytest.raises(UserError, match=r"cam1 has no frame 2\.png, which .*cam0 has"):
        stacked(tmp_path / "cam0", tmp_path / "cam1")
    with pytest.raises(UserError, match=r"cam1/\*\.png has no frame 2\.png"):
        stacked(tmp_path / "cam1/*.png", tmp_path / "cam0/*.png")
    (tmp_path / "cam1" / "3.png").unlink()
    with pytest.raises(UserError, match=r"no frame 2\.png \(and 1 more\)"):
        stacked(tmp_path / "cam0", tmp_path / "cam1")
    with pytest.raises(ImageError, match=r"there is no image .*cam1/2\.png"):
        decoded(tmp_path / "{cam0,cam1}" / "2.png")


def test_frames_in_archives(tmp_path: Path) -> None:
    write_frames(tmp_path, FRAMES[:2])
    for i in range(2):
        with zipfile.ZipFile(tmp_path / f"cam{i}.zip", "w") as archive:
            for name in ("1.png", "2.png"):
                archive.write(tmp_path / f"cam{i}" / name, name)
    packed, plain = stacked(*tmp_path.glob("cam?.zip")), stacked(tmp_path / "cam0", tmp_path / "cam1")
    assert sorted(map(content_hash, packed)) == sorted(map(content_hash, plain))


@pytest.mark.parametrize("n", [1, 4])
def test_other_numbers_of_places_are_refused(tmp_path: Path, n: int) -> None:
    write_frames(tmp_path, FRAMES[:1])
    with pytest.raises(UserError, match=rf"two or three folders, or patterns in quotes .* not {n}"):
        stacked(*[tmp_path / "cam0"] * n)


def test_names_that_would_be_misread_are_refused(tmp_path: Path) -> None:
    write_frames(tmp_path, FRAMES[:2], ("1,2.png",))
    with pytest.raises(UserError, match=r"1,2\.png cannot be part of a stack: rename it"):
        stacked(tmp_path / "cam0", tmp_path / "cam1")


def test_frames_that_differ_are_told(tmp_path: Path) -> None:
    write_frames(tmp_path, (FRAMES[0], FRAMES[1][:20]))
    with pytest.raises(ImageError, match=r"frames of .*differ: 60 × 40 in 8-bit and 60 × 20 in 8-bit"):
        decoded(stacked(tmp_path / "cam0", tmp_path / "cam1")[0])


def test_a_data_set_of_stacks(tmp_path: Path) -> None:
    names = ("train/good/1.png", "test/good/2.png", "test/bad/3.png")
    write_frames(tmp_path, FRAMES[:2], names)
    roots = [tmp_path / "cam0", tmp_path / "cam1"]
    dataset = load_stacks(roots)
    assert [
        os.path.relpath(path, tmp_path) for path in (*dataset.train, *(one.path for one in dataset.test))
    ] == [f"{{cam0,cam1}}/{name}" for name in ("train/good/1.png", "test/bad/3.png", "test/good/2.png")]
    (tmp_path / "cam1" / names[2]).unlink()
    with pytest.raises(UserError, match=r"cam1 has no frame test/bad/3\.png"):
        load_stacks(roots)


@pytest.mark.parametrize("kind", ["uint8", "uint16", "float32"])
@pytest.mark.parametrize("n", [3, 4, 7])
def test_rank_images_are_order_statistics(tmp_path: Path, kind: str, n: int) -> None:
    frames = np.random.default_rng(0).integers(0, 256, (n, 6, 5)).astype(kind)
    expected = np.sort(frames, axis=0)[[0, (n - 1) // 2, n - 1]]
    assert np.array_equal(rank_images(list(frames)), expected)
    write_ranks(tmp_path / "part.tif", rank_images(list(frames)))
    found = decoded(tmp_path / "part.tif")
    assert found.frames == 3 and np.array_equal(np.asarray(found.values), np.moveaxis(expected, 0, 2))


def test_a_particle_that_moves_shows_in_the_maximum_alone() -> None:
    frames = [np.full((9, 9), 50, np.uint8) for _ in range(5)]
    for i, frame in enumerate(frames):
        frame[i, 4] = 200
    low, middle, high = rank_images(frames)
    assert (low == 50).all() and (middle == 50).all() and (high == 200).sum() == 5


def test_frames_that_cannot_be_ranked_are_named() -> None:
    with pytest.raises(ImageError, match="at least 3 frames of a part, not 2"):
        rank_images([FRAMES[0], FRAMES[1]])
    with pytest.raises(ImageError, match="one size and depth"):
        rank_images([FRAMES[0], FRAMES[1], FRAMES[2].astype(np.uint16)])
