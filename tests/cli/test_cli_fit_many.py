"""`mhpatchcore fit-many`: a model for every product, again only for those that have changed, and a page about all."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from cli_runs import Run, assert_one_line_error, files_below, graphs, run, write_vials  # noqa: F401 (fixtures)
from process_executor import Processes
from remote_places import BUCKET, s3_server, upload
from same_model import assert_same_model

from mhpatchcore import Config, Detector
from mhpatchcore.batch import many
from mhpatchcore.batch.many import render
from mhpatchcore.config import parse_sizes
from mhpatchcore.fitting.execution import Threads

SMALL = ("--augment", "none", "--size", "64", "-K", "50", "--local-rows", "32", "-q")
CONFIG = Config(augment="none", sizes=parse_sizes("64"), K=50, m_c=32)


@pytest.fixture
def plant(tmp_path: Path) -> Path:
    """Three products in three layouts, and what is none."""
    folder = tmp_path / "plant"
    write_vials(folder / "vial", 4)
    write_vials(folder / "cap/good", 4, first=10)
    write_vials(folder / "ring/train/good", 4, first=20)
    write_vials(folder / "cap/bad", 1, first=30)
    (folder / ".hidden").mkdir()
    (folder / "notes.txt").write_text("no product")
    return folder


def test_products_are_folders(plant: Path) -> None:
    found = {one.name: Path(one.images).relative_to(plant).as_posix() for one in many.products_in(plant)}
    assert found == {"cap": "cap/good", "ring": "ring/train/good", "vial": "vial"}


def test_each_product_gets_the_model_that_fit_makes(run: Run, plant: Path, tmp_path: Path) -> None:  # noqa: F811
    done = run("fit-many", plant, "-o", tmp_path / "models", *SMALL)
    assert done.code == 0 and "3 models fitted" in done.out, done
    assert files_below(tmp_path / "models") == [
        *(f"{name}.{kind}" for name in ("cap", "ring") for kind in ("json", "mhpc")),
        "summary.html",
        "vial.json",
        "vial.mhpc",
    ]
    alone = Detector.fit(plant / "cap/good", CONFIG)
    assert_same_model(alone, Detector.load(tmp_path / "models/cap.mhpc"))
    page = (tmp_path / "models/summary.html").read_text()
    assert all(name in page for name in ("cap", "ring", "vial")) and "3 of 3 products have a model" in page
    assert f"<dt>sizes</dt><dd>{', '.join(map(str, CONFIG.sizes))}</dd>" in page


def test_only_what_has_changed_is_fitted_again(run: Run, plant: Path, tmp_path: Path) -> None:  # noqa: F811
    command = ("fit-many", plant, "-o", tmp_path / "models", *SMALL, "--json")

    def fitted() -> set[str]:
        done = run(*command)
        assert done.code == 0, done.err
        return {one["product"] for one in json.loads(done.out)["products"] if not one["kept"]}

    assert fitted() == {"cap", "ring", "vial"}
    assert fitted() == set()
    write_vials(plant / "cap/good", 1, first=40)
    assert fitted() == {"cap"}
    (tmp_path / "models/vial.mhpc").unlink()
    (tmp_path / "models/ring.mhpc").write_bytes(b"damaged")
    assert fitted() == {"ring", "vial"}
    command = (*command, "--false-alarm", "10%")
    assert fitted() == {"cap", "ring", "vial"}


def test_a_model_that_was_calibrated_since_is_kept(run: Run, plant: Path, tmp_path: Path) -> None:  # noqa: F811
    command = ("fit-many", plant, "-o", tmp_path / "models", *SMALL, "--json")
    run(*command)
    place = tmp_path / "models/cap.mhpc"
    changed = Detector.load(place).calibrated(images=plant / "cap/bad", add=True, all_good=True)
    changed.save(place)
    cap = json.loads(run(*command).out)["products"][0]
    assert cap["kept"] and cap["threshold"] == changed.threshold


def test_one_that_fails_does_not_stop_the_others(run: Run, plant: Path, tmp_path: Path) -> None:  # noqa: F811
    (plant / "empty").mkdir()
    (plant / "cap/good/broken.png").write_bytes(b"no image")
    done = run("fit-many", plant, "-o", tmp_path / "models", *SMALL, "--json")
    facts = json.loads(done.out)
    assert done.code == 6 and facts["failed"] == ["cap", "empty"] and "2 of 4 products failed" in done.err
    errors = {one["product"]: one["error"] for one in facts["products"]}
    assert "broken.png" in errors["cap"] and "no images in" in errors["empty"] and errors["vial"] is None
    page = (tmp_path / "models/summary.html").read_text()
    assert "2 products could not be fitted" in page and "broken.png" in page
    shutil.rmtree(plant / "empty")
    again = run("fit-many", plant, "-o", tmp_path / "models", *SMALL, "--json", "--skip-broken")
    cap = json.loads(again.out)["products"][0]
    assert again.code == 0 and "broken.png" in cap["warnings"][0] and cap["images"] == 4


def test_an_image_far_beyond_all_others_is_shown(plant: Path, tmp_path: Path) -> None:
    product = many.Product("vial", str(plant / "vial"))
    recipe = many.Recipe(CONFIG, str(tmp_path))
    one = many.Fitted("vial", "vial.mhpc", 4, 50, 9.0, 0.2, (0.1, 0.3), ("002.png",))
    page = render(recipe, [product], [one], 5.0)
    assert "Images to look at" in page and "002.png" in page and "data:image/jpeg" in page
    assert "002.png: far beyond all others" in page
    gone = many.Fitted("vial", "vial.mhpc", 4, 50, 9.0, 0.2, (0.1, 0.3), ("9.png",))
    assert "data:image/jpeg" not in render(recipe, [product], [gone], 5.0)


def test_processes_make_the_same_models(plant: Path, tmp_path: Path) -> None:
    for name, executor in (("threads", Threads(2)), ("processes", Processes(2))):
        recipe = many.Recipe(CONFIG, str(tmp_path / name))
        assert all(one.error is None for one in many.fit_products(recipe, many.products_in(plant), executor))
    for product in ("cap", "ring", "vial"):
        one, other = (Detector.load(tmp_path / name / f"{product}.mhpc") for name in ("threads", "processes"))
        assert_same_model(one, other)


def test_what_cannot_be(run: Run, plant: Path, tmp_path: Path) -> None:  # noqa: F811
    assert_one_line_error(run("fit-many", plant / "vial", "-o", tmp_path / "m"), 2, "one for each product")
    assert_one_line_error(run("fit-many", tmp_path / "none", "-o", tmp_path / "m"), 2, "there is no folder")
    assert_one_line_error(run("fit-many", plant, "-o", plant / "notes.txt"), 2, "notes.txt")
    assert_one_line_error(run("fit-many", plant, "-o", tmp_path / "m", "-K", "-1"), 2, "K")


@pytest.fixture
def bucket() -> Iterator[str]:
    with s3_server():
        yield BUCKET


def test_from_a_bucket_to_a_bucket(bucket: str, run: Run, plant: Path, tmp_path: Path) -> None:  # noqa: F811
    shutil.rmtree(plant / "ring")
    upload(plant, f"{bucket}/plant")
    command = ("fit-many", f"{bucket}/plant", "-o", f"{bucket}/models", *SMALL, "--json")
    first, again = (json.loads(run(*command).out) for _ in range(2))
    assert [(one["product"], one["kept"]) for one in first["products"]] == [("cap", False), ("vial", False)]
    assert all(one["kept"] for one in again["products"])
    assert Detector.load(f"{bucket}/models/cap.mhpc").history[0].source == f"{bucket}/plant/cap/good"
