"""Drift: what changes for good parts is seen, more defects alone are not one, and bad input is named."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from cli_runs import Run, assert_one_line_error, graphs, run, write_vials
from PIL import Image
from small_detector import small_detector

from mhpatchcore import UserError
from mhpatchcore.calibration.threshold import calibrate
from mhpatchcore.inspection.drift import compare

__all__ = ["graphs", "run"]  # fixtures


def normal_scores(seed: int, n: int) -> np.ndarray:
    return np.random.default_rng(seed).lognormal(3.4, 0.15, n)


def held_out(seed: int = 0, n: int = 100, method: str = "held-out"):  # type: ignore[no-untyped-def]
    return calibrate(normal_scores(seed, n), normal_scores(seed, n), 0.05, method)


def test_false_alarms_are_as_rare_as_stated() -> None:
    called = [
        compare(normal_scores(1000 + i, 60), held_out(i), significance=0.05).is_drift for i in range(120)
    ]
    assert 0 < np.mean(called) < 0.11  # three standard errors around 5 %


@pytest.mark.parametrize("factor", [1.2, 0.85])
def test_shifts_both_ways_are_seen(factor: float) -> None:
    drift = compare(normal_scores(1, 100) * factor, held_out())
    assert drift.is_drift and drift.shift_p < 1e-3
    assert ("shifted up" if factor > 1 else "shifted down") in drift.verdict


def test_defects_that_are_rejected_are_no_drift() -> None:
    mixed = np.concatenate([normal_scores(1, 80), np.full(20, 500.0)])
    drift = compare(mixed, held_out())
    assert drift.all_p < 0.05 < drift.shift_p
    assert not drift.is_drift and drift.many_rejects and "look for defects" in drift.verdict
    assert drift.reject_rate >= 0.2


def test_mostly_rejected_is_drift() -> None:
    drift = compare(np.full(30, 500.0), held_out())
    assert drift.is_drift and drift.shift_p == 1.0 and "100% of the images exceed" in drift.verdict


def test_cross_image_scores_show_shifts_up_alone() -> None:
    own = held_out(method="cross-image")
    down, up = (normal_scores(1, 100) * factor for factor in (0.85, 1.2))
    assert not compare(down, own).is_drift and compare(down, own).upward_only
    assert compare(up, own).is_drift
    assert compare(down, own, reference=normal_scores(2, 100)).is_drift


def test_nothing_to_compare() -> None:
    with pytest.raises(UserError, match="no scores"):
        compare([], held_out())
    with pytest.raises(UserError, match="no calibration scores"):
        compare([1.0], calibrate(np.empty(0), np.empty(0), 0.05, "held-out"))
    with pytest.raises(UserError, match="between 0 and 1"):
        compare([1.0], held_out(), significance=2)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("monitor") / "part.mhpc"
    small_detector().save(path)
    return path


def write_csv(path: Path, scores: np.ndarray, threshold: float | None = None) -> Path:
    limit = small_detector().threshold if threshold is None else threshold
    lines = ["image,score,threshold,is_rejected,p_value,regions"]
    lines += [f"{i}.png,{score},{limit},{score > limit},0.5,0" for i, score in enumerate(scores)]
    path.write_text("\n".join(lines) + "\n")
    return path


def test_a_folder_and_its_scores_say_the_same(run: Run, model: Path, tmp_path: Path) -> None:
    images = write_vials(tmp_path / "new", 5, first=60)
    (tmp_path / "scores.csv").write_text(run("score", model, images, "--csv", "-").out)
    told = [
        json.loads(run("monitor", model, source, "--json").out)
        for source in (images, tmp_path / "scores.csv")
    ]
    (images / "broken.png").write_bytes(b"no picture")
    assert_one_line_error(run("monitor", model, images), 3, "broken.png")
    ran = run("monitor", model, images, "--skip-broken", "--json")
    assert json.loads(ran.out) == told[0] and "skipped" in ran.err
    # as spreadsheets save it
    (tmp_path / "scores.csv").write_text("\ufeff" + (tmp_path / "scores.csv").read_text())
    assert json.loads(run("monitor", model, tmp_path / "scores.csv", "--json").out) == told[1]
    assert told[0]["n"] == 5
    for name, value in told[0].items():
        assert told[1][name] == (pytest.approx(value, rel=1e-4) if isinstance(value, float) else value), name


def test_fail_and_plot(run: Run, model: Path, tmp_path: Path) -> None:
    threshold = small_detector().threshold
    bad = write_csv(tmp_path / "bad.csv", np.linspace(1.5, 3, 40) * threshold)
    calm = write_csv(tmp_path / "calm.csv", np.linspace(0.1, 0.5, 40) * threshold)
    ran = run("monitor", model, bad, "--fail", "--plot", tmp_path / "drift.png")
    assert ran.code == 1 and ran.out.startswith("drift: ") and "drift.png" in ran.out
    with Image.open(tmp_path / "drift.png") as picture:
        assert picture.width > 1000
    assert run("monitor", model, bad).code == 0
    ran = run("monitor", model, calm, "--fail")
    assert ran.code == 0 and ran.out.startswith("no drift") and "--reference" in ran.out
    better = write_csv(tmp_path / "better.csv", np.linspace(0.02, 0.1, 40) * threshold)
    ran = run("monitor", model, calm, "--reference", better, "--fail", "--json")
    assert ran.code == 1 and json.loads(ran.out)["n_reference"] == 40


def test_scores_of_another_model_are_noticed(run: Run, model: Path, tmp_path: Path) -> None:
    ran = run("monitor", model, write_csv(tmp_path / "other.csv", np.array([1.0, 2.0]), threshold=7.0))
    assert ran.code == 0 and ran.err.startswith("warning: ") and "another threshold" in ran.err


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("name,points\na,1\n", ("no column of scores",)),
        ("image,score\na,much\n", ("no column of scores", "much")),
        ("image,score\na,nan\n", ("not numbers",)),
        ("image,score\n", ("no scores",)),
        (None, ("cannot read scores", "No such file")),
    ],
)
def test_bad_scores_are_named(
    run: Run, model: Path, tmp_path: Path, text: str | None, words: tuple[str, ...]
) -> None:
    path = tmp_path / "scores.csv"
    if text is not None:
        path.write_text(text)
    assert_one_line_error(run("monitor", model, path), 2, *words)


def test_a_plot_of_an_unknown_kind(run: Run, model: Path, tmp_path: Path) -> None:
    scores = write_csv(tmp_path / "calm.csv", np.array([1.0, 2.0]))
    assert_one_line_error(run("monitor", model, scores, "--plot", tmp_path / "drift.doc"), 2, ".png or .svg")
