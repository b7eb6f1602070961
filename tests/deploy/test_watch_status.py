"""A watch says how it is doing: at its address, and when its folders go away."""

from __future__ import annotations

import os
import re
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest
from cli_runs import Run, assert_one_line_error, graphs, run  # noqa: F401 (fixtures)
from services import free_port, good, png, until, write_model

from mhpatchcore.deploy.watch import Line, Watch
from mhpatchcore.deploy.watch import status as watch_status
from mhpatchcore.deploy.watch.journal import Journal
from mhpatchcore.deploy.watch.status import Status, answers


@contextmanager
def watching(model: Path, inbox: Path, out: Path, port: int, *more: str) -> Iterator[subprocess.Popen[str]]:
    """`mhpatchcore watch …` in its own process, once its address answers."""
    command = [sys.executable, "-m", "mhpatchcore", "watch", str(model), str(inbox), "--out", str(out)]
    command += ["--settle", "0.1", "--status-port", str(port), *more]
    process = subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, env={**os.environ}
    )
    try:
        until(lambda: _answers(port) or process.poll() is not None)
        yield process
    finally:
        process.kill()
        process.communicate()


def _answers(port: int) -> bool:
    try:
        httpx.get(f"http://127.0.0.1:{port}/health")
        return True
    except httpx.TransportError:
        return False


def test_a_folder_that_vanishes_is_told_and_watched_again_when_it_is_back(tmp_path: Path) -> None:
    model, inbox, port = write_model(tmp_path / "vial.mhpc"), tmp_path / "inbox", free_port()
    inbox.mkdir()
    (inbox / "1.png").write_bytes(png(good(1)))
    (inbox / "torn.png").write_bytes(png(good(1))[:100])
    url = f"http://127.0.0.1:{port}"
    with watching(model, inbox, tmp_path / "out", port, "--webhook", "http://127.0.0.1:9/") as process:
        until(lambda: sum(httpx.get(f"{url}/health").json()["files"].values()) == 2)
        until(lambda: "webhook" in httpx.get(f"{url}/health").json()["problems"])
        told = httpx.get(f"{url}/metrics").text.splitlines()
        assert 'mhpatchcore_watch_files_total{verdict="passed"} 1' in told
        assert 'mhpatchcore_watch_files_total{verdict="rejected"} 1' in told
        assert 'mhpatchcore_watch_messages_waiting{target="webhook"} 2' in told
        assert 'mhpatchcore_watch_problem{cause="inbox"} 1' not in told
        assert httpx.get(f"{url}/other").status_code == 404

        shutil.rmtree(inbox)
        until(lambda: "inbox" in httpx.get(f"{url}/health").json()["problems"])
        answer = httpx.get(f"{url}/health")
        assert answer.status_code == 503 and str(inbox) in answer.json()["problems"]["inbox"]
        assert 'mhpatchcore_watch_problem{cause="inbox"} 1' in httpx.get(f"{url}/metrics").text

        inbox.mkdir()
        (inbox / "2.png").write_bytes(png(good(2)))
        until(lambda: httpx.get(f"{url}/health").json()["files"].get("passed") == 2)
        assert "inbox" not in httpx.get(f"{url}/health").json()["problems"]
        process.send_signal(signal.SIGTERM)
        _, said = process.communicate(timeout=60)
    assert process.returncode == 0
    about = [line for line in said.splitlines() if "cannot look into" in line]
    assert [line.startswith("warning: over: ") for line in about] == [
        False,
        True,
    ]  # once each, not at every look


def test_a_watch_does_not_go_on_without_its_journal(tmp_path: Path) -> None:
    """SQLite would write into a file that nobody finds again, and the next run would judge everything again."""
    model, inbox, out, port = (
        write_model(tmp_path / "vial.mhpc"),
        tmp_path / "inbox",
        tmp_path / "out",
        free_port(),
    )
    inbox.mkdir()
    with watching(model, inbox, out, port) as process:
        shutil.rmtree(out)
        _, said = process.communicate(timeout=60)
    assert process.returncode == 2 and said.startswith(f"error: the journal {out / 'watch.sqlite'} is gone")


def test_a_subfolder_that_goes_or_is_closed_stops_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal = Journal(tmp_path / "watch.sqlite")
    watch = Watch(Line(tmp_path, tmp_path / "out", settle=0), journal, lambda path, part: {}, Status(print))
    (tmp_path / "1.png").touch()
    (tmp_path / "gone").mkdir()
    scandir = os.scandir

    def vanishing(path: str) -> object:
        if Path(path).name == "gone":
            Path(path).rmdir()
        return scandir(path)

    monkeypatch.setattr(os, "scandir", vanishing)
    assert [file.name for file in watch.complete()] == ["1.png"]
    journal.close()


def test_a_watch_that_hangs_is_not_healthy(monkeypatch: pytest.MonkeyPatch) -> None:
    status = Status(print)
    told = answers(status, {})
    assert told["/health"][0] == 200 and "mhpatchcore_watch_healthy 1" in told["/metrics"][1]
    monkeypatch.setattr(watch_status, "STUCK", -1.0)  # any time is too long
    told = answers(status, {})
    assert told["/health"][0] == 503 and "mhpatchcore_watch_healthy 0" in told["/metrics"][1]


def test_a_taken_port_is_one_line(run: Run, tmp_path: Path) -> None:  # noqa: F811
    model = write_model(tmp_path / "vial.mhpc")
    (tmp_path / "inbox").mkdir()
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        arguments = (model, tmp_path / "inbox", "--out", tmp_path / "out", "--status-port", port)
        assert_one_line_error(run("watch", *arguments), 2, "--status-port")


def test_the_unit_calls_the_command_as_it_is(run: Run, tmp_path: Path) -> None:  # noqa: F811
    unit = Path(__file__).parents[2] / "packaging" / "mhpatchcore-watch@.service"
    (line,) = re.findall(r"^ExecStart=\S+ (watch .*)$", unit.read_text(), re.MULTILINE)
    token = tmp_path / "token"
    token.write_text("0123456789abcdef")
    token.chmod(0o600)
    known = {
        "/srv/mhpatchcore": str(tmp_path),
        "%i": "part",
        "%d/token": str(token),
        "${STATUS_PORT}": "8081",
    }
    for place, here in known.items():
        line = line.replace(place, here)
    assert_one_line_error(run(*line.split()), 2, f"no folder {tmp_path / 'part' / 'camera'}")
