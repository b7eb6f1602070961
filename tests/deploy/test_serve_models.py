"""Models in service: what is told of a file is true of it, and a model that is replaced is let go."""

from __future__ import annotations

import gc
import hashlib
import weakref
from pathlib import Path

import httpx
import pytest
from cli_runs import Run, assert_one_line_error, graphs, run
from fastapi.testclient import TestClient
from services import good, png, running, write_model
from small_detector import small_detector, with_changes, with_threshold

from mhpatchcore import Detector
from mhpatchcore.deploy.inbox import Inbox
from mhpatchcore.deploy.inbox.proposals import Request, accept, propose
from mhpatchcore.deploy.inbox.versions import sha256_of, versions
from mhpatchcore.deploy.serve import registry
from mhpatchcore.deploy.serve.app import create_app
from mhpatchcore.deploy.serve.registry import Registry
from mhpatchcore.model.history import OtherProductError

__all__ = ["graphs", "run"]  # fixtures


def test_a_file_that_is_replaced_while_it_is_loaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write_model(tmp_path / "vial.mhpc", 0.2)
    before, threshold = (
        hashlib.sha256(path.read_bytes()).hexdigest(),
        small_detector().calibrated(0.2).threshold,
    )
    load = registry.loaded

    def slowly(place: Path) -> tuple[str, Detector]:
        monkeypatch.setattr(registry, "loaded", load)
        found = load(place)
        write_model(path, 0.6)
        return found

    monkeypatch.setattr(registry, "loaded", slowly)
    models = Registry([path])
    assert (models["vial"].sha256, models["vial"].detector.threshold) == (before, threshold)
    models.refresh()
    assert models["vial"].sha256 == hashlib.sha256(path.read_bytes()).hexdigest() != before
    assert models["vial"].detector.threshold == small_detector().calibrated(0.6).threshold


def test_parts_that_are_kept_do_not_hold_a_model_that_is_gone(tmp_path: Path) -> None:
    path = write_model(tmp_path / "vial.mhpc")
    app = create_app([path])
    with TestClient(app) as client:
        (told,) = client.post("/v1/models/vial/score", content=png(good())).json()["results"]
        gone = weakref.ref(app.state.service.models["vial"].detector)
        for view in app.state.service.parts[told["id"]].result.views:
            assert view.distances.base is None  # memory of its own, and not of the session
        asked = {"false_alarm": 0.5, "instead_of": told["sha256"]}
        assert client.put("/v1/models/vial/threshold", json=asked).status_code == 200
        client.post("/v1/models/vial/score", content=png(good()))
        gc.collect()
        assert gone() is None
        assert client.get(f"/v1/parts/{told['id']}/heatmap.png").status_code == 200
        assert client.get(f"/v1/parts/{told['id']}/evidence.json").status_code == 200


def of_product(path: Path, product: str, rate: float = 0.2) -> Path:
    path.parent.mkdir(exist_ok=True)
    with_changes(small_detector().calibrated(rate), product=product).save(path)
    return path


def test_a_model_of_another_product_does_not_take_the_place(tmp_path: Path) -> None:
    path = of_product(tmp_path / "plate.mhpc", "plate")
    right = sha256_of(path)
    with TestClient(create_app([path])) as client:
        assert client.get("/v1/models/plate").json()["product"] == "plate"
        of_product(path, "bottle")
        client.app.state.service.models.refresh()  # type: ignore[attr-defined]
        told = client.get("/v1/models/plate").json()
        assert told["sha256"] == right and "is a model of bottle, and was one of plate" in told["problem"]
        (scored,) = client.post("/v1/models/plate/score", content=png(good())).json()["results"]
        assert scored["sha256"] == right
        asked = {"false_alarm": 0.3, "instead_of": sha256_of(path)}
        assert client.put("/v1/models/plate/threshold", json=asked).status_code == 409
    with pytest.raises(OtherProductError, match="--other-product"):
        create_app([path])  # nor after a restart
    with pytest.raises(OtherProductError):
        Registry([path])  # as `watch` has it
    box = Inbox.beside(path)
    accept(box, propose(box, path, Request("undo"), scored=False))  # it was kept
    assert sha256_of(path) == right and create_app([path]).state.service.models["plate"].sha256 == right


def test_another_product_is_taken_where_that_is_told(tmp_path: Path) -> None:
    path = of_product(tmp_path / "plate.mhpc", "plate")
    create_app([path])
    of_product(path, "bottle")
    assert (
        create_app([path], other_product=True).state.service.models["plate"].detector.model.product
        == "bottle"
    )
    app = create_app([path])  # once told, it is known
    of_product(path, "plate", 0.3)
    app.state.service.models.refresh()
    assert app.state.service.models["plate"].detector.model.product == "bottle"
    box = Inbox.beside(path)
    of_product(path, "", 0.3)  # of which nobody has said what it is
    app.state.service.models.refresh()
    assert app.state.service.models["plate"].detector.model.product == ""
    of_product(path, "plate", 0.4)
    app.state.service.models.refresh()
    assert app.state.service.models["plate"].detector.model.product == ""
    assert box.journal.product("plate") == "bottle"


def test_a_swap_by_hand_is_recorded_and_can_be_taken_back(tmp_path: Path) -> None:
    path = write_model(tmp_path / "vial.mhpc", 0.2)
    first, app = sha256_of(path), create_app([path])
    write_model(path, 0.3)
    second = sha256_of(path)
    app.state.service.models.refresh()
    box = Inbox.beside(path)
    told = [(one.what, one.sha256_before, one.sha256_after) for one in box.journal.changes("vial")]
    assert told == [("found", first, second), ("found", "", first)]
    assert [(one.version, one.sha256) for one in versions(box.journal, path)] == [(2, second), (1, first)]
    write_model(path, 0.4)  # while no service runs
    create_app([path])
    assert box.journal.changes("vial")[0].sha256_before == second
    accept(box, propose(box, path, Request("undo"), scored=False))
    app.state.service.models.refresh()
    assert app.state.service.models["vial"].sha256 == first == sha256_of(path)


def test_a_swap_that_turns_the_verdicts_is_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = write_model(tmp_path / "vial.mhpc")
    with TestClient(create_app([path])) as client:
        models = client.app.state.service.models  # type: ignore[attr-defined]
        assert client.get("/v1/models/vial").json()["swap"] is None
        for seed in range(6):
            client.post("/v1/models/vial/score", content=png(good(seed)))
        rejected = sum(one["is_rejected"] for one in client.get("/v1/parts").json())
        with_threshold(small_detector(), 1e-3).save(path)  # it rejects everything
        models.refresh()
        swap = client.get("/v1/models/vial").json()["swap"]
        assert swap == {"parts": 6, "changed": 6 - rejected, "is_wild": True}
        assert f"has another verdict on {6 - rejected} of the last 6 parts" in caplog.text
        caplog.clear()
        for seed in range(12):
            client.post("/v1/models/vial/score", content=png(good(seed)))
        with_threshold(small_detector(), 1.1e-3).save(path)
        models.refresh()
        assert client.get("/v1/models/vial").json()["swap"] == {"parts": 12, "changed": 0, "is_wild": False}
        assert "another verdict" not in caplog.text


def test_serve_and_watch_are_told_by_a_flag(run: Run, tmp_path: Path) -> None:
    path = of_product(tmp_path / "line" / "plate.mhpc", "plate")
    create_app([path])
    of_product(path, "bottle")
    (tmp_path / "camera").mkdir()
    watch = ("watch", path, tmp_path / "camera", "--out", tmp_path / "results", "--once")
    for command in (("serve", path), watch):
        assert_one_line_error(run(*command), 2, "plate.mhpc is a model of bottle, and was one of plate")
    assert run(*watch, "--other-product").code == 0
    with running(path, "--other-product") as service:
        assert httpx.get(f"{service.url}/v1/models/plate").json()["product"] == "bottle"
