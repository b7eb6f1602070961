"""Parts that could not be judged, that came too late, or were only tried out; and all of them after a restart."""

from __future__ import annotations

import io
import json
import logging
import threading
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fastapi.testclient import TestClient
from PIL import Image
from services import bad, good, png, write_model

from mhpatchcore.deploy.inbox import Inbox
from mhpatchcore.deploy.record import Keeping, Record, verdicts
from mhpatchcore.deploy.serve import pool
from mhpatchcore.deploy.serve import service as serving
from mhpatchcore.deploy.serve.app import create_app
from mhpatchcore.deploy.serve.metrics import Metrics
from mhpatchcore.deploy.serve.pool import Limits
from mhpatchcore.deploy.serve.service import Parts, Service

SCORE = "/v1/models/vial/score"


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_model(tmp_path_factory.mktemp("models") / "vial.mhpc")


@pytest.fixture
def client(model: Path) -> Iterator[TestClient]:
    with TestClient(create_app([model], Limits(workers=1, max_bytes=1_000_000))) as client:
        yield client


def facts(client: TestClient) -> dict[str, Any]:
    (told,) = client.get("/v1/models").json()
    return dict(told)


def huge_png() -> bytes:
    """The head of a PNG that says that it has 441 megapixels."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return len(data).to_bytes(4) + kind + data + zlib.crc32(kind + data).to_bytes(4)

    head = (21000).to_bytes(4) * 2 + bytes([8, 0, 0, 0, 0])
    return (
        b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(b"")) + chunk(b"IEND", b"")
    )


@pytest.mark.parametrize(
    ("content", "kind", "status", "words"),
    [
        (b"no image", "image/png", 422, "cannot read"),
        (b"", "image/png", 422, "empty"),
        (huge_png(), "image/png", 413, "21000 × 21000"),
        (bytes(1_000_001), "image/png", 413, "bytes"),
        (b"<html>", "text/html", 415, "image"),
    ],
    ids=["no image", "empty", "pixels", "bytes", "type"],
)
def test_what_cannot_be_judged_is_rejected_with_its_reason(
    client: TestClient, content: bytes, kind: str, status: int, words: str
) -> None:
    headers = {"Content-Type": kind}
    answer = client.post(SCORE, content=content, params={"part": "SN-1", "name": "a.png"}, headers=headers)
    told = answer.json()
    assert answer.status_code == status and words in told["error"]
    (part,) = told["results"]
    assert (part["verdict"], part["is_rejected"], part["reason"]) == ("rejected", True, told["error"])
    assert (part["part"], part["name"], part["score"], part["size"]) == ("SN-1", "a.png", None, None)
    assert client.get("/v1/parts?verdict=rejected").json() == [part]
    assert client.get(f"/v1/parts/{part['id']}").json() == part
    for picture in ("image.jpg", "heatmap.png", "evidence.json", "evidence.png"):
        assert client.get(f"/v1/parts/{part['id']}/{picture}").status_code == 404
    now = facts(client)
    assert (now["unjudged"], now["requests"], now["rejected"]) == (1, 0, 0)


def test_a_fault_is_a_reject_and_its_traceback_in_the_log(
    client: TestClient, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fails(*_: object) -> None:
        raise ZeroDivisionError("a fault")

    monkeypatch.setattr(serving, "judged", fails)
    answer = client.post(SCORE, content=png(good()), params={"part": "SN-2"})
    assert answer.status_code == 500 and "a fault" not in answer.text
    assert answer.json()["results"][0]["is_rejected"] is True
    (logged,) = [one for one in caplog.records if one.exc_info]
    assert logged.levelno == logging.ERROR and logged.part == "SN-2"  # type: ignore[attr-defined]


def test_after_a_deadline_a_part_is_rejected(client: TestClient) -> None:
    large = png(np.asarray(Image.fromarray(good()).resize((3000, 3000))), "JPEG")
    answer = client.post(SCORE, content=large, params={"deadline_ms": 1})
    (part,) = answer.json()["results"]
    assert answer.status_code == 200 and part["is_rejected"] and "within 1 ms" in part["reason"]
    files = [("images", ("a.jpg", large)), ("images", ("b.jpg", large))]
    told = client.post(SCORE, files=files, params={"deadline_ms": 1}).json()["results"]
    assert [one["verdict"] for one in told] == ["rejected"] * 2
    (whole,) = client.post(SCORE, content=png(good()), params={"deadline_ms": 20_000}).json()["results"]
    assert whole["reason"] is None and whole["score"] > 0
    assert client.post(SCORE, content=png(good()), params={"deadline_ms": 0}).status_code == 422
    tensor = {"name": "image", "datatype": "UINT8", "shape": [64, 64, 3], "data": good().ravel().tolist()}
    asked = {"inputs": [tensor], "outputs": [{"name": "verdict"}, {"name": "is_rejected"}, {"name": "score"}]}
    late = client.post("/v2/models/vial/infer", json=asked, params={"deadline_ms": 0.001}).json()["outputs"]
    assert [one["data"] for one in late] == [["rejected"], [True], [None]]


def test_a_verdict_is_told_also_where_its_picture_cannot_be_made(
    client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pool, "MOST_WAITING", 0)  # the lane is full
    asked = {"map": "png", "evidence": True}
    (part,) = client.post(SCORE, content=png(bad()), params=asked).json()["results"]
    assert part["verdict"] == "rejected" and "heatmap" not in part
    answer = client.post(SCORE, content=png(bad()), headers={"Accept": "image/png"})
    assert answer.json()["results"][0]["verdict"] == "rejected"


def test_trials_do_not_count_as_production(client: TestClient) -> None:
    for _ in range(20):
        (part,) = client.post(SCORE, content=png(bad()), params={"trial": True}).json()["results"]
    client.post(SCORE, content=b"no image", params={"trial": True})
    now = facts(client)
    assert part["trial"] is True and part["verdict"] == "rejected"
    assert (now["trials"], now["unjudged"], now["requests"], now["alarm"], now["observed_parts"]) == (
        21,
        0,
        0,
        False,
        0,
    )
    assert client.get("/v1/models/vial/drift").json()["n"] == 0
    assert "mhpatchcore_parts_total{" not in client.get("/metrics").text
    client.post(SCORE, content=png(bad()))
    assert facts(client)["requests"] == 1 and client.get("/v1/parts").json()[0]["trial"] is False


def test_what_the_caller_calls_a_part_comes_back_as_given(client: TestClient) -> None:
    for name in ("LOT 7 /12/4", "/a/b/c", "../..", "Größe 7", "<b>", "a\tb"):
        (part,) = client.post(SCORE, content=png(good()), params={"part": name, "name": name}).json()[
            "results"
        ]
        assert part["part"] == part["name"] == name
    assert client.post(SCORE, content=png(good()), params={"part": "x" * 201}).status_code == 422
    document = {
        "inputs": [{"name": "image", "datatype": "UINT8", "shape": [2, 2], "data": [0] * 4}],
        "id": "\ud800",
    }
    assert client.post("/v2/models/vial/infer", content=json.dumps(document)).status_code == 400
    assert client.get("/v1/parts").status_code == 200


def test_every_verdict_is_recorded_and_shown_after_a_restart(model: Path, tmp_path: Path) -> None:
    path = tmp_path / "verdicts.sqlite"

    def app(**keeping: Any) -> Any:
        return create_app([model], Limits(workers=1), record=Record(path, Keeping(**keeping)))

    with TestClient(app(images="rejected")) as client:
        for content in (png(good()), png(bad()), b"no image"):
            client.post(SCORE, content=content, params={"part": "LOT 7 /1/2"})
        client.post(SCORE, content=png(good()), params={"trial": True})
        told = client.get("/v1/parts").json()
    assert list(verdicts(path)) == told[::-1]
    with TestClient(app()) as client:
        assert client.get("/v1/parts").json() == told
        trial, broken, rejected, passed = told
        assert Image.open(io.BytesIO(client.get(f"/v1/parts/{rejected['id']}/image.jpg").content)).size == (
            64,
            64,
        )
        for part in (trial, broken, passed):
            assert client.get(f"/v1/parts/{part['id']}/image.jpg").status_code == 404
        assert client.get(f"/v1/parts/{rejected['id']}/heatmap.png").status_code == 404
        lines = client.get("/v1/verdicts").text.splitlines()
        assert [json.loads(line) for line in lines] == told[::-1]
        assert len(client.get("/v1/verdicts?format=csv&verdict=passed").text.splitlines()) == 3
        assert client.get("/v1/verdicts?format=parquet").content.startswith(b"PAR1")
        assert client.get("/v1/verdicts?since=0001-01-01T00:00:00%2B14:00").status_code == 422
        path.rename(path.with_suffix(".gone"))
        assert client.get("/v1/verdicts").status_code == 422
    with TestClient(create_app([model])) as client:
        assert client.get("/v1/parts").json() == [] and client.get("/v1/verdicts").status_code == 404


@pytest.mark.parametrize(
    ("asked", "owner", "slow"),
    [
        ("/v1/models", Service, "facts"),
        ("/metrics", Service, "facts"),
        ("/v1/models/vial/drift", Metrics, "drift"),
        ("/v1/inbox", Inbox, "parts"),
    ],
)
def test_what_takes_a_while_is_not_done_where_verdicts_pass(
    client: TestClient, monkeypatch: pytest.MonkeyPatch, asked: str, owner: type, slow: str
) -> None:
    threads: dict[str, int] = {}

    def watch(owner: type, name: str) -> None:
        method = getattr(owner, name)

        def called(*given: Any) -> Any:
            threads[name] = threading.get_ident()
            return method(*given)

        monkeypatch.setattr(owner, name, called)

    watch(Parts, "newest")  # of the event loop
    watch(owner, slow)
    assert client.get("/v1/parts").status_code == client.get(asked).status_code == 200
    assert threads[slow] != threads["newest"]
