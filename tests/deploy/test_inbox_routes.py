"""The inbox over HTTP: what is taken, what is refused and how, and that no path leaves the machine."""

from __future__ import annotations

import io
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from services import png
from small_detector import PIXELS, small_detector, vials

pytest.importorskip("fastapi")
from fastapi.testclient import TestClient

from mhpatchcore.calibration.choices import choices
from mhpatchcore.deploy.inbox import journal as inbox_journal
from mhpatchcore.deploy.inbox.versions import sha256_of
from mhpatchcore.deploy.serve.app import create_app
from mhpatchcore.detector import Detector


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


def test_choices_say_what_each_rate_finds_of_the_labelled_defects(client: TestClient, model: Path) -> None:
    detector = Detector.load(model)
    before = client.get("/v1/models/part/choices").json()
    assert before == [asdict(one) for one in choices(detector.calibration)]
    assert [one["in_use"] for one in before].count(True) == 1 and before[0]["found"] is None
    labelled(client, png(vials(20, 1)[0]), "good")
    defect = labelled(client, png(255 - vials(21, 1)[0]), "defect")
    after = client.get("/v1/models/part/choices").json()
    assert after == [asdict(one) for one in choices(detector.calibration, [defect["score"]])]
    assert {one["of"] for one in after} == {1}
    client.delete(f"/v1/inbox/{defect['id']}")
    assert client.get("/v1/models/part/choices").json() == before
    assert client.get("/v1/models/other/choices").status_code == 404


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
    assert client.delete(f"/v1/inbox/{id_}?who=Cy&note=twice").status_code == 204
    assert client.get(f"/v1/inbox/{id_}").status_code == 404 and client.get("/v1/inbox").json() == []
    said = client.get(f"/v1/inbox/{id_}/statements").json()
    assert [(one["label"], one["who"], one["note"]) for one in said] == [
        (None, "Cy", "twice"),
        ("defect", "", "dust"),
        ("good", "Ada", "dust"),
    ]
    back = client.patch(f"/v1/inbox/{id_}", json={"label": "good", "who": "Di"})
    assert (back.status_code, back.json()["who"]) == (200, "Di") and len(client.get("/v1/inbox").json()) == 1


def test_what_the_caller_calls_a_part_comes_back_as_given(client: TestClient) -> None:
    odd = {"part": "LOT 7 /12/4", "name": "/line/12/a.png"}
    headers = {"content-type": "image/png"}
    image = png(vials(20, 1)[0])
    scored = client.post("/v1/models/part/score", params=odd, content=image, headers=headers).json()
    kept = client.post("/v1/inbox", json={"id": scored["results"][0]["id"], "label": "good"}).json()
    effect = ready(client, action="learn")["preview"]["effects"][0]
    for told in (scored["results"][0], client.get("/v1/parts").json()[0], kept, effect):
        assert {name: told[name] for name in odd} == odd


def test_an_image_can_be_sent_with_its_label(client: TestClient) -> None:
    address = "/v1/inbox?model=part&label=defect&part=A-7&who=Ben"
    headers = {"content-type": "image/png"}
    kept = client.post(address, content=png(vials(21, 1)[0]), headers=headers)
    assert kept.status_code == 201 and (kept.json()["part"], kept.json()["who"]) == ("A-7", "Ben")
    assert client.post(address, content=b"torn", headers=headers).status_code == 422
    assert client.post("/v1/inbox", content=b"x", headers=headers).status_code == 422
    other = address.replace("model=part", "model=none")
    assert client.post(other, content=png(vials(21, 1)[0]), headers=headers).status_code == 404


def test_labelled_defects_are_taught_and_named(client: TestClient) -> None:
    noise = png(np.random.default_rng(0).integers(0, 256, (PIXELS, PIXELS, 3)).astype(np.uint8))
    labelled(client, noise, "defect", note="hail")
    job = ready(client, action="teach", who="Ada")
    assert job["state"] == "ready" and job["preview"]["defects"]["right_after"] == 1
    assert client.post(f"/v1/jobs/{job['id']}/accept").json()["state"] == "accepted"
    headers = {"content-type": "image/png"}
    (again,) = client.post("/v1/models/part/score", content=noise, headers=headers).json()["results"]
    assert (again["verdict"], again["defect"]) == ("rejected", "hail")
    change = client.get("/v1/models/part/versions").json()["changes"][0]
    assert (change["what"], change["who"], change["state"]) == ("teach", "Ada", "done")


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
    assert [(one["version"], one["in_use"]) for one in told["versions"]] == [(2, True), (1, False)]
    change = told["changes"][0]
    assert (change["note"], change["state"], change["sha256_before"]) == ("lot 7", "done", first)
    assert change["threshold_after"] == job["preview"]["threshold_after"]
    undo = ready(client, action="undo", version=1, who="Cy")
    assert undo["action"] == "undo" and undo["preview"]["version"] == 1 and sha256_of(model) != first
    assert client.post(f"/v1/jobs/{undo['id']}/accept").json()["sha256"] == first == sha256_of(model)
    assert client.get("/v1/models/part").json()["sha256"] == first
    assert client.get("/v1/models/part/versions").json()["changes"][0]["who"] == "Cy"
    again = client.post("/v1/models/part/undo", json={"version": 2, "who": "Di", "instead_of": first})
    assert (again.status_code, again.json()["version"]) == (200, 2) and again.json()["in_use"]


def test_going_back_takes_the_model_that_was_seen(client: TestClient, model: Path) -> None:
    first = sha256_of(model)
    assert client.post(
        f"/v1/jobs/{ready(client, action='recalibrate', false_alarm=0.2)['id']}/accept"
    ).is_success
    seen = client.get("/v1/models/part").json()["sha256"]
    assert client.post("/v1/models/part/undo", json={}).status_code == 428
    pressed = [client.post("/v1/models/part/undo", json={"instead_of": seen}).status_code for _ in range(2)]
    assert pressed[0] == 200 and pressed[1] in (409, 422) and sha256_of(model) == first


def test_a_threshold_is_seen_before_it_is_set(client: TestClient, model: Path) -> None:
    labelled(client, png(vials(20, 1)[0]), "good")
    before, address = client.get("/v1/models/part").json(), "/v1/models/part/threshold"
    assert client.put(address, json={"false_alarm": 0.3}).status_code == 428
    assert client.put(address, json={"false_alarm": 0.99999, "preview": True}).status_code == 422
    shown = client.put(address, json={"false_alarm": 0.3, "preview": True}).json()
    assert shown["model_sha256"] == before["sha256"] == sha256_of(model)  # nothing is written
    assert shown["threshold_after"] < shown["threshold_before"] and shown["good"]["parts"] == 1
    asked = {"false_alarm": 0.3, "instead_of": shown["model_sha256"], "who": "Ada", "note": "too lax"}
    after = client.put(address, json=asked).json()
    assert (after["sha256"], after["threshold"]) == (sha256_of(model), shown["threshold_after"])
    (change, *_) = client.get("/v1/models/part/versions").json()["changes"]
    assert (change["what"], change["who"], change["note"]) == ("recalibrate", "Ada", "too lax")
    assert (change["sha256_before"], change["sha256_after"]) == (before["sha256"], after["sha256"])
    assert (change["threshold_before"], change["threshold_after"]) == (
        before["threshold"],
        after["threshold"],
    )
    late = client.put(address, json=asked | {"false_alarm": 0.2})
    assert late.status_code == 409 and "no longer the model" in late.json()["error"]
    assert sha256_of(model) == after["sha256"]


def test_a_proposal_of_a_model_that_has_changed_is_not_taken(client: TestClient, model: Path) -> None:
    job = ready(client, action="recalibrate", false_alarm=0.2)
    seen = sha256_of(model)
    asked = {"false_alarm": 0.3, "instead_of": seen}
    assert client.put("/v1/models/part/threshold", json=asked).status_code == 200
    answer = client.post(f"/v1/jobs/{job['id']}/accept")
    assert answer.status_code == 409 and "changed" in answer.json()["error"]
    assert client.post(f"/v1/jobs/{job['id']}/discard").json()["state"] == "discarded"
    assert client.post(f"/v1/jobs/{job['id']}/accept").status_code == 409


def test_a_locked_inbox_changes_nothing_and_can_be_tried_again(
    client: TestClient, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inbox_journal, "WAIT", 0.1)
    kept = labelled(client, png(vials(20, 1)[0]), "good")
    first, job = sha256_of(model), ready(client, action="recalibrate", false_alarm=0.2)
    with closing(sqlite3.connect(model.with_name("inbox.sqlite"), isolation_level=None)) as db:
        db.execute("BEGIN IMMEDIATE")
        asked = {"false_alarm": 0.3, "instead_of": first}
        answers = [
            client.post(f"/v1/jobs/{job['id']}/accept"),
            client.put("/v1/models/part/threshold", json=asked),
            client.patch(f"/v1/inbox/{kept['id']}", json={"label": "defect"}),
            client.delete(f"/v1/inbox/{kept['id']}"),
        ]
        assert client.get("/v1/inbox").json() == [kept]  # it can be read
    assert [answer.status_code for answer in answers] == [503] * len(answers)
    assert all("locked" in answer.json()["error"] for answer in answers)
    assert sha256_of(model) == first == client.get("/v1/models/part").json()["sha256"]
    assert client.get(f"/v1/jobs/{job['id']}").json()["state"] == "ready"
    accepted = client.post(f"/v1/jobs/{job['id']}/accept").json()
    assert accepted["sha256"] == client.get("/v1/models/part").json()["sha256"] == sha256_of(model) != first
    changes = client.get("/v1/models/part/versions").json()["changes"]
    assert [(one["what"], one["state"]) for one in changes] == [("recalibrate", "done"), ("found", "done")]


def test_what_fails_says_why_and_no_path(client: TestClient, model: Path) -> None:
    assert ready(client, action="learn")["error"].startswith("the inbox has no good parts")
    for body, status in (
        ({"action": "forget"}, 422),
        ({"action": "learn", "ids": ["1"]}, 422),
        ({"action": "learn", "ids": [True]}, 422),
        ({"action": "recalibrate", "false_alarm": 2}, 422),
        ({"action": "undo", "version": "3"}, 422),
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
        client.get("/v1/inbox/7/statements"),
    ]
    assert [answer.status_code for answer in answers] == [404] * len(answers)
    scored = client.post(
        "/v1/models/part/score", content=png(vials(20, 1)[0]), headers={"content-type": "image/png"}
    )
    id_ = scored.json()["results"][0]["id"]
    wrong = client.post("/v1/inbox", json={"id": id_, "label": "bad"})
    undo = client.post("/v1/models/part/undo", json={"instead_of": sha256_of(model)})
    assert (wrong.status_code, undo.status_code) == (422, 422)
    assert "'good' or 'defect'" in wrong.json()["error"] and "no earlier version" in undo.json()["error"]
    model.with_name("inbox.sqlite").write_bytes(b"no database" * 100)
    broken = client.get("/v1/inbox")
    assert broken.status_code == 503
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
            ("PUT", "/v1/models/part/threshold"),
        ):
            assert client.request(method, address).status_code == 401
