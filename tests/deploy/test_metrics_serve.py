"""What Prometheus is told, and when rejects are more than the threshold promises."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from fastapi.testclient import TestClient
from PIL import Image
from prometheus_client.parser import text_string_to_metric_families
from scipy.stats import binom
from services import bad, good, png, write_model
from small_detector import vials

from mhpatchcore import Config, Detector
from mhpatchcore.deploy import record as recording
from mhpatchcore.deploy.record import Record
from mhpatchcore.deploy.serve.app import create_app
from mhpatchcore.deploy.serve.metrics import ALARM

SCORE = "/v1/models/vial/score"


@pytest.fixture
def client(tmp_path: Path) -> Iterator[TestClient]:
    with TestClient(create_app([write_model(tmp_path / "vial.mhpc")])) as client:
        yield client


def samples(client: TestClient) -> dict[tuple[str, str], float]:
    """Every sample by its name and its most telling label."""
    found = {}
    for family in text_string_to_metric_families(client.get("/metrics").text):
        for one in family.samples:
            label = one.labels.get("verdict") or one.labels.get("reason") or one.labels.get("model", "")
            found[one.name, label] = one.value
    return found


def test_parts_refusals_and_times_are_counted(client: TestClient) -> None:
    for content in (png(good()), png(bad()), b"no image"):
        client.post(SCORE, content=content)
    client.post(SCORE, files=[("images", ("a.png", png(bad()))), ("images", ("b.png", b"no image"))])
    client.post("/v1/models/anything/score", content=b"")
    told = samples(client)
    assert told["mhpatchcore_parts_total", "passed"] == 1
    assert told["mhpatchcore_parts_total", "rejected"] == 2
    assert told["mhpatchcore_refused_total", "unreadable"] == 2
    assert told["mhpatchcore_refused_total", "unknown"] == 1
    assert told["mhpatchcore_compute_seconds_count", "vial"] == 3
    assert told["process_resident_memory_bytes", ""] > 1e6 and told["process_open_fds", ""] > 0
    (sha256,) = [one["sha256"] for one in client.get("/v1/models").json()]
    assert f'mhpatchcore_model_info{{model="vial",sha256="{sha256}"}} 1.0' in client.get("/metrics").text
    assert told["mhpatchcore_queue_seconds_count", "vial"] == told["mhpatchcore_decode_seconds_count", "vial"]
    assert told["mhpatchcore_observed_rate", "vial"] == pytest.approx(2 / 3)
    assert told["mhpatchcore_promised_rate", "vial"] == pytest.approx(0.2)
    assert "anything" not in client.get("/metrics").text  # a name that somebody made up is no label


def test_an_alarm_tells_when_rejects_are_too_many(client: TestClient) -> None:
    content, n = png(bad()), 0
    while not client.get("/v1/models").json()[0]["alarm"]:
        client.post(SCORE, content=content)
        n += 1
        assert n < 20
    p = [binom.sf(k - 1, k, 0.2) for k in (n - 1, n)]  # k rejects of k parts or more
    assert p[1] < ALARM <= p[0]
    told = samples(client)
    assert told["mhpatchcore_alarm", "vial"] == 1
    assert told["mhpatchcore_rejects_p", "vial"] == pytest.approx(p[1])
    seen = client.get("/v1/models/vial").json()["sha256"]
    client.put("/v1/models/vial/threshold", json={"false_alarm": 0.5, "instead_of": seen})
    # another model: nothing is known of it yet
    assert samples(client)["mhpatchcore_alarm", "vial"] == 0
    assert samples(client)["mhpatchcore_swaps_total", "vial"] == 1


def test_problems_and_drift_are_gauges(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object) -> None:
        raise sqlite3.OperationalError("database or disk is full")

    model = write_model(tmp_path / "vial.mhpc")
    record = Record(tmp_path / "verdicts.sqlite")
    with TestClient(create_app([tmp_path], record=record)) as client:
        client.post(SCORE, content=png(good()))
        told = samples(client)
        names = ("problem", "drift", "alarm")
        assert [told[f"mhpatchcore_{name}", "vial"] for name in names] == [0, 0, 0]
        before = client.get("/v1/models").json()[0]["sha256"]
        monkeypatch.setattr(recording, "_add", fails)
        for _ in range(12):
            client.post(SCORE, content=png(bad()))
        model.write_bytes(b"no model")
        client.app.state.service.models.refresh()  # type: ignore[attr-defined]
        while not record.problem:
            time.sleep(0.01)
        told = samples(client)
        assert [told[f"mhpatchcore_{name}", "vial"] for name in names] == [1, 1, 1]
        assert (told["mhpatchcore_record_problem", ""], told["mhpatchcore_record_lost", ""]) == (1, 0)
        write_model(model, 0.4)
        client.app.state.service.models.refresh()  # type: ignore[attr-defined]
        assert before not in client.get("/metrics").text  # the hash is that of the model in service
    recorded = list(recording.verdicts(record.path))
    assert len(recorded) + record.lost == 13  # what could not be written to the end


def test_a_camera_that_sees_other_images_is_told(tmp_path: Path) -> None:
    for seed, picture in enumerate(vials(0, 8)):
        Image.fromarray(picture).save(tmp_path / f"{seed}.png")
    Detector.fit(tmp_path, Config(sizes=96, K=200)).save(tmp_path / "vial.mhpc")
    record = Record(tmp_path / "verdicts.sqlite")
    with TestClient(create_app([tmp_path / "vial.mhpc"], record=record)) as client:
        for picture in vials(100, 12):
            client.post(SCORE, content=png(picture))
        assert samples(client)["mhpatchcore_camera_drift", "vial"] == 0
        assert client.get("/v1/models/vial/drift").json()["camera"]["changes"] == []
        for picture in vials(200, 50):
            client.post(SCORE, content=png((picture * 0.7).astype(np.uint8)))
        assert samples(client)["mhpatchcore_camera_drift", "vial"] == 1
        camera = client.get("/v1/models/vial/drift").json()["camera"]
        assert camera["n"] == 50 and camera["changes"][0]["words"].endswith(" % darker")
        assert "darker" in camera["verdict"]
        told = client.get("/v1/models/vial/reference.jpg")
        assert told.status_code == 200 and told.headers["content-type"] == "image/jpeg"
        answer = client.get("/v1/parts?limit=1").json()[0]
    *_, last = recording.verdicts(record.path)
    assert last["camera"] == answer["camera"] and 0 < last["camera"]["brightness"] < 255


def test_a_picture_of_what_was_learnt_needs_its_file(client: TestClient) -> None:
    told = client.get("/v1/models/vial/reference.jpg")
    assert told.status_code == 404 and "training images" in told.json()["error"]


def test_requests_are_counted_by_the_whole_address_of_their_route(client: TestClient) -> None:
    for address in (
        "/v1/models/vial",
        "/v2/models/vial",
        "/v2/models/vial/ready",
        "/v2/models/vial/versions/1",
    ):
        assert client.get(address).status_code == 200
    told = client.get("/metrics").text
    for route in ("/v1/models/{name}", "/v2/models/{name}", "/v2/models/{name}/ready"):
        assert f'mhpatchcore_requests_total{{route="{route}",status="200"}} 1.0' in told
    assert 'route=""' not in told and 'route="/ready"' not in told
