"""The inbox over HTTP: what is taken, what is refused and how, and that no path leaves the machine."""

from __future__ import annotations

import io
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from small_detector import PIXELS, small_detector, vials

pytest.importorskip("fastapi")
from fastapi.testclient import TestClient

from mhpatchcore.deploy.inbox_versions import sha256_of
from mhpatchcore.deploy.serve.app import create_app


def png(pixels: np.ndarray) -> bytes:
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "PNG")
    return file.getvalue()


@pytest.fixture
def model(tmp_path: Path) -> Path:
    small_detector().save(tmp_path / "part.mhpc")
    return tmp_path / "part.mhpc"


@pytest.fixture
def client(model: Path) -> Iterator[TestClient]:
    with TestClient(create_app([model])) as client:
        yield client


def labelled(client: TestClient, image: bytes, label: str, **more: str) -> dict[str, Any]:
    """Scored, then labelled by the id of the part."""
    headers = {"content-type": "image/png"}
    scored = client.post("/v1/models/part/score?name=1.png", content=image, headers=headers).json()[
        "results"
    ][0]
    answer = client.post("/v1/inbox", json={"id": scored["id"], "label": label, **more})
    assert answer.status_code == 201
    return dict(answer.json())


def ready(client: TestClient, **asked: Any) -> dict[str, Any]:
    answer = client.post("/v1/models/part/preview", json=asked)
    assert answer.status_code == 202
    end = time.monotonic() + 60
    while (job := client.get(f"/v1/jobs/{answer.json()['id']}").json())["state"] in ("queued", "running"):
        assert time.monotonic() < end
        time.sleep(0.02)
    return dict(job)


def test_a_label_keeps_what_was_said(client: TestClient, model: Path) -> None:
    image = png(vials(20, 1)[0])
    kept = labelled(client, image, "good", who="Ada", note="dust")
    assert (kept["label"], kept["who"], kept["note"], kept["name"]) == ("good", "Ada", "dust", "1.png")
    assert kept["model_sha256"] == sha256_of(model) and kept["score"] > 0 and kept["learnt"] is False
    id_ = kept["id"]
    assert client.get("/v1/inbox").json() == [kept] == client.get("/v1/inbox?model=part&label=good").json()
    assert client.get("/v1/inbox?label=defect").json() == [] == client.get("/v1/inbox?model=other").json()
    assert client.get(f"/v1/inbox/{id_}").json() == kept
    picture = client.get(f"/v1/inbox/{id_}/image.jpg?longest=32")
    assert Image.open(io.BytesIO(picture.content)).size == (32, 32)
    corrected = client.patch(f"/v1/inbox/{id_}", json={"label": "defect"}).json()
    assert (corrected["label"], corrected["note"]) == ("defect", "dust")
    assert client.delete(f"/v1/inbox/{id_}").status_code == 204
    assert client.get(f"/v1/inbox/{id_}").status_code == 404


def test_an_image_can_be_sent_with_its_label(client: TestClient) -> None:
    address = "/v1/inbox?model=part&label=defect&part=A-7&who=Ben"
    headers = {"content-type": "image/png"}
    kept = client.post(address, content=png(vials(21, 1)[0]), headers=headers)
    assert kept.status_code == 201 and (kept.json()["part"], kept.json()["who"]) == ("A-7", "Ben")
    assert client.post(address, content=b"torn", headers=headers).status_code == 422
    assert client.post("/v1/inbox", content=b"x", headers=headers).status_code == 422
    other = address.replace("model=part", "model=none")
    assert client.post(other, content=png(vials(21, 1)[0]), headers=headers).status_code == 404


def test_learn_accept_and_undo(client: TestClient, model: Path) -> None:
    first = sha256_of(model)
    good = labelled(client, png(vials(20, 1)[0]), "good")
    noise = np.random.default_rng(0).integers(0, 256, (PIXELS, PIXELS, 3)).astype(np.uint8)
    labelled(client, png(noise), "defect")
    job = ready(client, action="learn", ids=[good["id"]], who="Ada", note="lot 7")
    assert job["state"] == "ready" and job["preview"]["defects"]["right_after"] == 1
    assert sha256_of(model) == first
    accepted = client.post(f"/v1/jobs/{job['id']}/accept").json()
    served = client.get("/v1/models/part").json()
    assert accepted["state"] == "accepted" and accepted["sha256"] == served["sha256"] == sha256_of(model)
    assert served["history"][-1]["who"] == "Ada" and served["images_learnt"] == 9
    assert client.get(f"/v1/inbox/{good['id']}").json()["learnt"] is True
    told = client.get("/v1/models/part/versions").json()
    assert [one["in_use"] for one in told["versions"]] == [True, False]
    assert told["changes"][0]["note"] == "lot 7"
    back = client.post("/v1/models/part/undo", json={"version": first[:12], "who": "Cy"})
    assert back.status_code == 200 and sha256_of(model) == first
    assert client.get("/v1/models/part").json()["sha256"] == first
    assert client.get("/v1/models/part/versions").json()["changes"][0]["who"] == "Cy"


def test_a_proposal_of_a_model_that_has_changed_is_not_taken(client: TestClient, model: Path) -> None:
    job = ready(client, action="recalibrate", false_alarm=0.2)
    assert client.put("/v1/models/part/threshold", json={"false_alarm": 0.3}).status_code == 200
    versions = client.get("/v1/models/part/versions").json()["versions"]
    assert len(versions) == 2  # the threshold alone can be taken back, too
    answer = client.post(f"/v1/jobs/{job['id']}/accept")
    assert answer.status_code == 409 and "changed" in answer.json()["error"]
    assert client.post(f"/v1/jobs/{job['id']}/discard").json()["state"] == "discarded"
    assert client.post(f"/v1/jobs/{job['id']}/accept").status_code == 409


def test_what_fails_says_why_and_no_path(client: TestClient, model: Path) -> None:
    assert ready(client, action="learn")["error"].startswith("the inbox has no good parts")
    for body, status in (
        ({"action": "forget"}, 422),
        ({"action": "learn", "ids": ["1"]}, 422),
        ({"action": "learn", "ids": [True]}, 422),
        ({"action": "recalibrate", "false_alarm": 2}, 422),
        ([1], 422),
    ):
        assert client.post("/v1/models/part/preview", json=body).status_code == status
    answers = [
        client.post("/v1/models/none/preview", json={"action": "learn"}),
        client.get("/v1/models/none/versions"),
        client.get("/v1/jobs/none"),
        client.post("/v1/jobs/none/accept"),
        client.post("/v1/inbox", json={"id": "none", "label": "good"}),
        client.patch("/v1/inbox/1", json={"label": "good"}),
        client.delete(f"/v1/inbox/{2**70}"),
        client.get("/v1/inbox/7/image.jpg"),
    ]
    assert [answer.status_code for answer in answers] == [404] * len(answers)
    scored = client.post(
        "/v1/models/part/score", content=png(vials(20, 1)[0]), headers={"content-type": "image/png"}
    )
    id_ = scored.json()["results"][0]["id"]
    wrong = client.post("/v1/inbox", json={"id": id_, "label": "bad"})
    undo = client.post("/v1/models/part/undo", json={})
    assert (wrong.status_code, undo.status_code) == (422, 422)
    assert "good or defect" in wrong.json()["error"] and "no earlier version" in undo.json()["error"]
    model.with_name("inbox.sqlite").write_bytes(b"no database" * 100)
    broken = client.get("/v1/inbox")
    assert broken.status_code == 422
    for answer in (*answers, wrong, undo, broken):
        assert str(model.parent) not in answer.text


def test_a_token_guards_the_inbox(model: Path) -> None:
    with TestClient(create_app([model], token="a-token-of-enough-letters")) as client:
        for method, address in (
            ("GET", "/v1/inbox"),
            ("POST", "/v1/inbox"),
            ("POST", "/v1/models/part/preview"),
            ("GET", "/v1/models/part/versions"),
            ("POST", "/v1/models/part/undo"),
        ):
            assert client.request(method, address).status_code == 401
