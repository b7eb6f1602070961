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
from paho.mqtt.client import Client
from paho.mqtt.enums import CallbackAPIVersion

from mhpatchcore.deploy import watch_sending
from mhpatchcore.deploy.watch_journal import Arrived, Journal
from mhpatchcore.deploy.watch_sending import Forwarding, mqtt, webhook

needs_broker = pytest.mark.skipif(shutil.which("mosquitto") is None, reason="mosquitto is not installed")


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch_sending, "SHORTEST", 0.1)
    monkeypatch.setattr(watch_sending, "LONGEST", 0.2)
    monkeypatch.setattr(watch_sending, "TIMEOUT", 3)


@pytest.fixture
def journal(tmp_path: Path) -> Iterator[Journal]:
    journal = Journal(tmp_path / "watch.sqlite")
    yield journal
    journal.close()


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


def add(journal: Journal, *numbers: int) -> None:
    for n in numbers:
        file = Arrived(f"{n}.png", n, n)
        journal.finish(journal.add(file, f"{n}", {"id": str(n), "image": f"{n}.png"}, ("there",)), {})


def until(true: Callable[[], bool], seconds: float = 15) -> None:
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end
        time.sleep(0.02)


@contextmanager
def receiver(port: int, got: list[str], status: Callable[[str], int] = lambda id_: 204) -> Iterator[None]:
    """A webhook that keeps the ids of what it gets."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            answer = status(body["id"])
            if answer < 300:
                got.append(body["id"])
            self.send_response(answer)
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
    forwarding = Forwarding(journal, "there", webhook(f"http://127.0.0.1:{port}/results"), said.append)
    until(lambda: bool(said))
    with receiver(port, got):
        until(lambda: journal.waiting(["there"]) == 0)
        assert got == ["1", "2"]
        add(journal, 3)
        forwarding.wake()
        until(lambda: journal.waiting(["there"]) == 0)
    add(journal, 4)
    forwarding.wake()
    until(lambda: len(said) == 2)
    forwarding.end()
    assert journal.waiting(["there"]) == 1 and "messages wait" in said[0]
    with receiver(port, got):  # a later run sends it
        Forwarding(journal, "there", webhook(f"http://127.0.0.1:{port}/results"), said.append).end()
    assert got == ["1", "2", "3", "4"] and journal.waiting(["there"]) == 0


def test_a_message_that_is_refused_keeps_no_other_waiting(journal: Journal) -> None:
    port, got, said = free_port(), [], []  # type: ignore[var-annotated]
    add(journal, 1, 2, 3)
    tries = iter([503, 204])
    with receiver(port, got, lambda id_: {"2": 422, "3": 0}.get(id_, 204) or next(tries)):
        forwarding = Forwarding(journal, "there", webhook(f"http://127.0.0.1:{port}"), said.append)
        until(lambda: journal.waiting(["there"]) == 0)
        forwarding.end()
    assert got == ["1", "3"]
    assert any("2.png" in message and "422" in message for message in said)


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
    forwarding = Forwarding(journal, "there", mqtt(f"mqtt://127.0.0.1:{port}/line/1", "other"), said.append)
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
