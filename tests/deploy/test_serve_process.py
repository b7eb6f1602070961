"""The service in a process of its own: models swapped under load, a full queue, an end in order."""

from __future__ import annotations

import json
import signal
import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import numpy as np
import pytest
from PIL import Image
from prometheus_client.parser import text_string_to_metric_families
from services import Running, bad, good, png, running, write_model
from small_detector import small_detector

from mhpatchcore.deploy.record import verdicts
from mhpatchcore.deploy.serve import app as application
from mhpatchcore.deploy.serve.app import Server, config_of, create_app, listening

TOKEN = "0123456789abcdef"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("models")
    write_model(folder / "vial.mhpc")
    (folder / "token").write_text(TOKEN)
    (folder / "token").chmod(0o600)
    return folder


@pytest.fixture(scope="module")
def service(folder: Path) -> Iterator[Running]:
    with running(folder, "--token-file", folder / "token", "--workers", 2) as service:
        yield service


@pytest.fixture(scope="module")
def client(service: Running) -> Iterator[httpx.Client]:
    headers = {"Authorization": f"Bearer {TOKEN}"}
    with httpx.Client(base_url=service.url, headers=headers, timeout=30) as client:
        yield client


def until(true: object, seconds: float = 15) -> None:
    end = time.monotonic() + seconds
    while not true():  # type: ignore[operator]
        assert time.monotonic() < end
        time.sleep(0.1)


def large(pixels: np.ndarray) -> bytes:
    """A picture that takes a while."""
    return png(np.asarray(Image.fromarray(pixels).resize((2500, 2500))), "JPEG")


def test_a_model_that_is_replaced_is_swapped_without_a_lost_answer(
    folder: Path, client: httpx.Client
) -> None:
    content = png(bad())
    expected = {}
    done = threading.Event()
    answers: list[tuple[int, str, float]] = []

    def ask() -> None:
        with httpx.Client(base_url=client.base_url, headers=client.headers, timeout=30) as own:
            while not done.is_set():
                answer = own.post("/v1/models/vial/score", content=content)
                (told,) = answer.json()["results"]
                answers.append((answer.status_code, told["sha256"], told["threshold"]))

    with ThreadPoolExecutor(3) as threads:
        asking = [threads.submit(ask) for _ in range(3)]
        for rate in (0.4, 0.3, 0.6):
            small_detector().calibrated(rate).save(folder / "vial.mhpc")
            threshold = small_detector().calibrated(rate).threshold
            until(lambda t=threshold: client.get("/v1/models").json()[0]["threshold"] == t)
            expected[client.get("/v1/models").json()[0]["sha256"]] = threshold
        until(lambda: answers[-1][1] == list(expected)[-1])
        done.set()
        for one in asking:
            one.result()
    assert {status for status, _, _ in answers} == {200}
    seen = {sha256: threshold for _, sha256, threshold in answers}
    assert set(expected) <= set(seen)
    assert all(seen[sha256] == threshold for sha256, threshold in expected.items())


def test_a_damaged_file_leaves_the_old_model_in_its_place(folder: Path, client: httpx.Client) -> None:
    whole = (folder / "vial.mhpc").read_bytes()
    before = client.get("/v1/models").json()[0]
    (folder / "vial.mhpc").write_bytes(whole[:-1000])
    until(lambda: client.get("/v1/models").json()[0]["problem"] is not None)
    (facts,) = client.get("/v1/models").json()
    assert "vial.mhpc" in facts["problem"] and str(folder) not in facts["problem"]
    assert facts["sha256"] == before["sha256"]
    assert client.post("/v1/models/vial/score", content=png(good())).status_code == 200
    (folder / "vial.mhpc").write_bytes(whole)
    until(lambda: client.get("/v1/models").json()[0]["problem"] is None)


def test_a_new_file_in_the_folder_is_served(folder: Path, client: httpx.Client) -> None:
    write_model(folder / "second.mhpc")
    until(lambda: client.get("/v1/models/second").status_code == 200)
    (folder / "second.mhpc").unlink()
    until(lambda: client.get("/v1/models/second").json()["problem"] is not None)
    assert client.post("/v1/models/second/score", content=png(good())).status_code == 200


def test_who_listens_hears_of_every_part(client: httpx.Client) -> None:
    heard: list[dict[str, object]] = []
    with client.stream("GET", "/v1/events") as stream:
        lines = stream.iter_lines()
        assert next(lines) == ": here"
        for i in range(3):
            client.post("/v1/models/vial/score", content=png(good(i)), params={"part": str(i)})
        for line in lines:
            if line.startswith("data: "):
                heard.append(json.loads(line.removeprefix("data: ")))
            if len(heard) == 3:
                break
    assert [one["part"] for one in heard] == ["0", "1", "2"]


def test_a_full_queue_says_when_to_come_again(folder: Path) -> None:
    content = large(good())
    with (
        running(folder / "vial.mhpc", "--workers", 1, "--queue", 1) as service,
        ThreadPoolExecutor(8) as threads,
    ):

        def ask(_: int) -> httpx.Response:
            return httpx.post(f"{service.url}/v1/models/vial/score", content=content, timeout=60)

        answers = list(threads.map(ask, range(8)))
        statuses = [one.status_code for one in answers]
        assert set(statuses) == {200, 429} and statuses.count(200) >= 2
        refused = next(one for one in answers if one.status_code == 429)
        assert int(refused.headers["retry-after"]) >= 1 and "queue" in refused.json()["error"]
        assert httpx.get(f"{service.url}/v2/health/live").status_code == 200


def test_at_the_end_everything_accepted_is_answered(folder: Path) -> None:
    content = large(bad())
    with running(folder / "vial.mhpc", "--workers", 1, "--queue", 16) as service:
        stream = socket.create_connection(("127.0.0.1", int(service.url.rpartition(":")[2])))
        stream.sendall(b"GET /v1/events HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")  # one who listens to the end

        def ask(_: int) -> int:
            return httpx.post(f"{service.url}/v1/models/vial/score", content=content, timeout=60).status_code

        def all_have_come() -> bool:
            text = httpx.get(f"{service.url}/metrics", timeout=60).text
            families = {family.name: family.samples for family in text_string_to_metric_families(text)}
            (waiting,) = families["mhpatchcore_accepted_requests"]
            done = sum(one.value for one in families["mhpatchcore_parts"] if one.name.endswith("_total"))
            return bool(waiting.value > 0 and waiting.value + done >= 6)

        with ThreadPoolExecutor(6) as threads:
            asking = [threads.submit(ask, i) for i in range(6)]
            until(all_have_come)
            service.process.send_signal(signal.SIGTERM)
            assert [one.result() for one in asking] == [200] * 6
        assert service.process.wait(20) in (0, -signal.SIGTERM)
        stream.close()


def test_a_request_that_takes_too_long_is_told_so(folder: Path) -> None:
    with running(folder / "vial.mhpc", "--timeout", "0.15", "--workers", 1) as service:
        port = int(service.url.rpartition(":")[2])
        with socket.create_connection(("127.0.0.1", port)) as slow:  # a body that never comes
            slow.sendall(
                b"POST /v1/models/vial/score HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 99\r\n\r\nx"
            )
            assert slow.recv(100).startswith(b"HTTP/1.1 408")
        content = large(good())
        with ThreadPoolExecutor(12) as threads:
            url = f"{service.url}/v1/models/vial/score"
            statuses = set(threads.map(lambda _: httpx.post(url, content=content).status_code, range(12)))
        assert statuses <= {200, 503, 408} and 503 in statuses
        assert httpx.get(f"{service.url}/v2/health/ready").status_code == 200


def test_answers_do_not_wait_for_acknowledgements() -> None:
    """Without it every answer over a connection that is kept took 40 ms more."""
    (one,) = listening("127.0.0.1", 0)
    with one, socket.create_connection(one.getsockname()), one.accept()[0] as accepted:
        assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


def test_who_sends_slowly_takes_no_place(folder: Path) -> None:
    with running(folder / "vial.mhpc", "--workers", 1, "--queue", 1) as service:
        address = ("127.0.0.1", int(service.url.rpartition(":")[2]))
        head = b"POST /v1/models/vial/score HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 99\r\n\r\nx"
        slow = [socket.create_connection(address) for _ in range(8)]
        for one in slow:
            one.sendall(head)
        answer = httpx.post(f"{service.url}/v1/models/vial/score", content=png(good()), timeout=30)
        assert answer.status_code == 200
        for one in slow:
            one.close()


def test_idle_connections_are_closed(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(application, "IDLE", 0.3)
    app = create_app([folder / "vial.mhpc"])
    (place,) = listening("127.0.0.1", 0)
    port, server = place.getsockname()[1], Server(config_of(app), lambda: None)
    thread = threading.Thread(target=server.run, args=([place],))
    thread.start()
    try:
        until(lambda: httpx.get(f"http://127.0.0.1:{port}/v2/health/live").status_code == 200)
        asked = b"GET /v2/health/live HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
        for begun in (b"", b"GET /v1/models HT", asked, asked + b"GET /v1/mod"):
            with socket.create_connection(("127.0.0.1", port), timeout=10) as idle:
                idle.sendall(begun)
                while idle.recv(1000):  # it ends
                    pass
        with httpx.stream(
            "GET", f"http://127.0.0.1:{port}/v1/events"
        ) as stream:  # somebody who listens is not idle
            lines = stream.iter_lines()
            assert next(lines) == ": here"
            time.sleep(1)
            httpx.post(f"http://127.0.0.1:{port}/v1/models/vial/score", content=png(good()))
            assert any(line.startswith("event: part") for line in lines)
    finally:
        server.should_exit = True
        thread.join(20)


def test_json_has_a_limit_of_its_own(client: httpx.Client) -> None:
    many = b'{"action": "learn", "ids": [' + b"1," * 600_000 + b"1]}"
    assert client.post("/v1/models/vial/preview", content=many).status_code == 413
    tensor = {"name": "image", "datatype": "UINT8", "shape": [1000, 1000], "data": [255] * 10**6}
    answer = client.post("/v2/models/vial/infer", json={"inputs": [tensor]})
    assert answer.status_code == 413 and "bytes" in answer.json()["error"]
    length = {"Inference-Header-Content-Length": "1000001"}
    answer = client.post("/v2/models/vial/infer", content=b" " * 1_000_001, headers=length)
    assert answer.status_code == 413 and "binary" in answer.json()["error"]


def test_logs_have_times_in_utc_levels_and_parts(folder: Path) -> None:
    arguments = ("--log-format", "json", "--log-level", "debug", "--token-file", folder / "token")
    with running(folder / "vial.mhpc", *arguments) as service:
        url, known = f"{service.url}/v1/models/vial/score", {"Authorization": f"Bearer {TOKEN}"}
        for part, content in (("SN-1", png(good())), ("SN-2", png(bad())), ("SN-3", b"no image")):
            httpx.post(url, content=content, params={"part": part}, headers=known, timeout=30)
        httpx.get(f"{service.url}/v1/models", headers={"Authorization": "Bearer wrong"}, timeout=30)
        service.end()
        assert service.process.stdout is not None
        lines = [json.loads(line) for line in service.process.stdout if line.startswith("{")]
    assert all(line["at"].endswith("+00:00") for line in lines)
    told = {line["part"]: (line["level"], line["message"].split(":")[0]) for line in lines if "part" in line}
    assert told == {
        "SN-1": ("DEBUG", "passed"),
        "SN-2": ("INFO", "rejected"),
        "SN-3": ("WARNING", "rejected"),
    }
    (guessed,) = [line for line in lines if "wrong token" in line["message"]]
    assert guessed["level"] == "WARNING" and "127.0.0.1" in guessed["message"]


def test_verdicts_are_recorded_when_the_service_ends_or_is_killed(folder: Path, tmp_path: Path) -> None:
    write_model(tmp_path / "vial.mhpc")
    path = tmp_path / "verdicts.sqlite"
    for i, how in enumerate((signal.SIGTERM, signal.SIGKILL)):
        with running(tmp_path / "vial.mhpc") as service:
            for _ in range(3):
                httpx.post(f"{service.url}/v1/models/vial/score", content=png(good()), timeout=30)
            if how == signal.SIGKILL:
                until(lambda: len(list(verdicts(path))) == 6)  # what is written stays so
            service.end(how)
        assert len(list(verdicts(path))) == 3 * (i + 1)
