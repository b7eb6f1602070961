"""Batch scoring: a table in parts, which a second run goes on with."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cli_runs import Run, assert_one_line_error, graphs, run, write_vials  # noqa: F401 (fixtures)
from process_executor import Processes
from remote_places import BUCKET, s3_server, upload
from small_detector import small_detector, with_threshold

from mhpatchcore import Detector
from mhpatchcore.batch import scoring
from mhpatchcore.batch.scoring import RECORD
from mhpatchcore.errors import ImageError, ModelFileError, UserError
from mhpatchcore.fitting.execution import Threads
from mhpatchcore.inputs.sources import content_hash, list_images

parquet = pytest.importorskip("pyarrow.parquet")


@pytest.fixture(autouse=True)
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scoring, "PART", 3)


@pytest.fixture(scope="module")
def line(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model and eight images, of which one is broken."""
    folder = tmp_path_factory.mktemp("line")
    detector, images = small_detector(), write_vials(folder / "parts", 7, first=100)
    middle = np.median([result.score for result in detector.score_many(images) if result is not None])
    with_threshold(detector, float(middle)).save(folder / "part.mhpc")
    (folder / "parts/broken.png").write_bytes(b"no image")
    return folder


@pytest.fixture
def parts(line: Path, tmp_path: Path) -> Path:
    """A copy that may be changed."""
    return Path(shutil.copytree(line / "parts", tmp_path / "parts"))


def done_by(model: Path, images: Path | list[Path], out: Path, executor: Any = None) -> list[scoring.Done]:
    batch = scoring.Batch.of(model, out)
    return list(scoring.score_batch(batch, list_images(images), executor or Threads(2)))


def table(out: Path | str) -> list[dict[str, Any]]:
    return list(parquet.read_table(out).to_pylist())


def test_the_table_says_what_the_detector_says(line: Path, tmp_path: Path) -> None:
    done = done_by(line / "part.mhpc", line / "parts", tmp_path / "results")
    assert [one.images for one in done] == [one.scored for one in done] == [3, 3, 2]
    rows, detector = table(tmp_path / "results"), Detector.load(line / "part.mhpc")
    assert [row["image"] for row in rows] == [str(path) for path in list_images(line / "parts")]
    for row in rows[:-1]:
        result = detector.score(row["image"])
        assert (row["score"], row["threshold"], row["p_value"], row["verdict"]) == (
            result.score,
            result.threshold,
            result.p_value,
            result.verdict,
        )
        assert row["boxes"] == [list(region.box) for region in result.regions]
        assert row["regions"] == len(row["boxes"]) and row["sha256"] == content_hash(row["image"])
        assert row["seconds"] > 0 and row["error"] is None
    assert {row["verdict"] for row in rows} == {"passed", "rejected", "unreadable"}
    broken = rows[-1]
    assert broken["verdict"] == "unreadable" and "broken.png" in broken["error"] and broken["score"] is None
    assert sum(one.verdicts.get("rejected", 0) for one in done) == 3


def test_a_second_run_scores_only_what_has_changed(line: Path, parts: Path, tmp_path: Path) -> None:
    model, out = line / "part.mhpc", tmp_path / "results"
    done_by(model, parts, out)
    before = table(out)
    assert not any(one.scored for one in done_by(model, parts, out)) and table(out) == before
    shutil.copy(parts / "103.png", parts / "105.png")  # in the second part
    (out / "part-00002.parquet").write_bytes(b"damaged")
    assert [one.scored for one in done_by(model, parts, out)] == [0, 3, 2]
    rows = table(out)
    assert rows[5]["sha256"] == rows[3]["sha256"] and rows[5]["score"] == rows[3]["score"]
    for path in sorted(parts.glob("*.png"))[3:]:
        path.unlink()
    assert [one.scored for one in done_by(model, parts, out)] == [0]
    assert [row["image"] for row in table(out)] == [row["image"] for row in before[:3]]


def test_a_run_that_was_ended_goes_on(line: Path, tmp_path: Path) -> None:
    out = tmp_path / "results"
    batch = scoring.Batch.of(line / "part.mhpc", out)
    parts = scoring.score_batch(batch, list_images(line / "parts"), Threads(1))
    next(parts)
    parts.close()  # type: ignore[attr-defined]
    assert json.loads((out / RECORD).read_text())["finished"] is False
    assert [one.scored for one in done_by(line / "part.mhpc", line / "parts", out)] == [0, 3, 2]
    assert json.loads((out / RECORD).read_text())["finished"] is True


def test_what_could_not_be_read_is_tried_again(
    line: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def gone(source: Any) -> Any:
        if str(source).endswith(("101.png", "104.png")):
            raise ImageError(f"cannot read {source}: the network is gone")
        return source

    out = tmp_path / "results"
    with monkeypatch.context() as patch:
        patch.setattr(scoring, "fetched", gone)
        done_by(line / "part.mhpc", line / "parts", out)
    assert [row["image"][-7:] for row in table(out) if row["error"]] == ["101.png", "104.png", "ken.png"]
    assert [one.scored for one in done_by(line / "part.mhpc", line / "parts", out)] == [1, 1, 0]
    done_by(line / "part.mhpc", line / "parts", tmp_path / "at once")
    one, other = ([{**row, "seconds": 0} for row in table(at)] for at in (out, tmp_path / "at once"))
    assert one == other


def test_a_name_that_is_no_text(line: Path, tmp_path: Path) -> None:
    odd = Path(shutil.copy(line / "parts/100.png", tmp_path / os.fsdecode(b"\xff.png")))
    done_by(line / "part.mhpc", [odd], tmp_path / "out")
    assert table(tmp_path / "out")[0]["image"] == f"{tmp_path}/\\udcff.png"


def test_processes_write_the_same_table(line: Path, tmp_path: Path) -> None:
    for name, executor in (("threads", Threads(2)), ("processes", Processes(2))):
        done_by(line / "part.mhpc", line / "parts", tmp_path / name, executor)
    both = [[{**row, "seconds": 0} for row in table(tmp_path / name)] for name in ("threads", "processes")]
    assert both[0] == both[1]


def test_another_model_leaves_nothing_of_the_first(line: Path, tmp_path: Path) -> None:
    out = tmp_path / "results"
    done_by(line / "part.mhpc", line / "parts", out)
    with_threshold(small_detector(), np.inf).save(tmp_path / "other.mhpc")
    some = sorted((line / "parts").iterdir())[:2]
    done_by(tmp_path / "other.mhpc", some, out)
    assert [row["verdict"] for row in table(out)] == ["no threshold"] * 2
    assert {row["threshold"] for row in table(out)} == {None}


def test_folders_of_others_are_left_alone(line: Path, tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine/part-00000.parquet").write_text("mine")
    with pytest.raises(UserError, match="mine holds other files: name a new folder"):
        done_by(line / "part.mhpc", line / "parts", tmp_path / "mine")
    with pytest.raises(UserError, match="is a file: --out names a folder"):
        done_by(line / "part.mhpc", line / "parts", tmp_path / "mine/part-00000.parquet")
    assert (tmp_path / "mine/part-00000.parquet").read_text() == "mine"


def test_a_worker_that_reads_another_model_says_so(line: Path, tmp_path: Path) -> None:
    model = shutil.copy(line / "part.mhpc", tmp_path / "part.mhpc")
    batch = scoring.Batch.of(model, tmp_path / "out")
    small_detector().save(model)
    with pytest.raises(ModelFileError, match="not the same file for every worker"):
        _ = batch.detector
    Path(model).unlink()
    with pytest.raises(ModelFileError, match=r"there is no model file .*every worker reads it"):
        _ = batch.detector


class Elsewhere:
    """Workers that write to folders of their own."""

    workers, remote = 2, True

    def __init__(self, out: Path) -> None:
        self.out = out

    def map(self, task: Any, items: Any) -> Iterator[Any]:
        for item in items:
            done = task(item)
            for path in self.out.glob("*[0-9].parquet"):
                path.unlink()
            yield done

    def for_large_tasks(self) -> tuple[Any, int]:
        return self, 1

    def check(self, *_: Any) -> None: ...


def test_workers_that_write_elsewhere_are_noticed(line: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="another folder for some workers"):
        done_by(line / "part.mhpc", line / "parts", tmp_path / "out", Elsewhere(tmp_path / "out"))


def test_the_command(run: Run, line: Path, tmp_path: Path) -> None:  # noqa: F811
    model, out, heat = line / "part.mhpc", tmp_path / "results", tmp_path / "heat"
    first = run("score", model, line / "parts", "--out", out, "--heatmaps", heat, "--json", "-q")
    facts = json.loads(first.out)
    assert first.code == 3 and facts["scored"] == facts["images"] == 8 and facts["kept"] == 0
    assert facts["verdicts"]["unreadable"] == 1 and len(list(heat.iterdir())) == 7
    again = run("score", model, line / "parts", "--out", out, "--heatmaps", heat, "--skip-broken", "--fail")
    assert again.code == 1 and "8 were there already" in again.out, again
    more = run("score", model, line / "parts", "--out", out, "--masks", tmp_path / "masks", "--skip-broken")
    assert more.code == 0 and "8 images scored" in more.out and len(list((tmp_path / "masks").iterdir())) == 7
    assert_one_line_error(run("score", model, line / "parts", "--cluster", "local:2"), 2, "--out")
    ran = run("score", model, line / "parts", "--out", out, "--csv", tmp_path / "a.csv")
    assert_one_line_error(ran, 2, "--csv")
    ran = run("score", model, line / "parts", "--out", tmp_path / "a.parquet", "--cluster", "local:2")
    assert_one_line_error(ran, 2, "--cluster", "a folder")
    coco = run("score", model, line / "parts", "--out", out, "--coco", tmp_path / "a.json")
    assert_one_line_error(coco, 2, "--coco")


@pytest.fixture(scope="module")
def bucket(line: Path) -> Iterator[str]:
    with s3_server():
        yield upload(line, BUCKET)


def test_from_a_bucket_to_a_bucket(bucket: str, run: Run, line: Path, tmp_path: Path) -> None:  # noqa: F811
    command = ("score", f"{bucket}/part.mhpc", f"{bucket}/parts", "--out", f"{bucket}/results")
    first = run(*command, "--heatmaps", f"{bucket}/heat", "--json", "--skip-broken", "-q")
    assert first.code == 0 and json.loads(first.out)["scored"] == 8, first.err
    again = run(*command, "--heatmaps", f"{bucket}/heat", "--json", "--skip-broken", "-q")
    assert json.loads(again.out)["kept"] == 8
    import fsspec

    system = fsspec.filesystem("s3")
    system.get(f"{bucket}/results/", str(tmp_path / "copy"), recursive=True)
    rows = table(tmp_path / "copy")
    done_by(line / "part.mhpc", line / "parts", tmp_path / "here")
    here = table(tmp_path / "here")
    assert [(row["sha256"], row["score"]) for row in rows[:-1]] == [
        (row["sha256"], row["score"]) for row in here[:-1]
    ]
    assert rows[0]["image"] == f"{bucket}/parts/100.png" and len(system.ls(f"{bucket}/heat")) == 7
