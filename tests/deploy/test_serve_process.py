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
