"""Models in service: what is told of a file is true of it, and a model that is replaced is let go."""

from __future__ import annotations

import gc
import hashlib
import weakref
from pathlib import Path

import pytest
from fastapi.testclient import TestClient
from services import good, png, write_model
from small_detector import small_detector

from mhpatchcore import Detector
from mhpatchcore.deploy.serve import registry
from mhpatchcore.deploy.serve.app import create_app
from mhpatchcore.deploy.serve.registry import Registry


def test_a_file_that_is_replaced_while_it_is_loaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write_model(tmp_path / "vial.mhpc", 0.2)
    before, threshold = (
        hashlib.sha256(path.read_bytes()).hexdigest(),
        small_detector().calibrated(0.2).threshold,
    )
    load = Detector.load

    def slowly(*given: object, **more: object) -> Detector:
        monkeypatch.setattr(registry.Detector, "load", load)
        write_model(path, 0.6)
        return load(*given, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(registry.Detector, "load", slowly)
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
        client.put("/v1/models/vial/threshold", json={"false_alarm": 0.5})
        client.post("/v1/models/vial/score", content=png(good()))
        gc.collect()
        assert gone() is None
        assert client.get(f"/v1/parts/{told['id']}/heatmap.png").status_code == 200
        assert client.get(f"/v1/parts/{told['id']}/evidence.json").status_code == 200
