"""`mhpatchcore score`: table, CSV, JSON, pictures, verdicts, and everything that can be wrong."""

from __future__ import annotations

import csv
import io
import json
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cli_runs import Run, assert_one_line_error, files_below, graphs, run, write_vials
from PIL import Image
from safetensors.numpy import save_file
from small_detector import PIXELS, small_detector, with_threshold

from mhpatchcore import Detector
from mhpatchcore.cli.score import COLUMNS
from mhpatchcore.result import Result

__all__ = ["graphs", "run"]  # fixtures


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("score") / "part.mhpc"
    small_detector().save(path)
    return path


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_vials(tmp_path_factory.mktemp("score") / "new", 3, first=50)


def test_a_table_for_people(run: Run, model: Path, images: Path) -> None:
    ran = run("score", model, images)
    assert (ran.code, ran.err) == (0, "")
    head, *lines, last = ran.out.splitlines()
    assert f"threshold {small_detector().threshold:.4g}" in head
    assert [line.split()[-1] for line in lines] == [str(images / f"{i:03d}.png") for i in (50, 51, 52)]
    assert last.endswith("of 3 anomalous")


def test_json_is_what_the_detector_says(run: Run, model: Path, images: Path) -> None:
    told = json.loads(run("score", model, images, "--json").out)
    expected = [small_detector().score(path) for path in sorted(images.iterdir())]
    assert [row["image"] for row in told] == [result.path for result in expected]
    assert [row["score"] for row in told] == pytest.approx([r.score for r in expected], rel=1e-4)
    assert set(told[0]) == {"image", "score", "threshold", "is_anomalous", "p_value", "regions"}


def test_csv(run: Run, model: Path, images: Path) -> None:
    rows = list(csv.DictReader(io.StringIO(run("score", model, images, "--csv").out)))
    assert tuple(rows[0]) == COLUMNS and len(rows) == 3
    assert all(float(row["score"]) > 0 and int(row["regions"]) >= 0 for row in rows)
    assert {row["is_anomalous"] for row in rows} <= {"True", "False"}


def test_csv_and_json_exclude_each_other(run: Run, model: Path, images: Path) -> None:
    assert_one_line_error(run("score", model, images, "--csv", "--json"), 2, "--csv", "--json")


def test_the_threshold_decides_and_fail_says_so(run: Run, images: Path, tmp_path: Path) -> None:
    strict, lenient = tmp_path / "strict.mhpc", tmp_path / "lenient.mhpc"
    with_threshold(small_detector(), 1e-3).save(strict)
    with_threshold(small_detector(), 1e9).save(lenient)
    ran = run("score", strict, images, "--fail")
    assert ran.code == 1 and ran.out.count("ANOMALOUS") == 3 and "3 of 3 anomalous" in ran.out
    assert run("score", strict, images).code == 0
    assert run("score", lenient, images, "--fail").code == 0
    told = json.loads(run("score", strict, images, "--json").out)
    assert all(row["is_anomalous"] and row["regions"] for row in told)


def test_a_model_without_a_threshold(run: Run, images: Path, tmp_path: Path) -> None:
    with_threshold(small_detector(), float("inf")).save(tmp_path / "part.mhpc")
    ran = run("score", tmp_path / "part.mhpc", images / "050.png", "--fail")
    assert ran.code == 0 and "the model has no threshold" in ran.out
    told = json.loads(run("score", tmp_path / "part.mhpc", images / "050.png", "--json").out)
    assert told[0]["threshold"] is None


def test_pictures_show_image_heat_and_outline(run: Run, model: Path, images: Path, tmp_path: Path) -> None:
    assert run("score", model, images, "--heatmaps", tmp_path / "new" / "heat").code == 0
    assert files_below(tmp_path) == ["new/heat/050.png", "new/heat/051.png", "new/heat/052.png"]
    with Image.open(tmp_path / "new" / "heat" / "050.png") as picture:
        assert picture.height == PIXELS and picture.width > 3 * PIXELS


def test_every_image_has_a_picture_of_its_own(run: Run, model: Path, tmp_path: Path) -> None:
    for folder in ("a/x", "b/x", "a_b"):
        write_vials(tmp_path / "new" / folder, 1)
    pixels = Image.open(tmp_path / "new" / "a" / "x" / "000.png")
    pixels.save(tmp_path / "new" / "a" / "x" / "000.jpg")
    ran = run("score", model, tmp_path / "new", tmp_path / "new" / "a", "--heatmaps", tmp_path / "heat")
    assert ran.code == 0
    names = ["a/x/000.jpg.png", "a/x/000.png.png", "a_b/000.png.png", "b/x/000.png.png"]
    assert files_below(tmp_path / "heat") == names


def test_pictures_never_replace_images(run: Run, model: Path, tmp_path: Path) -> None:
    folder = write_vials(tmp_path / "new", 2)
    before = {path: path.read_bytes() for path in folder.iterdir()}
    for place in (folder, tmp_path / "new" / ".." / "new"):
        assert_one_line_error(run("score", model, folder, "--heatmaps", place), 2, "among the images")
    assert {path: path.read_bytes() for path in folder.iterdir()} == before


def test_a_place_for_pictures_that_is_a_file(run: Run, model: Path, images: Path, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    ran = run("score", model, images, "--heatmaps", tmp_path / "file")
    assert_one_line_error(ran, 2, "cannot write", "file")


@pytest.mark.parametrize("name", ["two words.png", "Fläschchen №1.png", "two\nlines.png", "a,b;'c\".png"])
def test_file_names(run: Run, model: Path, tmp_path: Path, name: str) -> None:
    image = write_vials(tmp_path / "new", 1) / "000.png"
    image = image.rename(image.with_name(name))
    assert json.loads(run("score", model, image, "--json").out)[0]["image"] == str(image)
    (row,) = csv.DictReader(io.StringIO(run("score", model, image, "--csv").out))
    assert row["image"] == str(image)
    ran = run("score", model, image, "--heatmaps", tmp_path / "heat")
    assert len(ran.out.splitlines()) == 3
    assert files_below(tmp_path / "heat") == [name]


def test_a_broken_image_is_named(run: Run, model: Path, tmp_path: Path) -> None:
    folder = write_vials(tmp_path / "new", 2)
    (folder / "bad.png").write_bytes(b"no picture")
    assert_one_line_error(run("score", model, folder), 3, "bad.png")


def test_broken_images_can_be_skipped(run: Run, model: Path, tmp_path: Path) -> None:
    folder = write_vials(tmp_path / "new", 2)
    (folder / "bad.png").write_bytes(b"no picture")
    ran = run("score", model, folder, "--skip-broken", "--heatmaps", tmp_path / "heat")
    assert ran.code == 0 and "of 2 anomalous, 1 skipped" in ran.out
    assert ran.err.startswith("warning: skipped: ") and "bad.png" in ran.err
    assert files_below(tmp_path / "heat") == ["000.png", "001.png"]
    *scored, skipped = json.loads(run("score", model, folder, "--skip-broken", "--json").out)
    assert len(scored) == 2 and skipped["image"] == str(folder / "bad.png") and "cannot" in skipped["error"]
    ran = run("score", model, folder / "bad.png", "--skip-broken", "--fail")
    assert ran.code == 3 and "error: none of the images could be read" in ran.err


@pytest.mark.parametrize("name", ["missing", "empty"])
def test_a_folder_without_images_is_named(run: Run, model: Path, tmp_path: Path, name: str) -> None:
    (tmp_path / "empty").mkdir()
    assert_one_line_error(run("score", model, tmp_path / name), 2, name)


def test_files_that_are_no_models(run: Run, model: Path, images: Path, tmp_path: Path) -> None:
    content = model.read_bytes()
    save_file({"a": np.ones(3)}, tmp_path / "foreign.safetensors")
    for name, part in {"cut.mhpc": content[:-1000], "short.mhpc": content[:100], "empty.mhpc": b""}.items():
        (tmp_path / name).write_bytes(part)
    (tmp_path / "text.mhpc").write_text("a model, honestly")
    for path in (*tmp_path.iterdir(), tmp_path / "missing.mhpc", tmp_path, images / "050.png"):
        for command in (("score", path, images), ("info", path)):
            assert_one_line_error(run(*command), 4, path.name)


def test_workers_are_at_least_one(run: Run, model: Path, images: Path) -> None:
    ran = run("score", model, images, "--workers", "0")
    assert ran.code == 2 and "--workers" in ran.help


def test_maps_are_not_kept(run: Run, model: Path, images: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    alive: list[weakref.ref[Result]] = []
    most = 0
    score_many = Detector.score_many

    def watched(*arguments: Any, **settings: Any) -> Iterator[Result | None]:
        nonlocal most
        for result in score_many(*arguments, **settings):
            if result is not None:
                alive.append(weakref.ref(result))
            most = max(most, sum(reference() is not None for reference in alive))
            yield result

    monkeypatch.setattr(Detector, "score_many", watched)
    assert run("score", model, *([images] * 4), "--workers", 1).code == 0
    assert len(alive) == 12 and most <= 2
