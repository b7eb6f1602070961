"""Messages wait for a webhook or a broker that is gone, and go out in order when it is back."""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from cli_runs import Run, graphs, run  # noqa: F401 (fixtures)
from paho.mqtt.client import Client
from paho.mqtt.enums import CallbackAPIVersion
from services import free_port, good, png, until, write_model

from mhpatchcore.deploy.watch import services as watch_services
from mhpatchcore.deploy.watch.journal import Arrived, Journal
from mhpatchcore.deploy.watch.services import Forwarding, mqtt, webhook
from mhpatchcore.deploy.watch.status import Status

needs_broker = pytest.mark.skipif(shutil.which("mosquitto") is None, reason="mosquitto is not installed")


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch_services, "SHORTEST", 0.1)
    monkeypatch.setattr(watch_services, "LONGEST", 0.2)
    monkeypatch.setattr(watch_services, "TIMEOUT", 3)


@pytest.fixture
def journal(tmp_path: Path) -> Iterator[Journal]:
    journal = Journal(tmp_path / "watch.sqlite")
    yield journal
    journal.close()


def add(journal: Journal, *numbers: int) -> None:
    for n in numbers:
        file = Arrived(f"{n}.png", n, n)
        journal.finish(journal.add(file, f"{n}", {"id": str(n), "image": f"{n}.png"}, ("there",)))


@contextmanager
def receiver(
    port: int,
    got: list[str],
    status: Callable[[str], int] = lambda id_: 204,
    moved: dict[str, tuple[int, str]] | None = None,
) -> Iterator[None]:
    """A webhook that keeps the ids of what it gets; `moved` are its paths that redirect, and it takes any GET."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            if self.path in (moved or {}):
                code, there = (moved or {})[self.path]
                self.send_response(code)
                self.send_header("Location", there)
                self.end_headers()
                return
            answer = status(body["id"])
            if answer < 300:
                got.append(body["id"])
            self.send_response(answer)
            self.end_headers()

        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def test_a_webhook_that_is_down_and_comes_back(journal: Journal) -> None:
    port, got, said = free_port(), [], []  # type: ignore[var-annotated]
    add(journal, 1, 2)
    forwarding = Forwarding(
        journal, "there", webhook(f"http://127.0.0.1:{port}/results"), Status(said.append)
    )
    until(lambda: bool(said))
    with receiver(port, got):
        until(lambda: journal.waiting(["there"]) == 0)
        assert got == ["1", "2"]
        add(journal, 3)
        forwarding.wake()
        until(lambda: journal.waiting(["there"]) == 0)
    add(journal, 4)
    forwarding.wake()
    until(lambda: len(said) == 3)
    forwarding.end()
    assert journal.waiting(["there"]) == 1 and said[0] == said[2] and said[1] == f"over: {said[0]}"
    with receiver(port, got):  # a later run sends it
        Forwarding(journal, "there", webhook(f"http://127.0.0.1:{port}/results"), Status(said.append)).end()
    assert got == ["1", "2", "3", "4"] and journal.waiting(["there"]) == 0


def test_a_message_that_is_refused_keeps_no_other_waiting(journal: Journal) -> None:
    port, got, said = free_port(), [], []  # type: ignore[var-annotated]
    add(journal, 1, 2, 3)
    tries = iter([503, 204])
    with receiver(port, got, lambda id_: {"2": 422, "3": 0}.get(id_, 204) or next(tries)):
        forwarding = Forwarding(journal, "there", webhook(f"http://127.0.0.1:{port}"), Status(said.append))
        until(lambda: journal.waiting(["there"]) == 0)
        forwarding.end()
    assert got == ["1", "3"]
    assert any("2.png" in message and "422" in message for message in said)


@pytest.mark.parametrize("code", [301, 307, 308])
def test_a_webhook_that_has_moved_gets_the_message_where_it_is(journal: Journal, code: int) -> None:
    port, got, said = free_port(), [], []  # type: ignore[var-annotated]
    add(journal, 1, 2)
    moved = {"/old": (code, "/older"), "/older": (code, f"http://127.0.0.1:{port}/new")}
    with receiver(port, got, moved=moved):
        Forwarding(journal, "there", webhook(f"http://127.0.0.1:{port}/old"), Status(said.append)).end()
    assert (got, said, journal.waiting(["there"])) == (["1", "2"], [], 0)


@pytest.mark.parametrize(
    ("code", "there"),
    [
        (302, "/login"),
        (303, "/login"),
        (301, "http://localhost:{}/new"),
        (301, "/old"),
        (307, "ftp://127.0.0.1/"),
    ],
)
def test_a_redirect_that_may_lose_a_message_is_an_error_and_the_message_is_kept(
    run: Run,  # noqa: F811
    tmp_path: Path,
    code: int,
    there: str,
) -> None:
    """What asks somebody to log in, another host, a circle: none of them has the message."""
    port, got = free_port(), []  # type: ignore[var-annotated]
    (tmp_path / "inbox").mkdir()
    for n in range(3):
        (tmp_path / "inbox" / f"{n}.png").write_bytes(png(good(n)))
    model, out = write_model(tmp_path / "vial.mhpc"), tmp_path / "out"
    with receiver(port, got, moved={"/old": (code, there.format(port))}):
        arguments = ("watch", model, tmp_path / "inbox", "--out", out, "--once", "--settle", "0", "--quiet")
        ran = run(*arguments, "--webhook", f"http://127.0.0.1:{port}/old")
        told, error = ran.err.splitlines()
        assert ran.code == 2 and f"status {code}" in told and got == []
        assert error == "error: 3 messages could not be sent: they wait for the next run"
        assert (
            run(*arguments, "--webhook", f"http://127.0.0.1:{port}/new").code == 0
        )  # the address is right now
    assert len(got) == 3


@contextmanager
def broker(port: int, folder: Path) -> Iterator[None]:
    """A real broker on this machine; it keeps what subscribers have not got yet."""
    settings = folder / "mosquitto.conf"
    settings.write_text(f"listener {port} 127.0.0.1\nallow_anonymous true\n")
    process = subprocess.Popen(
        [shutil.which("mosquitto") or "", "-c", str(settings)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        until(lambda: _answers(port))
        yield
    finally:
        process.terminate()
        process.wait(10)


def _answers(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), 1).close()
        return True
    except OSError:
        return False


@contextmanager
def subscriber(port: int, topic: str, got: list[str]) -> Iterator[None]:
    ready = threading.Event()
    client = Client(CallbackAPIVersion.VERSION2)
    client.on_subscribe = lambda *_: ready.set()
    client.on_message = lambda _, __, message: got.append(json.loads(message.payload)["id"])
    client.connect("127.0.0.1", port)
    client.subscribe(topic, qos=1)
    client.loop_start()
    assert ready.wait(10)
    try:
        yield
    finally:
        client.disconnect()
        client.loop_stop()


@needs_broker
def test_a_broker_that_is_down_and_comes_back(journal: Journal, tmp_path: Path) -> None:
    port, got, said = free_port(), [], []  # type: ignore[var-annotated]
    add(journal, 1, 2)
    forwarding = Forwarding(
        journal, "there", mqtt(f"mqtt://127.0.0.1:{port}/line/1", "other"), Status(said.append)
    )
    until(lambda: bool(said))
    for numbers in ((3,), (4, 5)):
        with broker(port, tmp_path), subscriber(port, "line/1", got):
            until(lambda: journal.waiting(["there"]) == 0)
            add(journal, *numbers)
            forwarding.wake()
            until(lambda n=numbers: str(n[-1]) in got)
        add(journal, numbers[-1] * 10)
        forwarding.wake()
        time.sleep(0.3)
    forwarding.end()
    # what was published before the subscriber came is not his
    assert [one for one in got if one in ("3", "4", "5")] == ["3", "4", "5"]
    assert journal.waiting(["there"]) == 1


@needs_broker
def test_a_topic_by_default_is_that_of_the_model(journal: Journal, tmp_path: Path) -> None:
    port, got = free_port(), []  # type: ignore[var-annotated]
    with broker(port, tmp_path), subscriber(port, "mhpatchcore/vial", got):
        mqtt(f"mqtt://127.0.0.1:{port}", "mhpatchcore/vial")(json.dumps({"id": "7"}))
        until(lambda: got == ["7"])
