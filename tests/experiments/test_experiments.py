"""A grid runs cell by cell in processes of their own, is resumed where it stopped, and outlives what fails."""

from __future__ import annotations

import csv
import json
import os
import re
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from cli_runs import Run, assert_one_line_error, files_below, graphs, run
from made_up_rows import made_up
from sklearn.metrics import roc_auc_score
from small_detector import PIXELS

from mhpatchcore.demo.dataset import write_demo_dataset
from mhpatchcore.experiments import cells as grid
from mhpatchcore.experiments.cells import NOT_IN_CSV, CellSpec, Outcome, read_rows, run_cell, run_grid
from mhpatchcore.experiments.ladder import LADDER, STREAM
from mhpatchcore.presets import OPEN_NETWORK, PAPER, PRESETS

__all__ = ["graphs", "run"]  # fixtures

CHANGES = {"sizes": 96, "resize": 112, "K": 200, "m_c": 64}
PHASES = ["extract", "moments", "metric", "bank", "calibrate", "score", "score and map", "metrics"]
FIGURES = ["histogram", "precision-recall", "report", "roc"]
TABLES = ["tables.html", "tables.md", "tables.tex"]


def spec_of(data: Path, preset: str, **changes: object) -> CellSpec:
    return CellSpec(str(data), preset, PRESETS[preset].config.with_changes(**{**CHANGES, **changes}))


def write_vials(root: Path) -> Path:
    return write_demo_dataset(root, train=4, good=2, per_defect=1, pixels=PIXELS)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two categories; one of them has a training image that cannot be read."""
    root = tmp_path_factory.mktemp("data")
    write_vials(root / "01")
    (write_vials(root / "spoilt") / "train" / "good" / "002.png").write_bytes(b"no picture")
    return root


@pytest.fixture(scope="module")
def finished(
    data: Path, graphs: Path, tmp_path_factory: pytest.TempPathFactory
) -> tuple[list[Outcome], Path]:
    """A grid that has run, with a failure in its midst."""
    specs = [
        spec_of(data / "01", "patchcore"),
        spec_of(data / "spoilt", "mh"),
        spec_of(data / "01", "mh"),
    ]
    folder = tmp_path_factory.mktemp("results")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MHPATCHCORE_CACHE", str(graphs))
        return run_grid(specs, folder), folder


def test_a_failing_cell_is_reported_and_the_others_go_on(finished: tuple[list[Outcome], Path]) -> None:
    outcomes, folder = finished
    assert [outcome.row is None for outcome in outcomes] == [False, True, False]
    assert all(outcome.fresh for outcome in outcomes)
    error = outcomes[1].error
    assert error is not None and error.startswith("cannot read image") and "002.png" in error
    cells = [f"cells/01--{preset}.{suffix}" for preset in ("mh", "patchcore") for suffix in ("csv", "json")]
    figures = [
        f"figures/01--{preset}/{name}.{suffix}"
        for preset in ("mh", "patchcore")
        for name in FIGURES
        for suffix in (("html",) if name == "report" else ("png", "svg"))
    ]
    assert files_below(folder) == ["cells.csv", "cells.json", *cells, *figures, "phases.csv"]


def test_the_verdict_on_every_image_is_kept(finished: tuple[list[Outcome], Path], data: Path) -> None:
    outcomes, folder = finished
    with (folder / "cells" / "01--mh.csv").open(newline="") as file:
        lines = list(csv.DictReader(file))
    row = outcomes[2].row
    assert row is not None and len(lines) == row["n_test"]
    assert all((data / "01" / line["image"]).is_file() for line in lines)
    labels, scores = [int(line["is_anomalous"]) for line in lines], [float(line["score"]) for line in lines]
    assert roc_auc_score(labels, scores) == pytest.approx(row["image_auroc"], abs=1e-12)
    flagged = [float(line["score"]) > float(line["threshold"]) for line in lines]
    assert flagged == [line["flagged"] == "1" for line in lines]
    assert all((line["located"] in ("0", "1")) == (line["is_anomalous"] == "1") for line in lines)
    found = [line for line in lines if line["verdict"] == "found"]
    assert len(found) == row["found_where_it_is"]
    assert sum(found and not bad for found, bad in zip(flagged, labels, strict=True)) == row["false_alarms"]


def test_costs_are_told_phase_by_phase(finished: tuple[list[Outcome], Path]) -> None:
    outcomes, folder = finished
    phases = [phase for phase in read_rows(folder / "phases.csv") if phase["preset"] == "patchcore"]
    assert [phase["name"] for phase in phases] == PHASES
    layers, bytes_each = 40 * 12 * 12 + 112 * 6 * 6, 2  # two layers on their own grids
    assert [phase["bytes_stored"] > 4 * layers * bytes_each for phase in phases] == [
        True,
        *[False] * (len(PHASES) - 1),
    ]
    assert all(phase["dataset"] == "01" and phase["peak_rss"] > 30e6 for phase in phases)
    row = outcomes[0].row
    assert row is not None
    inside = [phase for phase in phases if phase["name"] != "metrics"]
    assert row["peak_rss"] >= max(phase["peak_rss"] for phase in inside)
    assert row["cell_seconds"] > row["fit_seconds"] + row["calibration_seconds"] + row["infer_seconds"]
    assert sum(phase["wall_seconds"] for phase in phases) < row["cell_seconds"]


def test_a_row_says_what_a_cell_gives_and_costs(finished: tuple[list[Outcome], Path]) -> None:
    row = finished[0][2].row
    assert row is not None
    assert (row["dataset"], row["preset"], row["n_train"], row["n_test"]) == ("01", "mh", 4, 6)
    assert row["n_anomalous"] == 4 and row["rows"] <= 200 and row["problems"] == []
    assert all(0 <= row[name] <= 1 for name in ("image_auroc", "image_ap", "pixel_auroc", "pixel_aupro"))
    assert 0 < row["baseline_rss"] < row["fit_peak_rss"] <= row["peak_rss"]
    assert row["ms_per_image"] == pytest.approx(1000 * row["infer_seconds"] / 6)
    assert (row["n_learnt"], row["n_available"]) == (4, 4)
    assert [phase["name"] for phase in row["telemetry"]["phases"]] == PHASES


def test_calibration_is_no_part_of_the_training_time(finished: tuple[list[Outcome], Path]) -> None:
    row = finished[0][2].row
    assert row is not None
    times = {phase["name"]: phase["wall_seconds"] for phase in row["telemetry"]["phases"]}
    assert row["calibration_seconds"] == times["calibrate"] > 0
    in_passes = times["extract"] + times["moments"] + times["metric"] + times["bank"]
    assert in_passes <= row["fit_seconds"] < row["cell_seconds"] - times["calibrate"]
    assert row["infer_seconds"] == times["score"]
    assert row["ms_per_image_with_map"] == pytest.approx(1000 * times["score and map"] / 6)


def test_what_does_not_calibrate_has_no_calibration_time_and_judges_nothing(
    data: Path, tmp_path: Path
) -> None:
    row = run_cell(replace(spec_of(data / "01", "mh-kmeans", K=50), figures=False), tmp_path)
    assert row["calibration_seconds"] is None and row["n_learnt"] == row["n_train"] == 4
    assert (row["false_alarms"], row["misses"], row["found_where_it_is"]) == (None, None, None)
    with (tmp_path / "cells" / "01--mh-kmeans.csv").open(newline="") as file:
        assert {line["verdict"] for line in csv.DictReader(file)} == {"not judged"}


def test_pixel_figures_are_those_of_the_crop_and_of_whole_images(
    finished: tuple[list[Outcome], Path],
) -> None:
    row = finished[0][2].row
    assert row is not None and PRESETS["mh"].config.resize is not None
    assert all(0 <= row[f"whole_pixel_{name}"] <= 1 for name in ("auroc", "ap", "aupro"))
    assert row["whole_pixel_auroc"] != row["pixel_auroc"]


def test_rows_read_back_from_csv_and_json(finished: tuple[list[Outcome], Path]) -> None:
    outcomes, folder = finished
    rows = [outcome.row for outcome in outcomes if outcome.row is not None]
    assert json.loads((folder / "cells.json").read_text()) == rows
    shorter = [{name: row[name] for name in row if name not in NOT_IN_CSV} for row in rows]
    assert read_rows(folder / "cells.csv") == shorter


def test_missing_figures_are_empty_in_csv(tmp_path: Path) -> None:
    row = made_up(dataset="007", pixel_auroc=None, image_auroc=1.0)
    grid.write_rows([row], tmp_path)
    (back,) = read_rows(tmp_path / "cells.csv")
    assert back == {name: row[name] for name in row if name not in NOT_IN_CSV}


def test_a_finished_cell_is_kept_and_a_changed_one_runs_again(
    finished: tuple[list[Outcome], Path], data: Path, graphs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MHPATCHCORE_CACHE", str(graphs))
    outcomes, folder = finished
    seen: list[tuple[int, int, bool]] = []
    again = run_grid(
        [spec_of(data / "01", "patchcore"), spec_of(data / "01", "mh", m_c=32)],
        folder,
        lambda done, total, outcome: seen.append((done, total, outcome.fresh)),
    )
    assert seen == [(1, 2, False), (2, 2, True)]
    assert again[0].row == outcomes[0].row
    assert again[1].row is not None and again[1].row["rows"] < 64
    assert run_grid([spec_of(data / "01", "mh", m_c=32)], folder)[0] == replace(again[1], fresh=False)


def test_a_cell_without_its_files_runs_again(
    finished: tuple[list[Outcome], Path], data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = shutil.copytree(finished[1], tmp_path / "copy")
    spec = spec_of(data / "01", "patchcore")
    monkeypatch.setattr(grid, "_run", lambda spec, folder: Outcome(spec, made_up(), fresh=True))
    assert not run_grid([spec], folder)[0].fresh
    (folder / "figures" / spec.name / "report.html").unlink()
    assert run_grid([spec], folder)[0].fresh


@pytest.mark.parametrize("content", ["", "{", "[]", "{}", '{"key": "other", "row": {}}'])
def test_a_damaged_cell_runs_again(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: str
) -> None:
    spec = spec_of(data / "01", "mh")
    (tmp_path / "cells").mkdir()
    (tmp_path / "cells" / f"{spec.name}.json").write_text(content)
    monkeypatch.setattr(grid, "_run", lambda spec, folder: Outcome(spec, made_up(), fresh=True))
    assert run_grid([spec], tmp_path)[0].fresh


def test_the_key_knows_everything_a_result_depends_on(tmp_path: Path) -> None:
    root = write_vials(tmp_path / "vials")
    weights = tmp_path / "weights.pth"
    weights.write_bytes(b"1")
    spec = replace(spec_of(root, "mh"), weights=str(weights))
    assert spec.key() == replace(spec, data=str(root / ".." / "vials")).key()
    keys = {spec.key(), replace(spec, train=2).key(), replace(spec, weights=None).key()}
    keys.add(replace(spec, config=spec.config.with_changes(K=300)).key())
    for changed in ("train/good/000.png", "test/good/000.png", "ground_truth/scratch/000_mask.png"):
        os.utime(root / changed, (1, 1))
        keys.add(spec.key())
    (root / "test" / "good" / "001.png").rename(root / "test" / "scratch" / "001.png")
    keys.add(spec.key())
    weights.write_bytes(b"22")
    keys.add(spec.key())
    assert len(keys) == 9


def test_a_spec_travels_as_json() -> None:
    spec = CellSpec("a/b", "mh", PRESETS["mh"].config, "w.pth", 300, figures=False)
    assert CellSpec.from_json(json.loads(json.dumps(spec.to_json()))) == spec
    assert spec.name == "b--mh--n300"


def test_the_benchmark_command_resumes_and_writes_tables(
    run: Run, finished: tuple[list[Outcome], Path], data: Path, tmp_path: Path
) -> None:
    settings = tmp_path / "small.toml"
    settings.write_text("".join(f"{name} = {value}\n" for name, value in CHANGES.items()))
    chosen = ("--presets", "patchcore,", "--categories", "01", "--settings", settings)
    ran = run("benchmark", data, *chosen, "--out", finished[1])
    assert ran.code == 0
    assert "[1/1] 01--patchcore: image" in ran.err and ran.err.endswith("(kept)\n")
    assert all(line.startswith("wrote ") for line in ran.out.splitlines())
    written = files_below(finished[1])
    assert {*TABLES, "figures/pareto.png", "figures/pareto.svg"} <= set(written)
    assert "| 01 | image + pixel | 4 | 6 | 4 |" in (finished[1] / "tables.md").read_text()
    page = (finished[1] / "tables.html").read_text()
    assert 'src="data:image/svg+xml;base64,' in page
    beside = re.findall(r'(?:src|href)="(figures/[^"]+)"', page)
    assert [Path(name).name for name in beside] == ["histogram.png", "report.html"]
    assert all((finished[1] / name).is_file() for name in beside)


def test_all_presets_are_those_that_leave_the_network_open(
    run: Run, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(grid, "_run", failing_if_spoilt)
    assert run("benchmark", data, "--categories", "01", "--out", tmp_path).code == 0
    assert [row["preset"] for row in read_rows(tmp_path / "cells.csv")] == list(OPEN_NETWORK)
    assert "paper" not in OPEN_NETWORK


@pytest.fixture
def planned(monkeypatch: pytest.MonkeyPatch) -> list[CellSpec]:
    """The cells that a command would run, none of which is."""
    specs: list[CellSpec] = []

    def noted(spec: CellSpec, folder: Path) -> Outcome:
        specs.append(spec)
        return failing_if_spoilt(spec, folder)

    monkeypatch.setattr(grid, "_run", noted)
    return specs


@pytest.mark.parametrize(
    ("given", "network"),
    [
        ((), ("wide_resnet50_2", "tv2_in1k", ("layer2", "layer3"))),
        (("--backbone", "resnet50"), ("resnet50", "", ())),
        (("--backbone", "resnet50", "--tag", "a1_in1k"), ("resnet50", "a1_in1k", ())),
        (("--tag", "tv_in1k"), ("wide_resnet50_2", "tv_in1k", ("layer2", "layer3"))),
    ],
)
def test_the_whole_paper_in_one_command(
    run: Run, data: Path, tmp_path: Path, planned: list[CellSpec], given: tuple[str, ...], network: object
) -> None:
    chosen = ("--paper", "--presets", "default", "--categories", "01", *given)
    assert run("benchmark", data, *chosen, "--out", tmp_path).code == 0
    assert [spec.preset for spec in planned] == [*PAPER, "default"]
    assert {(spec.config.backbone, spec.config.tag, spec.config.layers) for spec in planned} == {network}


def test_the_ladder_lets_a_model_grow(run: Run, data: Path, tmp_path: Path, planned: list[CellSpec]) -> None:
    chosen = ("--sizes", "2,4", "--update", "--presets", "default")
    assert run("ladder", data / "01", *chosen, "--out", tmp_path).code == 0
    assert [spec.grown for spec in planned if spec.grown] == [(2,), (2, 4)]
    assert [spec.preset for spec in planned if spec.train == 2 and not spec.grown] == [*LADDER, "default"]


def test_a_model_that_grows_learns_only_the_further_images(
    data: Path, graphs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MHPATCHCORE_CACHE", str(graphs))
    spec = replace(spec_of(data / "01", "mh"), figures=False)
    first, second = (replace(spec, train=steps[-1], grown=steps) for steps in ((2,), (2, 4)))
    assert second.before == first and first.before is None
    outcomes = run_grid([first, second], tmp_path)
    rows = [outcome.row for outcome in outcomes if outcome.row is not None]
    assert len(rows) == 2, [outcome.error for outcome in outcomes]
    assert [(row["n_learnt"], row["n_train"], row["grown_in"]) for row in rows] == [(2, 2, 1), (4, 4, 2)]
    extracted = next(phase for phase in rows[1]["telemetry"]["phases"] if phase["name"] == "extract")
    assert extracted["items"] == 2


def failing_if_spoilt(spec: CellSpec, folder: Path) -> Outcome:
    if "spoilt" in spec.data:
        return Outcome(spec, None, error="a reason", fresh=True)
    row = made_up(dataset=Path(spec.data).name, preset=spec.preset, n_train=spec.train, image_auroc=None)
    return Outcome(spec, row, fresh=True)


def test_the_benchmark_command_tells_of_failures(
    run: Run, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(grid, "_run", failing_if_spoilt)
    monkeypatch.chdir(data)
    ran = run("benchmark", ".", "--presets", "mh, default", "--out", tmp_path, "--json")
    assert ran.code == 6
    told = json.loads(ran.out)
    assert [row["preset"] for row in told["cells"]] == ["mh", "default"]
    assert told["failed"][0] == {"cell": "spoilt--mh", "error": "a reason"}
    assert "spoilt--default: FAILED: a reason" in ran.err and "2 of 4 cells failed" in ran.err
    assert set(TABLES) <= set(files_below(tmp_path))


def test_the_ladder_command(run: Run, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(grid, "_run", failing_if_spoilt)
    ran = run("ladder", data / "01", "--sizes", "4, 2,300", "--out", tmp_path)
    assert ran.code == 0 and "warning: " in ran.err and "4 normal images" in ran.err
    rows = read_rows(tmp_path / "cells.csv")
    assert {row["n_train"] for row in rows} == {2, 4} and len(rows) == 2 * len(LADDER)
    assert files_below(tmp_path) == [
        *(
            "cells.csv",
            "cells.json",
            "figures/ram-growth.png",
            "figures/ram-growth.svg",
        ),  # nothing to show of AUROC
        *("ladder.html", "ladder.md", "ladder.tex", "phases.csv"),
    ]


def test_the_ladder_runs_the_stream_on_the_full_set(
    run: Run, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(grid, "_run", failing_if_spoilt)
    assert run("ladder", data / "01", "--sizes", "2,3", "--out", tmp_path).code == 0
    rows = read_rows(tmp_path / "cells.csv")
    assert [row["preset"] for row in rows if row["n_train"] == 4] == [STREAM]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("benchmark", "--presets", "best"), ("unknown preset 'best'", "mh-kmeans")),
        (("benchmark", "--presets", ","), ("nothing to run",)),
        (("benchmark", "--categories", "pill"), ("no category 'pill'", "01, spoilt")),
        (("ladder", "--sizes", "few"), ("--sizes", "'few'")),
        (("ladder", "--sizes", "0,4"), ("--sizes", "'0,4'")),
        (("ladder", "--sizes", "300"), ("4 normal images",)),
    ],
)
def test_wrong_requests_are_named(
    run: Run, data: Path, tmp_path: Path, arguments: tuple[str, ...], words: tuple[str, ...]
) -> None:
    command, *flags = arguments
    folder = data if command == "benchmark" else data / "01"
    assert_one_line_error(run(command, folder, *flags, "--out", tmp_path / "out"), 2, *words)
    assert not (tmp_path / "out").exists()
