"""Images as they are given on the command line: several files and folders, lists, links, rare formats, huge files."""

from __future__ import annotations

import io
import json
import struct
import sys
import zlib
from pathlib import Path

import pytest
from cli_runs import SMALL, Ran, Run, assert_one_line_error, graphs, run, write_vials
from PIL import Image, features
from small_detector import small_detector

from mhpatchcore import Detector
from mhpatchcore.inputs.decode import MOST_PIXELS
from mhpatchcore.inputs.loading import load_views
from mhpatchcore.inputs.views import View

__all__ = ["graphs", "run"]  # fixtures


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("model") / "part.mhpc"
    small_detector().save(path)
    return path


@pytest.fixture
def folders(tmp_path: Path) -> Path:
    """Two folders of four and two images, and a text file."""
    write_vials(tmp_path / "a", 4)
    write_vials(tmp_path / "b", 2, first=10)
    (tmp_path / "a" / "notes.txt").write_text("no image")
    return tmp_path


def scored(ran: Ran) -> list[str]:
    """Names of the images in a JSON, with that of their folder."""
    return ["/".join(Path(row["image"]).parts[-2:]) for row in json.loads(ran.out)]


def on_standard_input(monkeypatch: pytest.MonkeyPatch, content: bytes) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(content)))


def test_a_fit_on_files_and_folders(run: Run, folders: Path) -> None:
    files = sorted((folders / "a").glob("*.png"))[:3]
    ran = run("fit", *files, folders / "b", "-o", folders / "part.mhpc", *SMALL)
    assert (ran.code, ran.err) == (0, "")
    learnt = Detector.load(folders / "part.mhpc").model
    assert learnt.images == ("a/000.png", "a/001.png", "a/002.png", "b/010.png", "b/011.png")
    assert learnt.history[0].source == str(folders)


def test_a_file_that_is_given_twice_is_learnt_once(run: Run, folders: Path) -> None:
    ran = run("fit", folders / "a" / "001.png", folders / "a", "-o", folders / "part.mhpc", *SMALL)
    assert ran.code == 0 and "learnt from 4 images" in ran.out


def test_a_pattern_that_no_shell_has_expanded(run: Run, model: Path, folders: Path) -> None:
    ran = run("score", model, folders / "*" / "*1.png", folders / "b*", "--json")
    assert scored(ran) == ["a/001.png", "b/011.png", "b/010.png", "b/011.png"]
    assert_one_line_error(run("score", model, folders / "c*"), 2, "no images match", "c*")


def test_a_name_that_looks_like_a_pattern_is_a_name(run: Run, model: Path, folders: Path) -> None:
    image = (folders / "b" / "010.png").rename(folders / "b" / "part [1].png")
    assert scored(run("score", model, image, "--json")) == ["b/part [1].png"]


def test_a_list_on_standard_input(
    run: Run, model: Path, folders: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = f"{folders}/a/002.png\r\n{folders}/b\n\n".encode()
    on_standard_input(monkeypatch, lines)
    assert scored(run("score", model, "-", "--json")) == ["a/002.png", "b/010.png", "b/011.png"]
    on_standard_input(monkeypatch, lines)
    assert run("fit", "-", "-o", folders / "part.mhpc", *SMALL).code == 0
    assert Detector.load(folders / "part.mhpc").model.n_learnt == 3
    on_standard_input(monkeypatch, f"{folders}/a/000.png\0{folders}/a/001.png\0".encode())
    ran = run("update", folders / "part.mhpc", "-", "-o", folders / "part.mhpc")
    assert ran.code == 0 and "now 5" in ran.out


def test_a_listed_file_that_is_gone_is_told_like_a_broken_one(
    run: Run, model: Path, folders: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    on_standard_input(monkeypatch, f"{folders}/a/000.png\n{folders}/gone.png\n".encode())
    ran = run("score", model, "-", "--json")
    assert ran.code == 3 and "gone.png" in ran.err
    assert [row["verdict"] == "unreadable" for row in json.loads(ran.out)] == [False, True]


@pytest.mark.parametrize("content", [b"", b"\n\n"])
def test_an_empty_list(run: Run, model: Path, monkeypatch: pytest.MonkeyPatch, content: bytes) -> None:
    on_standard_input(monkeypatch, content)
    assert_one_line_error(run("score", model, "-"), 2, "standard input", "one per line")


def test_one_missing_argument_of_several_is_named(run: Run, model: Path, folders: Path) -> None:
    assert_one_line_error(run("score", model, folders / "a", folders / "gone"), 2, "gone")


def test_linked_folders_are_followed_and_loops_end(run: Run, model: Path, folders: Path) -> None:
    top = folders / "top"
    (top / "deep").mkdir(parents=True)
    (top / "again").symlink_to(top)
    (top / "deep" / "up").symlink_to("..")
    (top / "linked").symlink_to(folders / "a")
    (top / "twice").symlink_to(folders / "a")
    (top / "nowhere").symlink_to(folders / "gone")
    ran = run("score", model, top, "--json")
    assert scored(ran) == [f"linked/{i:03d}.png" for i in range(4)]


def test_a_link_that_leads_nowhere_is_an_image_that_cannot_be_read(
    run: Run, model: Path, folders: Path
) -> None:
    (folders / "a" / "gone.png").symlink_to(folders / "elsewhere.png")
    ran = run("score", model, folders / "a", "--json")
    assert ran.code == 3 and "there is no image" in ran.err and "gone.png" in ran.err
    assert [row["verdict"] for row in json.loads(ran.out)].count("unreadable") == 1


def test_a_real_folder_goes_before_a_link_to_it(run: Run, model: Path, folders: Path) -> None:
    (folders / "0 link").symlink_to(folders / "b")
    (folders / "a" / "link").symlink_to(folders / "b")
    names = scored(run("score", model, folders, "--json"))
    assert names == [*(f"a/{i:03d}.png" for i in range(4)), "b/010.png", "b/011.png"]


@pytest.mark.parametrize("suffix", ["gif", "jp2", "avif"])
def test_rarer_formats(run: Run, model: Path, folders: Path, suffix: str) -> None:
    codec = {"jp2": "jpg_2000"}.get(suffix, suffix)
    if suffix != "gif" and not features.check(codec):
        pytest.skip(f"this Pillow does not read {suffix}")
    source = folders / "b" / "010.png"
    Image.open(source).save(source.with_suffix(f".{suffix}"))
    source.unlink()
    ran = run("score", model, folders / "b", "--json")
    assert (ran.code, ran.err) == (0, "") and scored(ran) == [f"b/010.{suffix}", "b/011.png"]


@pytest.mark.parametrize("suffix", ["tif", "gif", "webp"])
def test_the_first_of_several_pages_is_taken_and_the_file_is_named(
    run: Run, model: Path, folders: Path, suffix: str
) -> None:
    first, other = (Image.open(folders / "b" / name) for name in ("010.png", "011.png"))
    pages = folders / f"pages.{suffix}"
    options = {"lossless": True} if suffix == "webp" else {}
    first.save(pages, save_all=True, append_images=[other], **options)
    ran = run("score", model, pages, "--json", "--heatmaps", folders / "heat")
    assert ran.code == 0 and ran.err == f"warning: {pages} has several pages: only the first is read\n"
    if suffix != "gif":  # which has but 256 colours
        alone = json.loads(run("score", model, folders / "b" / "010.png", "--json").out)
        assert json.loads(ran.out)[0]["score"] == pytest.approx(alone[0]["score"], rel=1e-4)


def test_images_that_cannot_be_read_are_named(run: Run, folders: Path) -> None:
    for name in ("1.heic", "2.HEIC", "3.dng", "4.jxl", ".5.heic"):
        (folders / "a" / name).touch()
    ran = run("fit", folders / "a", "-o", folders / "part.mhpc", *SMALL)
    assert ran.code == 0 and "learnt from 4 images" in ran.out
    (line,) = ran.err.splitlines()
    assert line.startswith("warning: left out of ")
    assert all(words in line for words in ("4 in formats that are not read", "1.heic", "…", "save as PNG"))
    assert "notes.txt" not in line and ".5.heic" not in line


def png_header(path: Path, width: int, height: int) -> Path:
    """A PNG that claims to be as large as you like, in a few bytes."""

    def chunk(name: bytes, content: bytes) -> bytes:
        checked = name + content
        return struct.pack(">I", len(content)) + checked + struct.pack(">I", zlib.crc32(checked))

    head = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0))
    path.write_bytes(b"\x89PNG\r\n\x1a\n" + head + chunk(b"IDAT", zlib.compress(b"")) + chunk(b"IEND", b""))
    return path


def test_a_huge_image_is_refused_by_a_stated_limit(run: Run, model: Path, tmp_path: Path) -> None:
    limit = Image.MAX_IMAGE_PIXELS
    huge = png_header(tmp_path / "huge.png", 60_000, 50_000)
    ran = run("score", model, huge)
    assert ran.code == 3 and "Decompression" not in ran.err
    assert f"huge.png has 60000 × 50000 pixels, more than the {MOST_PIXELS // 10**6} million" in ran.err
    assert "cut it into" in ran.err
    assert limit == Image.MAX_IMAGE_PIXELS  # that of Pillow is as it was


def test_below_the_limit_there_is_no_warning(tmp_path: Path, recwarn: pytest.WarningsRecorder) -> None:
    """Pillow warns of a decompression bomb above 89 megapixels."""
    Image.new("1", (9500, 9500)).save(tmp_path / "large.png", compress_level=1)
    assert load_views(tmp_path / "large.png", [View(96, 96)])[0][1].height == 9500
    assert [str(one.message) for one in recwarn] == []
