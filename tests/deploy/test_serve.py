"""The plain API, in this process: what is answered, what is refused and how."""

from __future__ import annotations

import errno
import io
import json
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
from fastapi.testclient import TestClient
from PIL import Image
from services import bad, good, png, write_model
from small_detector import small_detector, with_threshold

from mhpatchcore import Detector
from mhpatchcore.deploy.inbox import Inbox
from mhpatchcore.deploy.serve import v1
from mhpatchcore.deploy.serve.app import create_app
from mhpatchcore.deploy.serve.pool import Limits
from mhpatchcore.errors import UserError

TOKEN = "0123456789abcdef"


def full_sqlite() -> sqlite3.Error:
    """What SQLite says when there is no room."""
    with closing(sqlite3.connect(":memory:")) as db:
        db.execute("PRAGMA max_page_count = 2")
        try:
            db.execute("CREATE TABLE a AS SELECT zeroblob(100000)")
        except sqlite3.Error as error:
            return error
    raise AssertionError


SCORE = "/v1/models/vial/score"


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_model(tmp_path_factory.mktemp("models") / "vial.mhpc")


@pytest.fixture(scope="module")
def client(model: Path) -> Iterator[TestClient]:
    with TestClient(create_app([model], Limits(workers=2))) as client:
        yield client


def test_an_image_gets_the_verdict_of_the_tool(client: TestClient, model: Path, tmp_path: Path) -> None:
    detector = Detector.load(model)
    for i, pixels in enumerate((good(1), bad(2), good(3))):
        for kind in ("PNG", "JPEG"):
            content = png(pixels, kind)
            file = tmp_path / f"{i}.{kind.lower()}"
            file.write_bytes(content)
            (expected,) = detector.score_many([file])
            assert expected is not None
            (told,) = client.post(SCORE, content=content, params={"part": f"SN-{i}"}).json()["results"]
            assert (told["score"], told["verdict"]) == (expected.score, expected.verdict)
            assert (told["p_value"], told["threshold"]) == (expected.p_value, expected.threshold)
            assert [tuple(one["box"]) for one in told["regions"]] == [one.box for one in expected.regions]
            assert (told["part"], told["size"], told["model"]) == (f"SN-{i}", [64, 64], "vial")
            assert set(told["seconds"]) == {"queue", "decode", "compute"}


def test_a_large_jpeg_is_decoded_as_the_tool_decodes_it(
    client: TestClient, model: Path, tmp_path: Path
) -> None:
    pixels = np.asarray(Image.fromarray(bad()).resize((1600, 1200)))  # decoded smaller than it is
    file = tmp_path / "large.jpg"
    file.write_bytes(png(pixels, "JPEG"))
    (expected,) = Detector.load(model).score_many([file])
    (told,) = client.post(SCORE, content=file.read_bytes()).json()["results"]
    assert expected is not None and told["score"] == expected.score


def test_many_images_and_a_broken_one_among_them(client: TestClient) -> None:
    files = [
        ("images", (name, content)) for name, content in (("a.png", png(good())), ("b.png", b"no image"))
    ]
    answer = client.post(
        SCORE, files=[*files, ("images", ("c.png", png(bad())))], data={"part": ["1", "2", "3"]}
    )
    assert answer.status_code == 200
    first, broken, last = answer.json()["results"]
    assert [one["part"] for one in (first, broken, last)] == ["1", "2", "3"]
    assert (first["name"], first["verdict"], last["verdict"]) == ("a.png", "passed", "rejected")
    assert (broken["verdict"], broken["is_rejected"], broken["score"]) == ("rejected", True, None)
    assert "b.png" in broken["reason"] and "/proc" not in broken["reason"] and first["reason"] is None
    assert client.get("/v1/parts").json()[1]["id"] in [one["id"] for one in (first, broken, last)]


def test_a_heatmap_is_answered_where_a_picture_is_asked_for(client: TestClient) -> None:
    answer = client.post(SCORE, content=png(bad()), headers={"Accept": "image/png"})
    assert answer.headers["content-type"] == "image/png" and answer.headers["x-verdict"] == "rejected"
    assert float(answer.headers["x-score"]) > float(answer.headers["x-threshold"])
    assert Image.open(io.BytesIO(answer.content)).size == (64, 64)
    (told,) = client.post(SCORE, content=png(bad()), params={"map": "png", "evidence": True}).json()[
        "results"
    ]
    assert told["heatmap"].startswith("data:image/png;base64,")
    place = told["evidence"]["places"][0]
    assert place["picture"].startswith("data:image/jpeg;base64,") and "file" not in place["nearest"][0]


def test_the_last_parts_can_be_looked_at(client: TestClient) -> None:
    (told,) = client.post(SCORE, content=png(bad()), params={"part": "last"}).json()["results"]
    newest = client.get("/v1/parts", params={"limit": 2}).json()
    assert len(newest) == 2 and newest[0]["id"] == told["id"] and newest[0]["part"] == "last"
    assert {one["verdict"] for one in client.get("/v1/parts?verdict=rejected").json()} == {"rejected"}
    assert client.get("/v1/parts?model=other").json() == []
    place = f"/v1/parts/{told['id']}"
    assert client.get(place).json()["score"] == told["score"]
    assert Image.open(io.BytesIO(client.get(f"{place}/image.jpg").content)).size == (64, 64)
    layer = Image.open(io.BytesIO(client.get(f"{place}/heatmap.png?style=layer").content))
    assert layer.mode == "RGBA" and np.asarray(layer)[32, 32, 3] > np.asarray(layer)[2, 2, 3]
    outline = Image.open(io.BytesIO(client.get(f"{place}/heatmap.png?style=outline").content))
    assert 0 < np.asarray(outline)[:, :, 3].astype(bool).mean() < 0.5
    assert client.get(f"{place}/evidence.png").content.startswith(b"\x89PNG")
    assert client.get("/v1/parts/none/image.jpg").status_code == 404


def test_parts_kept_are_bounded(model: Path) -> None:
    content = png(good())
    limits = Limits(workers=1, kept_parts=3, kept_bytes=2 * len(content) + 1)
    with TestClient(create_app([model], limits)) as client:
        ids = [client.post(SCORE, content=content).json()["results"][0]["id"] for _ in range(4)]
        assert [one["id"] for one in client.get("/v1/parts").json()] == ids[:1:-1]


def test_models_are_told_without_paths(client: TestClient, model: Path) -> None:
    (facts,) = client.get("/v1/models").json()
    assert (facts["name"], facts["file"], facts["images_learnt"]) == ("vial", "vial.mhpc", 8)
    assert facts["problem"] is None and facts["promised_rate"] == pytest.approx(0.2)
    details = client.get("/v1/models/vial")
    assert details.json()["calibration_scores"] == sorted(details.json()["calibration_scores"])
    assert details.json()["history"][0]["what"] == "fit" and details.json()["config"]["K"] == 200
    assert str(model.parent) not in details.text


def test_another_threshold_is_written_and_served(tmp_path: Path) -> None:
    model = write_model(tmp_path / "vial.mhpc")
    with TestClient(create_app([model])) as client:
        before = client.get("/v1/models/vial").json()
        client.post(SCORE, content=png(good()))
        steps = client.get("/v1/models/vial/rates").json()
        assert [one["threshold"] for one in steps] == sorted(
            (one["threshold"] for one in steps), reverse=True
        )
        step = next(one for one in steps if one["threshold"] != before["threshold"])
        assert step["recent_share"] in (0.0, 1.0)
        after = client.put(
            "/v1/models/vial/threshold",
            json={"false_alarm": step["false_alarm"], "instead_of": before["sha256"]},
        ).json()
        assert after["threshold"] == step["threshold"] != before["threshold"]
        assert client.get("/v1/models/vial").json()["history"][-1]["what"] == "calibrate"
        assert Detector.load(model).threshold == step["threshold"]
        (told,) = client.post(SCORE, content=png(good())).json()["results"]
        assert told["sha256"] == after["sha256"] != before["sha256"]
        for wrong in ({"false_alarm": 0}, {"false_alarm": "x"}, [], {"false_alarm": True}, None):
            assert client.put("/v1/models/vial/threshold", json=wrong).status_code == 422
        assert client.put("/v1/models/vial/threshold", content=b"{").status_code == 422


def test_a_model_without_a_threshold_judges_nothing(tmp_path: Path) -> None:
    with_threshold(small_detector(), float("inf")).save(tmp_path / "raw.mhpc")
    with TestClient(create_app([tmp_path])) as client:
        (told,) = client.post("/v1/models/raw/score", content=png(bad())).json()["results"]
        assert told["verdict"] == "no threshold" and told["threshold"] is told["is_rejected"] is None
        assert client.get("/v1/models/raw/rates").json() == []
        assert client.get("/v1/models/raw/drift").json()["n"] == 0
        assert client.put("/v1/models/raw/threshold", json={"false_alarm": 0.1}).status_code == 409
        assert client.get("/v1/models").json()[0]["alarm"] is False


def test_drift_of_the_last_parts(client: TestClient) -> None:
    client.post(SCORE, content=png(good()))
    told = client.get("/v1/models/vial/drift").json()
    assert told["n"] == len(told["scores"]) > 0 and told["verdict"]


def error_of(answer: object) -> str:
    told = json.loads(answer.content)  # type: ignore[attr-defined]
    assert "/proc" not in told["error"] and "\n" not in told["error"]
    assert set(told) <= {"error", "results"}
    return str(told["error"])


def test_what_is_no_image_is_refused_with_its_reason(client: TestClient) -> None:
    whole = png(good())
    for content in (b"no image", whole[: len(whole) // 2], b"", whole[:-20] + b"0" * 20):
        answer = client.post(SCORE, content=content, headers={"Content-Type": "image/png"})
        assert answer.status_code == 422 and error_of(answer)
    assert client.post(SCORE, content=whole, headers={"Content-Type": "text/html"}).status_code == 415
    assert client.post(SCORE, content=whole, headers={"Content-Encoding": "gzip"}).status_code == 415
    assert client.post("/v1/models/other/score", content=whole).status_code == 404
    assert (
        client.post(SCORE, content=b"x", headers={"Content-Type": "multipart/form-data"}).status_code == 422
    )
    assert client.post(SCORE, data={"part": "1"}, files={}).status_code == 422  # a form without files
    as_curl = {"Content-Type": "application/x-www-form-urlencoded"}
    assert client.post(SCORE, content=whole, headers=as_curl).status_code == 200
    assert client.get(SCORE).status_code == 405 and error_of(client.get(SCORE))
    assert client.get("/v1/parts?limit=0").status_code == 422
    assert client.get("/v1/parts/x/heatmap.png?style=none").status_code == 422


def test_too_much_is_refused(model: Path) -> None:
    content = png(good())
    with TestClient(create_app([model], Limits(max_bytes=len(content) + 1000, max_images=2))) as client:
        assert client.post(SCORE, content=content).status_code == 200
        answer = client.post(SCORE, content=content + bytes(1001))
        assert answer.status_code == 413 and "bytes" in error_of(answer)
        pieces = iter([content, bytes(2000)])  # a length that is not told before
        assert client.post(SCORE, content=pieces).status_code == 413
        small = png(good()[:8, :8])
        files = [("images", (f"{i}.png", small)) for i in range(3)]
        assert client.post(SCORE, files=files).status_code == 413
    with TestClient(create_app([model], Limits(max_pixels=64 * 64))) as client:
        assert client.post(SCORE, content=content).status_code == 200
        wide = png(np.zeros((64, 65, 3), np.uint8))
        answer = client.post(SCORE, content=wide)
        assert answer.status_code == 413 and "65 × 64" in error_of(answer)


GUARDED = ("/v1/models", "/v1/parts", "/v1/events", "/v1/verdicts", "/v2", "/v2/models/vial", "/metrics")


def test_who_does_not_know_the_token_gets_nothing(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(v1, "SLOWED", 0.0)
    with TestClient(create_app([model], token=TOKEN)) as client:
        for path in (*GUARDED, "/openapi.json"):
            for given in ({}, {"Authorization": "Bearer wrong"}, {"Authorization": f"Basic {TOKEN}"}):
                answer = client.get(path, headers=given)
                assert answer.status_code == 401 and TOKEN not in answer.text
        assert client.post(SCORE, content=png(good())).status_code == 401
        known = {"Authorization": f"Bearer {TOKEN}"}
        assert client.get("/v1/models", headers=known).status_code == 200
        assert client.post(SCORE, content=png(good()), headers=known).status_code == 200
        assert client.get("/v2/health/live").status_code == client.get("/v2/health/ready").status_code == 200


def test_wrong_tokens_are_logged_and_answered_late(
    model: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(v1, "SLOWED", 0.3)
    with TestClient(create_app([model], token=TOKEN)) as client:
        started = time.perf_counter()
        assert client.get("/v1/models", headers={"Authorization": "Bearer guess"}).status_code == 401
        assert time.perf_counter() - started > 0.3
        assert client.get("/v1/models").status_code == 401  # none at all is no guess: the page begins so
    (logged,) = [one.getMessage() for one in caplog.records if "token" in one.getMessage()]
    assert "testclient" in logged and "guess" not in logged


@pytest.mark.parametrize(
    "cause",
    [
        OSError(errno.ENOSPC, "No space left on device"),
        OSError(errno.EDQUOT, "Quota exceeded"),
        full_sqlite(),
    ],
)
def test_a_full_disk_has_a_status_of_its_own(
    client: TestClient, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, cause: Exception
) -> None:
    (told,) = client.post(SCORE, content=png(bad())).json()["results"]

    def full(*_: object, **__: object) -> None:
        raise UserError("cannot use the inbox /var/lib/inbox.sqlite") from cause

    monkeypatch.setattr(Inbox, "add", full)
    answer = client.post("/v1/inbox", json={"id": told["id"], "label": "good"})
    assert answer.status_code == 507 and "full" in error_of(answer)
    assert any("full" in one.message and one.levelname == "ERROR" for one in caplog.records)


def test_pages_of_other_sites_reach_nothing(model: Path) -> None:
    with TestClient(create_app([model], hosts=("testserver",))) as client:
        content = png(good())
        own = {"Origin": "http://testserver"}
        assert client.post(SCORE, content=content, headers=own).status_code == 200
        assert (
            client.post(SCORE, content=content, headers={"Origin": "http://evil.example"}).status_code == 403
        )
        assert client.get("/v1/models", headers={"Host": "evil.example"}).status_code == 403
        assert client.get("/v1/models").headers["x-content-type-options"] == "nosniff"


def test_every_answer_is_described(client: TestClient) -> None:
    document = client.get("/openapi.json").json()
    assert client.get("/reference.html").status_code == 200  # the page that shows it
    assert {"/v1/models/{name}/score", "/v2/models/{name}/infer", "/metrics"} <= set(document["paths"])
    body = document["paths"]["/v1/models/{name}/score"]["post"]["requestBody"]["content"]
    assert {"image/png", "multipart/form-data"} <= set(body)
    assert document["components"]["schemas"]["ScoreAnswer"]["example"]["results"]
