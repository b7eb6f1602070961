"""Batch scoring and many models on a cluster of two processes, and a run that is killed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from cli_runs import Run, graphs, run, write_vials  # noqa: F401 (fixtures)
from same_model import assert_same_model
from small_detector import small_detector

from mhpatchcore import Detector
from mhpatchcore.batch import scoring
from mhpatchcore.errors import UserError
from mhpatchcore.fitting.dask_executor import DaskExecutor
from mhpatchcore.fitting.execution import Threads

parquet = pytest.importorskip("pyarrow.parquet")

IN_PARTS = "from mhpatchcore.batch import scoring; scoring.PART = 2; from mhpatchcore.cli import main; main()"


@pytest.fixture(scope="module")
def line(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("line")
    small_detector().save(folder / "part.mhpc")
    write_vials(folder / "plant/vial", 8, first=100)
    write_vials(folder / "plant/cap", 4, first=200)
    return folder


def rows(table: Path) -> list[dict[str, object]]:
    return [{**row, "seconds": 0} for row in parquet.read_table(table).to_pylist()]


def test_a_cluster_writes_the_same_table(
    run: Run,  # noqa: F811
    line: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pytest.importorskip("distributed")
    monkeypatch.setattr(scoring, "PART", 3)
    command = ("score", line / "part.mhpc", line / "plant", "-q", "--json", "--out")
    here = run(*command, tmp_path / "here")
    there = run(*command, tmp_path / "there", "--cluster", "local:2")
    assert here.code == there.code == 0 and "cluster: 2 workers" in there.err, there
    assert json.loads(there.out)["scored"] == 12
    assert rows(tmp_path / "here") == rows(tmp_path / "there")
    again = run(*command, tmp_path / "there")  # what a cluster has begun, one machine goes on with
    assert json.loads(again.out)["kept"] == 12


def test_workers_that_see_other_images_are_refused(line: Path, tmp_path: Path) -> None:
    pytest.importorskip("distributed")
    image = tmp_path / "1.png"

    class Client:
        """A worker that looks when the image has changed."""

        def run(self, task: Any, *arguments: Any) -> dict[str, str]:
            image.write_bytes(b"another")
            return {"tcp://127.0.0.1:1": task(*arguments)}

    image.write_bytes((line / "plant/cap/200.png").read_bytes())
    with pytest.raises(UserError, match=r"worker tcp://127.0.0.1:1 of the cluster does not see .*1.png"):
        DaskExecutor(Client()).check(None, image, print)
    Client.run = lambda self, task, *arguments: {}  # type: ignore[method-assign]
    with pytest.raises(UserError, match="the cluster has no workers"):
        DaskExecutor(Client()).check(None, image, print)
    Threads(1).check(None, image, print)


def test_a_cluster_makes_the_same_models(run: Run, line: Path, tmp_path: Path) -> None:  # noqa: F811
    pytest.importorskip("distributed")
    command = ("fit-many", line / "plant", "--size", "64", "-K", "50", "--local-rows", "32", "-q", "-o")
    here, there = run(*command, tmp_path / "here"), run(*command, tmp_path / "there", "--cluster", "local:2")
    assert here.code == there.code == 0, there.err
    for product in ("cap", "vial"):
        one, other = (Detector.load(tmp_path / name / f"{product}.mhpc") for name in ("here", "there"))
        assert_same_model(one, other)


def test_a_run_that_is_killed_goes_on(line: Path, tmp_path: Path) -> None:
    out = tmp_path / "results"
    command = ("score", line / "part.mhpc", line / "plant", "--workers", "1", "--json", "--out")
    first = subprocess.Popen(
        [sys.executable, "-c", IN_PARTS, *map(str, (*command, out, "--heatmaps", tmp_path / "heat"))],
        stdout=subprocess.DEVNULL,
    )
    until = time.monotonic() + 60
    while not (out / "part-00001.parquet").is_file() and time.monotonic() < until:
        time.sleep(0.01)
    os.kill(first.pid, signal.SIGKILL)
    assert first.wait() in (-signal.SIGKILL, 0)  # where this process had to wait, the other may have finished

    def finished(*arguments: object) -> dict[str, int]:
        done = subprocess.run(
            [sys.executable, "-c", IN_PARTS, *map(str, arguments)], capture_output=True, text=True, check=True
        )
        return dict(json.loads(done.stdout))

    facts = finished(*command, out, "--heatmaps", tmp_path / "heat")
    assert facts["kept"] >= 4 and facts["kept"] + facts["scored"] == 12
    finished(*command, tmp_path / "whole")
    assert rows(out) == rows(tmp_path / "whole")
    pictures = [path for path in (tmp_path / "heat").rglob("*.png") if not path.name.startswith(".")]
    assert (
        len(pictures) == 12
    )  # besides, perhaps, the one that the kill has cut off, under its temporary name
