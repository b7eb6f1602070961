"""`mhpatchcore inbox …` as a user runs it, from a label to a model that was taken back."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import numpy as np
import pytest
from cli_runs import Run, assert_one_line_error, files_below, graphs, run, write_vials
from PIL import Image
from small_detector import small_detector

from mhpatchcore import Detector

__all__ = ["graphs", "run"]  # fixtures


@pytest.fixture
def model(tmp_path: Path) -> Path:
    small_detector().save(tmp_path / "part.mhpc")
    return tmp_path / "part.mhpc"


@pytest.fixture
def labelled(run: Run, model: Path, tmp_path: Path) -> Path:
    write_vials(tmp_path / "good", 3, first=20)
    (tmp_path / "bad").mkdir()
    noise = np.random.default_rng(0).integers(0, 256, (64, 64, 3)).astype(np.uint8)
    Image.fromarray(noise).save(tmp_path / "bad" / "noise.png")
    ran = run("inbox", "add", model, "good", tmp_path / "good", "--who", "Ada", "--note", "only dust")
    assert (ran.code, ran.err) == (0, "") and ran.out.count("by Ada: only dust") == 3
    assert run("inbox", "add", model, "defect", tmp_path / "bad" / "noise.png").code == 0
    return model


def test_the_whole_loop(run: Run, labelled: Path, tmp_path: Path) -> None:
    before = labelled.read_bytes()
    shown = run("inbox", "list", labelled)
    assert "3 good parts, 1 defect" in shown.out and "noise.png" in shown.out.splitlines()[0]
    ran = run("inbox", "preview", "learn", labelled)
    assert ran.code == 0 and "learns      3 good parts" in ran.out and "not written" in ran.out
    assert "defects     1 → 1 of 1 are caught" in ran.out and labelled.read_bytes() == before
    facts = json.loads(run("inbox", "learn", labelled, "--who", "Ben", "--note", "lot 7", "--json").out)
    assert facts["written"] and facts["good"]["right_after"] == 3 and facts["lost"] == []
    assert Detector.load(labelled).model.n_learnt == 11
    assert "by Ben: lot 7" in run("info", labelled).out
    told = json.loads(run("inbox", "list", labelled, "--json").out)
    assert [one["learnt"] for one in told] == [False, True, True, True]
    found = run("inbox", "versions", labelled).out
    assert (
        "    2  in use" in found
        and "    1  until" in found
        and "learn:" in found
        and "by Ben: lot 7" in found
    )
    ran = run("inbox", "preview", "undo", labelled)
    assert ran.code == 0 and "goes back   to version 1" in ran.out and "not written" in ran.out
    ran = run("inbox", "undo", labelled, "--who", "Cy")
    assert (
        ran.code == 0 and "is version 1 again: 8 images, fit" in ran.out and labelled.read_bytes() == before
    )
    changes = json.loads(run("inbox", "versions", labelled, "--json").out)["changes"]
    assert [(one["what"], one["who"]) for one in changes] == [("undo", "Cy"), ("learn", "Ben"), ("found", "")]
    told = json.loads(run("inbox", "list", labelled, "--json").out)
    assert not any(one["learnt"] for one in told)  # the model knows what it has learnt
    ran = run("inbox", "recalibrate", labelled, "--false-alarm", "30%")
    assert ran.code == 0 and "part.mhpc is written" in ran.out
    assert Detector.load(labelled).config.false_alarm == 0.3


def test_labels_are_corrected_removed_and_exported(run: Run, labelled: Path, tmp_path: Path) -> None:
    assert "defect" in run("inbox", "label", labelled, 1, "defect", "--note", "a scratch after all").out
    assert "withdrawn: 1 part" in run("inbox", "remove", labelled, 2, "--who", "Cy", "--note", "not ours").out
    ran = run("inbox", "export", labelled, "-o", tmp_path / "out")
    assert ran.code == 0 and "3 images and labels.csv" in ran.out
    files = files_below(tmp_path / "out")
    assert [file.split("/")[0] for file in files] == ["defect", "defect", "good", "labels.csv"]
    with (tmp_path / "out" / "labels.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [row["label"] for row in rows] == ["defect", "good", "defect"]
    assert (tmp_path / "out" / rows[0]["file"]).read_bytes() == (tmp_path / "good" / "020.png").read_bytes()
    assert rows[0]["note"] == "a scratch after all" and float(rows[0]["score"]) > 0


def test_the_journal_says_who_said_and_did_what(run: Run, labelled: Path) -> None:
    run("inbox", "label", labelled, 1, "defect", "--who", "Ben", "--note", "a scratch after all")
    run("inbox", "remove", labelled, 2, "--who", "Cy")
    run("inbox", "recalibrate", labelled, "--false-alarm", "30%", "--who", "Di", "--note", "too lax")
    lines = run("inbox", "journal", labelled).out.splitlines()
    assert "recalibrate" in lines[0] and "threshold" in lines[0] and lines[0].endswith("by Di: too lax")
    assert "withdrawn part 2 021.png" in lines[2] and lines[2].endswith("by Cy")
    assert "defect    part 1 020.png" in lines[3] and lines[3].endswith("by Ben: a scratch after all")
    assert sum("by Ada: only dust" in line for line in lines) == 3  # what was said before is still there
    entries = json.loads(run("inbox", "journal", labelled, "--json").out)
    assert [one["id"] for one in entries] == list(range(len(lines), 0, -1))


def test_wrong_usage_is_one_line(run: Run, labelled: Path, tmp_path: Path) -> None:
    assert_one_line_error(run("inbox", "list", tmp_path / "no.mhpc"), 4, "no.mhpc")
    assert_one_line_error(run("inbox", "add", labelled, "bad", tmp_path / "good"), 2, "good or defect")
    assert_one_line_error(run("inbox", "label", labelled, 99, "good"), 2, "no part 99")
    assert_one_line_error(run("inbox", "remove", labelled, 99), 2, "no part 99")
    assert_one_line_error(run("inbox", "preview", "forget", labelled), 2, "learn or teach or recalibrate")
    assert_one_line_error(run("inbox", "learn", labelled, "--id", 4), 2, "part 4 is a defect")
    assert_one_line_error(run("inbox", "undo", labelled), 2, "no earlier version")
    assert_one_line_error(run("inbox", "recalibrate", labelled, "--false-alarm", "2"), 2, "between 0 and 0.5")
    torn = tmp_path / "torn.png"
    torn.write_bytes(b"torn")
    assert_one_line_error(run("inbox", "add", labelled, "good", torn), 3, "torn.png")
    (tmp_path / "other.sqlite").write_bytes(b"x" * 1000)
    wrong = run("inbox", "list", labelled, "--inbox", tmp_path / "other.sqlite")
    assert_one_line_error(wrong, 2, "other.sqlite")
