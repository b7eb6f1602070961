"""`mhpatchcore score`: table, CSV, JSON, pictures, verdicts, and everything that can be wrong."""

from __future__ import annotations

import csv
import io
import json
import os
import weakref
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
from cli_runs import SMALL, Run, assert_one_line_error, files_below, graphs, run, write_vials
from PIL import Image
from safetensors.numpy import save_file
from small_detector import PIXELS, small_detector, with_threshold

from mhpatchcore import Detector
from mhpatchcore.result import Result
from mhpatchcore.results import COLUMNS

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
    assert last.endswith("of 3 rejected")


def test_json_is_what_the_detector_says(run: Run, model: Path, images: Path) -> None:
    told = json.loads(run("score", model, images, "--json").out)
    expected = [small_detector().score(path) for path in sorted(images.iterdir())]
    assert [row["image"] for row in told] == [result.path for result in expected]
    assert [row["score"] for row in told] == pytest.approx([r.score for r in expected], rel=1e-4)
    told_of = {"image", "score", "threshold", "verdict", "is_rejected", "p_value", "regions", "size"}
    told_of |= {"defect", "is_like_known", "camera"}
    assert set(told[0]) == told_of and told[0]["size"] == [PIXELS, PIXELS]


def test_csv(run: Run, model: Path, images: Path) -> None:
    rows = list(csv.DictReader(io.StringIO(run("score", model, images, "--csv", "-").out)))
    assert tuple(rows[0]) == (*COLUMNS, "error") and len(rows) == 3
    assert all(float(row["score"]) > 0 and int(row["regions"]) >= 0 for row in rows)
    assert {(row["verdict"], row["is_rejected"], row["error"]) for row in rows} <= {
        ("passed", "False", ""),
        ("rejected", "True", ""),
    }


@pytest.mark.parametrize("name", ["results.csv", "results.jsonl", "results.parquet", "results.xlsx"])
def test_a_table_in_a_file(run: Run, model: Path, images: Path, tmp_path: Path, name: str) -> None:
    (images / "broken.png").write_bytes(b"not a picture")
    out = tmp_path / "new" / name
    ran = run("score", model, images, "--out", out, "--skip-broken", "--json")
    (images / "broken.png").unlink()
    assert ran.code == 0 and out.is_file()
    said = json.loads(ran.out)
    if name.endswith("csv"):
        rows: list[Any] = list(csv.DictReader(io.StringIO(out.read_text())))
        assert tuple(rows[0]) == (*COLUMNS, "error")
    elif name.endswith("jsonl"):
        rows = [json.loads(line) for line in out.read_text().splitlines()]
        assert rows == said
    elif name.endswith("xlsx"):
        with zipfile.ZipFile(out) as book:
            sheet = ElementTree.fromstring(book.read("xl/worksheets/sheet1.xml"))
        head, *lines = [["".join(cell.itertext()) for cell in line] for line in sheet[0]]
        assert tuple(head) == (*COLUMNS, "error")
        rows = [dict(zip(head, line, strict=True)) for line in lines]
    else:
        rows = pytest.importorskip("pyarrow.parquet").read_table(out).to_pylist()
        assert tuple(rows[0]) == (*COLUMNS, "error") and rows[3]["score"] is None
    assert [row["image"] for row in rows] == [row["image"] for row in said]
    assert [float(row["score"]) for row in rows[:3]] == pytest.approx([row["score"] for row in said[:3]])
    assert rows[3]["verdict"] == "unreadable" and "broken.png" in rows[3]["error"]


def test_a_csv_file_beside_the_table_for_people(run: Run, model: Path, images: Path, tmp_path: Path) -> None:
    ran = run("score", model, images, "--csv", tmp_path / "today")
    assert ran.code == 0 and ran.out.rstrip().endswith("of 3 rejected")
    assert (tmp_path / "today").read_text() == run("score", model, images, "--csv", "-").out


def test_an_ending_that_is_no_table(run: Run, model: Path, images: Path, tmp_path: Path) -> None:
    ran = run("score", model, images, "--out", tmp_path / "results.ods")
    assert_one_line_error(ran, 2, "results.ods", ".csv, .jsonl, .parquet, .xlsx", "a folder")
    ran = run("score", model, images, "--out", tmp_path / "a.csv", "--csv", tmp_path / "a.csv")
    assert_one_line_error(ran, 2, "given twice")


def test_csv_and_json_exclude_each_other(run: Run, model: Path, images: Path) -> None:
    assert_one_line_error(run("score", model, images, "--csv", "-", "--json"), 2, "--csv", "-", "--json")


def test_the_threshold_decides_and_fail_says_so(run: Run, images: Path, tmp_path: Path) -> None:
    strict, lenient = tmp_path / "strict.mhpc", tmp_path / "lenient.mhpc"
    with_threshold(small_detector(), 1e-3).save(strict)
    with_threshold(small_detector(), 1e9).save(lenient)
    ran = run("score", strict, images, "--fail")
    assert ran.code == 1 and ran.out.count("REJECTED") == 3 and "3 of 3 rejected" in ran.out
    assert run("score", strict, images).code == 0
    assert run("score", lenient, images, "--fail").code == 0
    told = json.loads(run("score", strict, images, "--json").out)
    assert all(row["is_rejected"] and row["regions"] for row in told)


def test_a_model_without_a_threshold(run: Run, images: Path, tmp_path: Path) -> None:
    with_threshold(small_detector(), float("inf")).save(tmp_path / "part.mhpc")
    ran = run("score", tmp_path / "part.mhpc", images / "050.png", "--fail")
    assert ran.code == 7 and "(the model has no threshold)" in ran.out
    assert "no threshold" in ran.out.splitlines()[1] and "1 scored, none judged" in ran.out
    assert "ok" not in ran.out.split() and "calibrate" in ran.err
    ran = run("score", tmp_path / "part.mhpc", images / "050.png", "--json")
    (told,) = json.loads(ran.out)
    assert ran.code == 7 and told["verdict"] == "no threshold" and told["score"] > 0
    assert told["threshold"] is None and told["is_rejected"] is None and told["p_value"] is None
    ran = run("score", tmp_path / "part.mhpc", images / "050.png", "--csv", "-")
    (row,) = csv.DictReader(io.StringIO(ran.out))
    assert ran.code == 7 and row["verdict"] == "no threshold" and row["is_rejected"] == ""


def test_pictures_show_image_heat_and_outline(run: Run, model: Path, images: Path, tmp_path: Path) -> None:
    assert run("score", model, images, "--heatmaps", tmp_path / "new" / "heat").code == 0
    assert files_below(tmp_path) == ["new/heat/050.png", "new/heat/051.png", "new/heat/052.png"]
    with Image.open(tmp_path / "new" / "heat" / "050.png") as picture:
        assert picture.height >= PIXELS and picture.width > 3 * PIXELS


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


@pytest.fixture
def strict(tmp_path: Path) -> Path:
    """A model that finds every image anomalous."""
    with_threshold(small_detector(), 1e-3).save(tmp_path / "strict.mhpc")
    return tmp_path / "strict.mhpc"


def test_masks_have_the_size_of_their_images(run: Run, strict: Path, tmp_path: Path) -> None:
    image = write_vials(tmp_path / "new", 1) / "000.png"
    Image.open(image).resize((100, 60)).save(image)
    assert run("score", strict, tmp_path / "new", "--masks", tmp_path / "masks").code == 0
    with Image.open(tmp_path / "masks" / "000.png") as file:
        mask = np.asarray(file)
        assert (file.mode, file.size) == ("L", (100, 60))
    assert set(np.unique(mask)) <= {0, 255} and mask.any()
    assert np.array_equal(mask > 0, Detector.load(strict).score(image).mask)


def test_names_that_are_no_text_have_regions_too(
    run: Run, strict: Path, images: Path, tmp_path: Path
) -> None:
    odd = tmp_path / os.fsdecode(b"caf\xe9.png")
    odd.write_bytes((images / "050.png").read_bytes())
    table, coco = tmp_path / "regions.csv", tmp_path / "regions.json"
    assert run("score", strict, odd, "--regions", table, "--coco", coco).code == 0
    assert r"caf\udce9.png" in table.read_text(encoding="utf-8")
    assert json.loads(coco.read_text())["images"][0]["file_name"] == str(odd)


def test_regions_as_csv_and_coco(run: Run, strict: Path, images: Path, tmp_path: Path) -> None:
    table, coco = tmp_path / "out" / "regions.csv", tmp_path / "out" / "regions.json"
    ran = run("score", strict, images, "--regions", table, "--coco", coco, "--json")
    assert ran.code == 0
    expected = [(row["image"], region) for row in json.loads(ran.out) for region in row["regions"]]
    with table.open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == len(expected) >= 3
    document = json.loads(coco.read_text())
    names = {image["id"]: image["file_name"] for image in document["images"]}
    assert list(names.values()) == [str(path) for path in sorted(images.iterdir())]
    assert {(image["height"], image["width"]) for image in document["images"]} == {(PIXELS, PIXELS)}
    assert [category["name"] for category in document["categories"]] == ["anomaly"]
    for row, marked, (image, region) in zip(rows, document["annotations"], expected, strict=True):
        top, left, bottom, right = region["box"]
        assert row["image"] == names[marked["image_id"]] == image
        assert [int(row[edge]) for edge in ("top", "left", "bottom", "right")] == region["box"]
        assert (int(row["area"]), float(row["peak"])) == (region["area"], pytest.approx(region["peak"]))
        assert [int(row["peak_row"]), int(row["peak_column"])] == region["peak_at"]
        assert marked["bbox"] == [left, top, right - left, bottom - top]
        assert (marked["area"], marked["score"]) == (region["area"], pytest.approx(region["peak"]))
    assert len({marked["id"] for marked in document["annotations"]}) == len(expected)


def test_outputs_do_not_take_each_other_s_place(run: Run, model: Path, images: Path, tmp_path: Path) -> None:
    same = tmp_path / "out"
    for one, other in (("--heatmaps", "--masks"), ("--masks", "--explain"), ("--heatmaps", "--explain")):
        ran = run("score", model, images, one, same, other, same / ".." / "out")
        assert_one_line_error(ran, 2, "out is given twice", "/")
    ran = run("score", model, images, "--regions", same, "--coco", same)
    assert_one_line_error(ran, 2, "given twice", "regions.csv")
    assert_one_line_error(run("score", model, images, "--regions", model), 2, "given twice")
    assert not same.exists()


def test_evidence_finds_the_training_images_from_elsewhere(
    run: Run, images: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_vials(tmp_path / "factory" / "good", 4)
    (tmp_path / "desk").mkdir()
    monkeypatch.chdir(tmp_path / "factory")
    assert run("fit", "good", "-o", "../part.mhpc", *SMALL).code == 0
    monkeypatch.chdir(tmp_path / "desk")
    why = ("--explain", tmp_path / "why", "--explain-all", "--json")
    ran = run("score", tmp_path / "part.mhpc", images / "050.png", *why)
    assert (ran.code, ran.err) == (0, "")
    nearest = [patch for place in json.loads(ran.out)[0]["evidence"]["places"] for patch in place["nearest"]]
    found = {Path(patch["file"]) for patch in nearest}
    assert found <= set((tmp_path / "factory" / "good").iterdir())


def test_a_place_for_pictures_that_is_a_file(run: Run, model: Path, images: Path, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    ran = run("score", model, images, "--heatmaps", tmp_path / "file")
    assert_one_line_error(ran, 2, "cannot write", "file")


@pytest.mark.parametrize("name", ["two words.png", "Fläschchen №1.png", "two\nlines.png", "a,b;'c\".png"])
def test_file_names(run: Run, model: Path, tmp_path: Path, name: str) -> None:
    image = write_vials(tmp_path / "new", 1) / "000.png"
    image = image.rename(image.with_name(name))
    assert json.loads(run("score", model, image, "--json").out)[0]["image"] == str(image)
    (row,) = csv.DictReader(io.StringIO(run("score", model, image, "--csv", "-").out))
    assert row["image"] == str(image)
    ran = run("score", model, image, "--heatmaps", tmp_path / "heat")
    assert len(ran.out.splitlines()) == 3
    assert files_below(tmp_path / "heat") == [name]


def test_a_broken_image_is_told_and_the_others_are_scored(run: Run, model: Path, tmp_path: Path) -> None:
    folder = write_vials(tmp_path / "new", 2)
    (folder / "0005.png").write_bytes(b"no picture")
    ran = run("score", model, folder, "--heatmaps", tmp_path / "heat")
    assert ran.code == 3 and "of 2 rejected, 1 could not be read" in ran.out
    assert [line.split()[-1][-8:] for line in ran.out.splitlines()[1:-1]] == [
        "/000.png",
        "0005.png",
        "/001.png",
    ]
    assert "unreadable" in ran.out.splitlines()[2]
    assert ran.err.startswith("warning: cannot read image ") and "0005.png" in ran.err
    assert files_below(tmp_path / "heat") == ["000.png", "001.png"]
    assert run("score", model, folder, "--fail").code == 3


def test_broken_images_stay_in_csv_and_json_with_their_reason(run: Run, model: Path, tmp_path: Path) -> None:
    folder = write_vials(tmp_path / "new", 2)
    bad = folder / "0005.png"
    bad.write_bytes((folder / "000.png").read_bytes()[:200])
    for flags, code in (((), 3), (("--skip-broken",), 0)):
        ran = run("score", model, folder, "--csv", "-", *flags)
        rows = list(csv.DictReader(io.StringIO(ran.out)))
        assert ran.code == code and [bool(row["error"]) for row in rows] == [False, True, False]
        assert rows[1]["image"] == str(bad) and rows[1]["verdict"] == "unreadable" and rows[1]["score"] == ""
        ran = run("score", model, folder, "--json", *flags)
        one, broken, other = json.loads(ran.out)
        assert ran.code == code and "error" not in one and "error" not in other
        assert broken["verdict"] == "unreadable" and str(bad) in broken["error"]


def test_a_table_with_broken_images_can_be_monitored(run: Run, model: Path, tmp_path: Path) -> None:
    folder, table = write_vials(tmp_path / "new", 2), tmp_path / "today.csv"
    (folder / "bad.png").write_bytes(b"no picture")
    table.write_text(run("score", model, folder, "--csv", "-").out)
    ran = run("monitor", model, table, "--json")
    assert ran.code == 0 and json.loads(ran.out)["n"] == 2


def test_nothing_but_broken_images(run: Run, model: Path, tmp_path: Path) -> None:
    (tmp_path / "bad.png").write_bytes(b"no picture")
    ran = run("score", model, tmp_path / "bad.png", "--skip-broken", "--fail")
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
