"""What Prometheus is told, and when rejects are more than the threshold promises."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from fastapi.testclient import TestClient
from prometheus_client.parser import text_string_to_metric_families
from scipy.stats import binom
from services import bad, good, png, write_model

from mhpatchcore.deploy.serve.app import create_app
from mhpatchcore.deploy.serve.observed import ALARM

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
