"""A watched folder: complete files only, once each, wherever a run is cut off; and who judges them."""

from __future__ import annotations

import csv
import json
import os
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import httpx
import pytest
from cli_runs import Run, assert_one_line_error, files_below, graphs, run  # noqa: F401 (fixtures)
from services import bad, good, png, running, write_model

from mhpatchcore import Detector
from mhpatchcore.deploy import watch as watching
from mhpatchcore.deploy.watch import Line, Watch
from mhpatchcore.deploy.watch.journal import Arrived, Journal
from mhpatchcore.deploy.watch.services import UnavailableError
from mhpatchcore.deploy.watch.status import Status
from mhpatchcore.errors import ImageError

QUICK = ("--once", "--settle", "0", "--quiet")


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_model(tmp_path_factory.mktemp("models") / "vial.mhpc")


@pytest.fixture
def inbox(tmp_path: Path) -> Path:
    folder = tmp_path / "inbox"
    (folder / "cam1").mkdir(parents=True)
    (folder / "a.png").write_bytes(png(good(1)))
    (folder / "cam1" / "b.png").write_bytes(png(bad(2)))
    (folder / "c.png").write_bytes(png(good(3))[:100])
    return folder


def nobody(path: Path, part: str) -> dict[str, Any]:
    raise UnavailableError("nobody judges")


def rows(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def test_names_that_are_no_text_or_long_are_judged_as_others(
    run: Run,  # noqa: F811
    model: Path,
    tmp_path: Path,
) -> None:
    """One such name would end the watch, and every later one."""
    inbox, out, table = tmp_path / "inbox", tmp_path / "out", tmp_path / "results.csv"
    inbox.mkdir()
    name = os.fsdecode(b"caf\xe9")
    (inbox / f"{name}.png").write_bytes(png(good(1)))
    (inbox / f"{'W' * 240}.png").write_bytes(png(good(2)))
    ran = run("watch", model, inbox, "--out", out, "--csv", table, *QUICK)
    assert (ran.code, ran.err) == (0, "") and (out / f"{name}.json").exists()
    assert run("watch", model, inbox, "--out", out, "--csv", table, "--sort", *QUICK).code == 0
    assert {row["image"] for row in rows(table)} == {r"caf\udce9.png", f"{'W' * 240}.png"}
    with running(model) as service:
        address = f"{service.url}/v1/models/vial"
        assert run("watch", address, inbox, "--out", tmp_path / "other", *QUICK).code == 0
    told = [json.loads(file.read_text()) for file in (tmp_path / "other").glob("*.json")]
    assert len(told) == 2 and all("reason" not in one for one in told)


def test_files_are_judged_once_and_sorted(run: Run, model: Path, inbox: Path, tmp_path: Path) -> None:  # noqa: F811
    out, table = tmp_path / "out", tmp_path / "results.csv"
    ran = run("watch", model, inbox, "--out", out, "--sort", "--csv", table, *QUICK)
    assert (ran.code, ran.out, ran.err) == (0, "", "")
    moved = {name for name in files_below(out) if name.endswith((".png", ".json"))}
    assert moved == {
        *("passed/a.png", "passed/a.json", "rejected/cam1/b.png"),
        *("rejected/cam1/b.json", "broken/c.png", "broken/c.json"),
    }
    assert files_below(inbox) == []
    told = json.loads((out / "rejected/cam1/b.json").read_text())
    expected = Detector.load(model).score_many([out / "rejected/cam1/b.png"])
    assert [told["score"]] == [one.score for one in expected if one is not None]
    assert told["regions"] and told["image"] == "cam1/b.png"
    assert [row["verdict"] for row in sorted(rows(table), key=lambda row: row["image"])] == [
        *("passed", "rejected", "rejected"),
    ]
    broken = json.loads((out / "broken/c.json").read_text())  # nobody has seen it, so it is no good part
    assert broken["is_rejected"] is True and "score" not in broken
    assert "c.png" in broken["reason"] and str(tmp_path) not in broken["reason"]


def test_a_second_run_judges_only_what_is_new(run: Run, model: Path, inbox: Path, tmp_path: Path) -> None:  # noqa: F811
    out, table = tmp_path / "out", tmp_path / "results.csv"
    arguments = ("watch", model, inbox, "--out", out, "--csv", table, "--once", "--settle", "0", "--json")
    first = [json.loads(line) for line in run(*arguments).out.splitlines()]
    assert {one["image"] for one in first} == {"a.png", "cam1/b.png", "c.png"}
    assert run(*arguments).out == ""
    (inbox / "d.png").write_bytes(png(good(4)))
    (inbox / "a.png").write_bytes(png(bad(5)))  # another part under a name that there was
    second = [json.loads(line) for line in run(*arguments).out.splitlines()]
    assert {one["image"]: one["verdict"] for one in second} == {"a.png": "rejected", "d.png": "passed"}
    assert len(rows(table)) == 5 and len({row["id"] for row in rows(table)}) == 5
    assert json.loads((out / "a-1.json").read_text())["verdict"] == "rejected"
    assert json.loads((out / "a.json").read_text())["verdict"] == "passed"


def test_only_complete_files_are_taken(inbox: Path, tmp_path: Path) -> None:
    journal = Journal(tmp_path / "journal.sqlite")
    for name in (".hidden.png", "~d.png", "e.png.tmp", "f.png.part", "notes.txt"):
        (inbox / name).write_bytes(b"x")
    watch = Watch(Line(inbox, tmp_path / "out", settle=1.0), journal, nobody, Status(print))
    assert watch.complete(at=0.0) == []
    (inbox / "a.png").write_bytes(b"grows")
    assert {file.name for file in watch.complete(at=1.0)} == {"cam1/b.png", "c.png"}
    assert {file.name for file in watch.complete(at=2.0)} == {"a.png", "cam1/b.png", "c.png"}
    told = Watch(Line(inbox, tmp_path / "out", done=".done"), journal, nobody, Status(print))
    assert told.complete() == []
    (inbox / "a.png.done").touch()
    assert [file.name for file in told.complete()] == ["a.png"]


def test_a_name_that_comes_again_and_again_costs_no_more_each_time(
    inbox: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    true = Path.exists
    monkeypatch.setattr(Path, "exists", lambda self: asked.append(self.name) or true(self))
    journal, out = Journal(tmp_path / "journal.sqlite"), tmp_path / "out"
    line = Line(inbox, out, sort=True, settle=0)
    watch = Watch(line, journal, lambda path, part: {"verdict": "passed"}, Status(print), once=True)
    for _ in range(6):
        (inbox / "a.png").write_bytes(b"x")
        list(watch.answers())
    assert (out / "passed/a.png").exists() and (out / "passed/a-5.png").exists()
    assert asked.count("a.json") < 6  # not once for every file


class KilledError(BaseException):
    """As a kill: nothing that comes after it is done."""


def test_a_run_that_is_cut_off_anywhere_is_finished_by_the_next(
    inbox: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Cut off at every step that leaves something behind, the folders end as if nothing had happened."""
    content = {name: (inbox / name).read_bytes() for name in ("a.png", "cam1/b.png", "c.png")}
    steps = [
        (Journal, "add"),
        (watching, "write_text"),
        (watching, "_add_row"),
        (watching, "_move"),
        (Journal, "finish"),
    ]
    for before in (True, False):
        for number, (place, name) in enumerate(steps):
            folder = tmp_path / f"{before}-{number}"
            own, out, table = folder / "inbox", folder / "out", folder / "results.csv"
            for file, pixels in content.items():
                (own / file).parent.mkdir(parents=True, exist_ok=True)
                (own / file).write_bytes(pixels)
            out.mkdir()
            line = Line(own, out, sort=True, table=table, settle=0, targets=("webhook",))
            judged: Counter[str] = Counter()

            def judge(path: Path, part: str, judged: Counter[str] = judged) -> dict[str, Any]:
                if part == "c":
                    raise ImageError("broken")
                judged[part] += 1
                return {"score": 1.0, "verdict": "passed" if part == "a" else "rejected", "regions": []}

            def to_the_end(line: Line = line, out: Path = out, judge: Any = judge) -> None:
                journal = Journal(out / "watch.sqlite")
                try:
                    watch = Watch(line, journal, judge, Status(print), once=True)
                    watch.finish_earlier()
                    list(watch.answers())
                finally:
                    journal.close()

            original = getattr(place, name)
            calls = iter(range(100))

            def cut(*args: Any, original: Any = original, calls: Any = calls, before: bool = before) -> Any:
                if next(calls) == 1:  # at the second file
                    if before:
                        raise KilledError
                    original(*args)
                    raise KilledError
                return original(*args)

            with monkeypatch.context() as patch, pytest.raises(KilledError):
                patch.setattr(place, name, cut)
                to_the_end()
            to_the_end()
            kept = {one for one in files_below(out) if one.endswith((".png", ".json"))}
            assert kept == {
                *("passed/a.png", "passed/a.json", "rejected/cam1/b.png", "rejected/cam1/b.json"),
                *("broken/c.png", "broken/c.json"),
            }, (before, name)
            assert files_below(own) == []
            assert sorted(row["image"] for row in rows(table)) == ["a.png", "c.png", "cam1/b.png"], (
                before,
                name,
            )
            # only a verdict that was never written down is made again
            assert judged == {"a": 1, "b": 2 if before and name == "add" else 1}, (before, name)
            journal = Journal(out / "watch.sqlite")
            assert journal.waiting(["webhook"]) == 3 and journal.unfinished() == []
            journal.close()


def test_a_process_that_is_killed_loses_and_repeats_nothing(model: Path, tmp_path: Path) -> None:
    inbox, out, table = tmp_path / "inbox", tmp_path / "out", tmp_path / "results.csv"
    inbox.mkdir()
    content, n = png(good(1)), 60
    for i in range(n):
        (inbox / f"{i:03}.png").write_bytes(content)
    command = [sys.executable, "-m", "mhpatchcore", "watch", str(model), str(inbox), "--out", str(out)]
    command += ["--sort", "--csv", str(table), "--settle", "0", "--once"]
    for lines in (5, 17):  # killed after so many
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env={**os.environ}) as process:
            assert process.stdout is not None
            for _ in range(lines):
                process.stdout.readline()
            process.send_signal(signal.SIGKILL)
    done = subprocess.run(command, capture_output=True, text=True, check=True, env={**os.environ})
    assert "Traceback" not in done.stderr
    assert files_below(inbox) == []
    names = sorted(row["image"] for row in rows(table))
    assert names == [f"{i:03}.png" for i in range(n)]
    assert len([one for one in files_below(out) if one.endswith(".png")]) == n


def test_a_model_of_a_service_judges_and_its_page_sees_it(
    run: Run,  # noqa: F811
    model: Path,
    inbox: Path,
    tmp_path: Path,
) -> None:
    with running(model) as service:
        ran = run("watch", f"{service.url}/v1/models/vial", inbox, "--out", tmp_path / "out", *QUICK)
        assert ran.code == 0, ran
        seen = {one["name"]: one["verdict"] for one in httpx.get(f"{service.url}/v1/parts").json()}
    assert (seen["a.png"], seen["b.png"]) == ("passed", "rejected")
    told = json.loads((tmp_path / "out/cam1/b.json").read_text())
    (expected,) = Detector.load(model).score_many([inbox / "cam1/b.png"])
    assert expected is not None and told["score"] == expected.score
    assert json.loads((tmp_path / "out/c.json").read_text())["verdict"] == "rejected"


def test_files_wait_for_a_service_that_is_gone(run: Run, inbox: Path, tmp_path: Path) -> None:  # noqa: F811
    address = "http://127.0.0.1:9/v1/models/vial"
    ran = run("watch", address, inbox, "--out", tmp_path / "out", *QUICK)
    warned, error = ran.err.splitlines()  # not a line for every image and every try
    assert ran.code == 2 and warned.startswith("warning: the service does not answer")
    assert error.startswith("error: not all images were judged: the service does not answer")
    assert len(files_below(inbox)) == 3 and not (tmp_path / "out/a.json").exists()


def test_somebody_who_is_away_is_asked_again(inbox: Path, tmp_path: Path) -> None:
    answers = iter([UnavailableError("busy", 0), UnavailableError("busy", 0), {"verdict": "passed"}])
    said: list[str] = []

    def judge(path: Path, part: str) -> dict[str, Any]:
        answer = next(answers)
        if isinstance(answer, Exception):
            raise answer
        return answer

    status, journal = Status(said.append), Journal(tmp_path / "watch.sqlite")
    watch = Watch(Line(inbox, tmp_path / "out"), journal, judge, status)
    assert watch._outcome(Arrived("a.png", 1, 1)) == {"verdict": "passed"}
    assert said == ["busy", "over: busy"] and status.problems == {}


def test_a_formula_in_a_name_is_text_in_tables(
    run: Run,  # noqa: F811
    model: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    name = '=HYPERLINK("http:evil";"part").png'
    (tmp_path / "inbox").mkdir()
    (tmp_path / "inbox" / name).write_bytes(png(good(1)))
    table = tmp_path / "results.csv"
    run("watch", model, tmp_path / "inbox", "--out", tmp_path / "out", "--csv", table, *QUICK)
    assert [row["image"] for row in rows(table)] == [f"'{name}"]
    monkeypatch.chdir(tmp_path / "inbox")
    printed = run("score", model, name, "--csv", "-").out
    assert [row["image"] for row in csv.DictReader(printed.splitlines())] == [f"'{name}"]


def test_a_table_that_somebody_else_writes_too_keeps_their_lines(inbox: Path, tmp_path: Path) -> None:
    table = tmp_path / "results.csv"
    table.write_text("their line\n")
    watching._add_row(table, {"image": "a.png"})
    assert table.read_text() == "their line\n,a.png,,,,,,,,,\n"
    table.unlink()  # taken away: a new one begins with its header
    watching._add_row(table, {"image": "b.png"})
    assert [row["image"] for row in rows(table)] == ["b.png"]


@pytest.mark.parametrize("left", [0, 1, 20, 70, 100])
def test_a_line_that_a_kill_has_cut_off_is_in_the_table_once(tmp_path: Path, left: int) -> None:
    table, answer = tmp_path / "results.csv", {"at": "2026-11-18T08:00:00Z", "image": "a\nb.png", "id": "7"}
    watching._add_row(table, answer | {"id": "6"})
    before = table.read_bytes()
    watching._add_row(table, answer)
    whole = table.read_bytes()
    table.write_bytes(whole[: len(before) + left])
    watching._add_row(table, answer)
    assert table.read_bytes() == whole


def test_wrong_usage_is_one_line(run: Run, model: Path, inbox: Path, tmp_path: Path) -> None:  # noqa: F811
    out = tmp_path / "out"
    for arguments, words in (
        ((model, tmp_path / "none", "--out", out), "no folder"),
        ((model, inbox, "--out", inbox / "out"), "among the images"),
        ((model, inbox, "--out", out, "--mqtt", "http://x"), "mqtt://"),
        ((model, inbox, "--out", out, "--mqtt", "mqtt://x/a/%23"), "topic"),
        ((model, inbox, "--out", out, "--webhook", "ftp://user:secret@x"), "--webhook"),
        (("http://127.0.0.1:9/other", inbox, "--out", out), "/v1/models/"),
    ):
        ran = run("watch", *arguments)
        assert_one_line_error(ran, 2, words)
        assert "secret" not in ran.err
    with watching.outbox_for_one(out):
        assert_one_line_error(run("watch", model, inbox, "--out", out), 2, "another `watch`")
