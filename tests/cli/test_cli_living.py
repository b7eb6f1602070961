"""`calibrate`, `update`, `merge` and the history in `info`, as a user runs them."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from cli_runs import SMALL, Run, assert_one_line_error, files_below, graphs, run, write_vials
from PIL import Image
from small_detector import small_detector, with_threshold

from mhpatchcore import Detector

__all__ = ["graphs", "run"]  # fixtures


@pytest.fixture
def model(tmp_path: Path) -> Path:
    small_detector().save(tmp_path / "part.mhpc")
    return tmp_path / "part.mhpc"


@pytest.fixture(scope="module")
def fresh(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_vials(tmp_path_factory.mktemp("fresh") / "returned", 3, first=20)


def test_calibrate_shows_and_writes_only_where_asked(run: Run, model: Path, tmp_path: Path) -> None:
    before = model.read_bytes()
    ran = run("calibrate", model, "--false-alarm", "0.3")
    assert (ran.code, ran.err) == (0, "") and "about 30% of good parts" in ran.out
    assert "not written" in ran.out and model.read_bytes() == before
    ran = run("calibrate", model, "--false-alarm", "0.3", "-o", tmp_path / "loose.mhpc")
    assert f"wrote {tmp_path / 'loose.mhpc'}" in ran.out and model.read_bytes() == before
    assert Detector.load(tmp_path / "loose.mhpc").threshold < Detector.load(model).threshold


def test_calibrate_says_what_the_images_can_tell(run: Run, model: Path, fresh: Path) -> None:
    assert "about 25% of good parts" in run("calibrate", model, "--false-alarm", "0.01", "--with", fresh).out
    facts = json.loads(run("calibrate", model, "--with", fresh, "--add", "--json").out)
    assert (facts["calibration_images"], facts["calibration"]) == (11, "cross-image and held-out")
    assert [row["false_alarm"] for row in facts["choices"]] == [0.005, 0.01, 0.02, 0.03, 0.05]
    assert facts["written"] is False


def test_a_number_is_a_threshold_and_the_history_says_so(run: Run, model: Path, tmp_path: Path) -> None:
    ran = run("calibrate", model, "--threshold", "20", "-o", tmp_path / "by_hand.mhpc")
    assert ran.code == 0 and "20 (set by hand): about" in ran.out
    told = run("info", tmp_path / "by_hand.mhpc").out
    assert "20 (set by hand)" in told and "calibrate: 20 by hand" in told
    assert_one_line_error(run("calibrate", model, "--threshold", "0"), 2, "above 0")


def test_a_model_without_a_threshold_gets_one(run: Run, fresh: Path, tmp_path: Path) -> None:
    model = tmp_path / "none.mhpc"
    with_threshold(small_detector(), float("inf")).save(model)
    ran = run("calibrate", model)
    assert ran.code == 0 and "threshold  none" in ran.out and "inf" not in ran.out
    assert ran.err.startswith("warning: ") and "has no threshold" in ran.err
    ran = run("calibrate", model, "--with", fresh / "020.png", "--with", fresh / "021.png", "-o", model)
    assert (ran.code, ran.err) == (0, "") and "there was none before" in ran.out
    assert run("score", model, fresh).code == 0


def test_update_and_its_history(run: Run, model: Path, fresh: Path, tmp_path: Path) -> None:
    ran = run("update", model, fresh, "-o", model)
    assert (ran.code, ran.err) == (0, "")
    assert "learnt 3 new images, now 11" in ran.out and "of them from the new images" in ran.out
    told = run("info", model).out
    assert "fit: 8 images from given in Python" in told
    assert f"update: 3 images from {fresh}, 11 in all" in told
    history = json.loads(run("info", model, "--json").out)["history"]
    assert [(one["what"], one["images"], one["source"]) for one in history] == [
        ("fit", 8, "given in Python"),
        ("update", 3, str(fresh)),
    ]
    again = run("update", model, fresh, "-o", tmp_path / "twice.mhpc")
    assert_one_line_error(again, 2, "already", "new to it")
    assert not (tmp_path / "twice.mhpc").exists()
    assert Detector.load(model).model.images[-3:] == ("020.png", "021.png", "022.png")


def test_a_threshold_that_rises_is_told(run: Run, model: Path, tmp_path: Path) -> None:
    for i, path in enumerate(sorted(write_vials(tmp_path / "odd", 3, first=20).iterdir())):
        odd = np.roll(255 - np.asarray(Image.open(path)), i, axis=2)  # each in a way of its own
        Image.fromarray(np.rot90(odd, i)).save(path)
    ran = run("update", model, tmp_path / "odd", "-o", tmp_path / "fair.mhpc")
    assert ran.code == 0 and "warning: the threshold has risen" in ran.err and "--returned" in ran.err
    ran = run("update", model, tmp_path / "odd", "--returned", "-o", tmp_path / "returned.mhpc")
    assert ran.code == 0 and "has risen" in ran.err and "calibrate --with" in ran.err
    assert "--returned" not in ran.err  # it has been given
    assert Detector.load(tmp_path / "returned.mhpc").calibration.n == 8


def test_merge(run: Run, model: Path, tmp_path: Path) -> None:
    other, both = tmp_path / "other.mhpc", tmp_path / "both.mhpc"
    Detector.fit(write_vials(tmp_path / "other", 4, first=30), small_detector().config).save(other)
    ran = run("merge", model, other, "-o", both)
    assert (ran.code, ran.err) == (0, "") and "2 models, 12 images" in ran.out
    facts = json.loads(run("merge", other, model, "-o", both, "--json").out)
    assert facts["images"] == 12 and [one["what"] for one in facts["history"]] == ["fit", "fit", "merge"]
    assert f"merge of {other}, {model}" in run("info", both).out
    assert_one_line_error(run("merge", model, model, "-o", both), 2, "same images")
    assert_one_line_error(run("merge", model, "-o", both), 2, "at least two")
    assert_one_line_error(run("merge", model, tmp_path / "no.mhpc", "-o", both), 4, "no.mhpc")


def test_wrong_usage_is_one_line(run: Run, model: Path, fresh: Path, tmp_path: Path) -> None:
    assert_one_line_error(run("calibrate", model, "--add"), 2, "--add goes with --with")
    assert_one_line_error(run("calibrate", model, "--false-alarm", "2"), 2, "between 0 and 1")
    assert_one_line_error(run("calibrate", model, "--with", tmp_path / "none"), 2, "none")
    assert_one_line_error(run("update", model, fresh, "-o", tmp_path), 2, "it is a folder")
    (tmp_path / "torn").mkdir()
    (tmp_path / "torn" / "a.png").write_bytes(b"torn")
    before = files_below(tmp_path)
    out = ("-o", tmp_path / "new.mhpc")
    assert_one_line_error(run("update", model, tmp_path / "torn", *out), 3, "a.png")
    assert_one_line_error(run("calibrate", model, "--with", tmp_path / "torn", *out), 3, "a.png")
    assert files_below(tmp_path) == before


def test_known_defects_show_what_each_rate_finds_and_can_choose(
    run: Run, model: Path, tmp_path: Path
) -> None:
    bad = tmp_path / "bad"
    bad.mkdir()
    noise = np.random.default_rng(0).integers(0, 256, (2, 64, 64, 3)).astype(np.uint8)
    for i, pixels in enumerate(noise):
        Image.fromarray(pixels).save(bad / f"{i}.png")
    shown = json.loads(run("calibrate", model, "--defects", bad, "--false-alarm", "20%", "--json").out)
    assert all(row["of"] == 2 for row in shown["choices"]) and shown["choices"][-1]["found"] == 2
    ran = run("calibrate", model, "--defects", bad, "--find", "100%", "-o", tmp_path / "chosen.mhpc")
    assert ran.code == 0 and "2 of 2 exceed the threshold" in ran.out
    chosen = Detector.load(tmp_path / "chosen.mhpc")
    stricter = chosen.calibration.at_rate(chosen.calibration.false_alarm - 0.001).threshold
    scores = [result.score for result in chosen.score_many(bad) if result is not None]
    assert min(scores) > chosen.threshold and min(scores) <= stricter  # the fewest false alarms that will do
    assert_one_line_error(run("calibrate", model, "--find", "75%"), 2, "--defects")


def test_defects_that_score_like_good_parts_cannot_be_found(run: Run, model: Path, tmp_path: Path) -> None:
    good = write_vials(tmp_path / "learnt", 2)  # these were learnt: nothing is nearer
    assert_one_line_error(run("calibrate", model, "--defects", good, "--find", "100%"), 2, "like good parts")


def test_a_model_knows_its_product_and_replaces_no_other(run: Run, tmp_path: Path) -> None:
    write_vials(tmp_path / "vial" / "train" / "good", 6)
    vial, plate = tmp_path / "vial.mhpc", tmp_path / "plate.mhpc"
    assert run("fit", tmp_path / "vial" / "train" / "good", "-o", vial, *SMALL).code == 0
    assert run("fit", tmp_path / "vial" / "train" / "good", "-o", plate, "--name", "plate", *SMALL).code == 0
    assert [json.loads(run("info", one, "--json").out)["product"] for one in (vial, plate)] == [
        "vial",
        "plate",
    ]
    assert "  product    plate\n" in run("info", plate).out
    before, returned = plate.read_bytes(), write_vials(tmp_path / "returned", 2, first=20)
    refused = run("update", vial, returned, "-o", plate)
    assert_one_line_error(refused, 2, "plate.mhpc is a model of plate, and this would be one of vial")
    assert plate.read_bytes() == before
    assert run("update", vial, returned, "-o", plate, "--other-product").code == 0
    assert Detector.load(plate).model.product == "vial"
    assert_one_line_error(run("fit", returned, "-o", vial, "--name", " ", *SMALL), 2, "name of a product")
