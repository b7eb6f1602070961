"""The record of verdicts: whole rows whatever happens, a bounded size, and the way out as files."""

from __future__ import annotations

import csv
import io
import json
import os
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from cli_runs import Run, assert_one_line_error, graphs, run  # noqa: F401 (fixtures)

from mhpatchcore.deploy import record as recording
from mhpatchcore.deploy.record import (
    COLUMNS,
    Keeping,
    Record,
    answer_of,
    as_csv,
    as_json_lines,
    as_parquet,
    in_utc,
    row_of,
    verdicts,
)
from mhpatchcore.errors import UserError
from mhpatchcore.inputs.loading import MEASURES

REGION = {"box": [1, 2, 3, 4], "area": 4, "peak": 2.5, "peak_at": [1, 2]}


def answer(n: int = 0, **changes: Any) -> dict[str, Any]:
    """A part as the service tells it."""
    return {
        "id": f"{n:016x}",
        "at": in_utc(datetime.now(UTC) + timedelta(milliseconds=n)),
        "part": f"LOT 7 /12/{n}",
        "name": "a.png",
        "model": "vial",
        "sha256": "5b" * 32,
        "score": 41.5,
        "threshold": 30.25,
        "p_value": 0.01,
        "verdict": "rejected",
        "reason": None,
        "defect": None,
        "is_like_known": None,
        "is_rejected": True,
        "trial": False,
        "size": [64, 48],
        "regions": [REGION],
        "camera": dict.fromkeys(MEASURES, 0.5) | {"part_x": None},
        "seconds": {"queue": 0.001, "decode": 0.002, "compute": 0.04},
        "image_sha256": "a3" * 32,
        **changes,
    }


PASSED = {"verdict": "passed", "is_rejected": False, "regions": []}
UNJUDGED = {
    "score": None,
    "p_value": None,
    "size": None,
    "regions": [],
    "camera": None,
    "reason": "cannot be read",
}
NO_THRESHOLD = {"verdict": "no threshold", "is_rejected": None, "threshold": None, "p_value": None}


def written(
    path: Path, *answers: dict[str, Any], keeping: Keeping | None = None, image: bytes = b"x"
) -> Path:
    record = Record(path, keeping)
    for one in answers:
        record.add(one, image)
    record.close()
    assert (record.lost, record.problem) == (0, "")
    return path


@pytest.mark.parametrize("changes", [{}, PASSED, UNJUDGED, NO_THRESHOLD, {"part": None, "trial": True}])
def test_what_is_told_of_a_part_comes_back_as_it_was(tmp_path: Path, changes: dict[str, Any]) -> None:
    told = answer(**changes)
    assert answer_of([row_of(told)[name] for name in COLUMNS]) == told
    assert list(verdicts(written(tmp_path / "v.sqlite", told))) == [told]


def test_verdicts_are_found_by_time_model_and_kind(tmp_path: Path) -> None:
    at = datetime(2026, 11, 18, 6, tzinfo=UTC)
    told = [answer(i, at=in_utc(at + timedelta(hours=i)), model="ab"[i % 2]) for i in range(4)]
    told[3] |= PASSED
    path = written(tmp_path / "v.sqlite", *told, keeping=Keeping(days=10**5))

    def ids(**query: Any) -> list[int]:
        return [int(one["id"], 16) for one in verdicts(path, **query)]

    assert ids() == [0, 1, 2, 3]
    assert ids(since=at + timedelta(hours=1), until=at + timedelta(hours=3)) == [1, 2]
    assert ids(since=datetime.fromisoformat("2026-11-18T09:00+01:00")) == [2, 3]
    assert ids(model="a") == [0, 2] and ids(verdict="passed") == [3] and ids(limit=1) == [0]


def test_the_oldest_go(tmp_path: Path) -> None:
    old = in_utc(datetime.now(UTC) - timedelta(days=3))
    path = written(tmp_path / "v.sqlite", answer(0, at=old), keeping=Keeping(days=2))
    assert list(verdicts(path)) == []
    written(path, *(answer(i) for i in range(9)), keeping=Keeping(rows=5))
    assert [one["id"] for one in verdicts(path)] == [answer(i)["id"] for i in range(4, 9)]


@pytest.mark.parametrize(("rule", "kept"), [("none", []), ("rejected", [0, 2]), ("all", [0, 1, 2])])
def test_images_are_kept_by_a_rule(tmp_path: Path, rule: str, kept: list[int]) -> None:
    told = [answer(0), answer(1, **PASSED), answer(2, **UNJUDGED)]
    written(tmp_path / "v.sqlite", *told, keeping=Keeping(images=rule))
    record = Record(tmp_path / "v.sqlite")
    found = record.newest(10, 10**6)
    record.close()
    assert [one for one, _ in found] == told
    assert [i for i, (_, image) in enumerate(found) if image == b"x"] == kept


def test_images_have_a_quota_and_go_with_their_rows(tmp_path: Path) -> None:
    keeping = Keeping(images="all", image_bytes=250, rows=4)
    path = written(tmp_path / "v.sqlite", *(answer(i) for i in range(5)), keeping=keeping, image=bytes(100))
    with closing(sqlite3.connect(path)) as db:
        assert db.execute("SELECT n FROM images").fetchall() == [(4,), (5,)]
    written(path, *(answer(i, **PASSED) for i in range(3)), keeping=Keeping(rows=1))
    with closing(sqlite3.connect(path)) as db:
        assert db.execute("SELECT count(*) FROM images").fetchone() == (0,)
    with pytest.raises(UserError, match="rejected"):
        Keeping(images="some")


def test_verdicts_wait_while_the_disk_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(recording, "AGAIN", 0.01)
    monkeypatch.setattr(recording, "MOST_WAITING", 5)
    record = Record(tmp_path / "v.sqlite")
    adding, fails = recording._add, True

    def add(*given: Any) -> None:
        if fails:
            raise sqlite3.OperationalError("database or disk is full")
        adding(*given)

    monkeypatch.setattr(recording, "_add", add)
    record.add(answer(0), None)
    while not record.problem:
        time.sleep(0.01)
    for i in range(1, 9):
        record.add(answer(i), None)
    assert record.lost == 4 and "disk is full" in record.problem
    fails = False
    record.close()
    assert [int(one["id"], 16) for one in verdicts(record.path)] == [0, 1, 2, 3, 4]
    assert len([one for one in caplog.records if "cannot be recorded now" in one.message]) == 1


def test_what_hangs_at_the_end_counts_as_lost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recording, "CLOSING", 0.2)
    hangs = threading.Event()
    monkeypatch.setattr(recording, "_add", lambda *_: hangs.wait(20))
    record = Record(tmp_path / "v.sqlite")
    for i in range(3):
        record.add(answer(i), None)
    record.close()
    hangs.set()
    assert record.lost == 3


def test_a_record_that_is_moved_away_is_begun_anew(tmp_path: Path) -> None:
    record = Record(tmp_path / "v.sqlite")
    record.add(answer(0), None)
    while record.waiting or not list(verdicts(record.path)):
        time.sleep(0.01)
    for file in tmp_path.iterdir():
        file.rename(file.with_name(f"moved-{file.name}"))
    record.add(answer(1), None)
    record.close()
    assert [int(one["id"], 16) for one in verdicts(record.path)] == [1]


def test_what_is_no_record_is_left_alone(tmp_path: Path) -> None:
    text, other = tmp_path / "a.sqlite", tmp_path / "b.sqlite"
    text.write_bytes(b"no database, but something else" * 100)
    with closing(sqlite3.connect(other)) as db:
        db.execute("CREATE TABLE mine (a)")
    for path in (text, other, tmp_path / "none" / "c.sqlite"):
        before = path.read_bytes() if path.exists() else None
        with pytest.raises(UserError, match=r"record"):
            Record(path)
        assert (path.read_bytes() if path.exists() else None) == before


WRITING = """
import sys
from pathlib import Path
sys.path[:0] = {path!r}
from test_record import answer
from mhpatchcore.deploy.record import COLUMNS, Keeping, Record
record, n = Record(Path(sys.argv[1]), Keeping(rows=300, images="all", image_bytes=20_000)), 0
print("ready", flush=True)
while True:
    if record.waiting < 100:
        record.add(answer(n), bytes(1000))
        n += 1
"""


@pytest.mark.parametrize("milliseconds", [0, 3, 10, 30, 100, 300])
def test_rows_are_whole_after_a_kill(tmp_path: Path, milliseconds: int) -> None:
    path = tmp_path / "v.sqlite"
    process = subprocess.Popen(
        [sys.executable, "-c", WRITING.format(path=sys.path), str(path)],
        stdout=subprocess.PIPE,
        env=os.environ,
    )
    assert process.stdout is not None and process.stdout.readline() == b"ready\n"
    time.sleep(milliseconds / 1000)
    process.send_signal(signal.SIGKILL)
    process.wait()
    process.stdout.close()
    with closing(sqlite3.connect(path)) as db:
        assert db.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        assert db.execute("PRAGMA foreign_key_check").fetchall() == []
    found = [int(one["id"], 16) for one in verdicts(path)]
    assert found == list(range(found[0], found[0] + len(found))) if found else True
    assert all(one["regions"] == [REGION] for one in verdicts(path))
    written(path, answer(10**9))  # and it goes on
    assert int(list(verdicts(path))[-1]["id"], 16) == 10**9


def test_exports_say_the_same(tmp_path: Path) -> None:
    told = [answer(0, part="=HYPERLINK(1)"), answer(1, **PASSED), answer(2, **UNJUDGED)]
    lines = [json.loads(line) for line in b"".join(as_json_lines(told)).splitlines()]
    assert lines == told
    rows = list(csv.DictReader(io.StringIO(b"".join(as_csv(told)).decode())))
    assert [row["part"] for row in rows] == ["'=HYPERLINK(1)", "LOT 7 /12/1", "LOT 7 /12/2"]
    assert [row["score"] for row in rows] == ["41.5", "41.5", ""] and json.loads(rows[0]["regions"]) == [
        REGION
    ]
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    table = parquet.read_table(pyarrow.BufferReader(b"".join(as_parquet(told)))).to_pylist()
    assert [row["regions"] for row in table] == [one["regions"] for one in told]
    assert [in_utc(row["at"]) for row in table] == [one["at"] for one in told]
    assert [(row["reason"], row["trial"]) for row in table] == [
        (None, False),
        (None, False),
        ("cannot be read", False),
    ]


def test_the_command_writes_what_is_asked_for(run: Run, tmp_path: Path) -> None:  # noqa: F811
    path = written(tmp_path / "verdicts.sqlite", answer(0), answer(1, **PASSED))
    out = tmp_path / "out.csv"
    ran = run("verdicts", tmp_path, "--out", out, "--verdict", "passed", "--since", "2026-01-01")
    assert ran.code == 0 and "1 verdict\n" in ran.out
    assert [row["verdict"] for row in csv.DictReader(out.open())] == ["passed"]
    assert run("verdicts", path, "--out", tmp_path / "out.jsonl").code == 0
    assert len((tmp_path / "out.jsonl").read_text().splitlines()) == 2
    assert_one_line_error(run("verdicts", tmp_path, "--out", "x.txt"), 2, ".csv")
    assert_one_line_error(run("verdicts", tmp_path, "--out", out, "--since", "noon"), 2, "noon is not a time")
    assert_one_line_error(run("verdicts", tmp_path / "none", "--out", out), 2, "no record")
