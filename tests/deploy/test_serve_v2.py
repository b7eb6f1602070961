"""The Open Inference Protocol: tensors in JSON and in binary, by hand and by a public client."""

from __future__ import annotations

import base64
import json
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fastapi.testclient import TestClient
from services import Running, bad, good, png, running, write_model

from mhpatchcore import Detector
from mhpatchcore.deploy.serve.app import create_app
from mhpatchcore.deploy.serve.pool import Limits

INFER = "/v2/models/vial/infer"


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_model(tmp_path_factory.mktemp("models") / "vial.mhpc")


@pytest.fixture(scope="module")
def client(model: Path) -> Iterator[TestClient]:
    with TestClient(create_app([model], Limits(max_images=4))) as client:
        yield client


@pytest.fixture(scope="module")
def service(model: Path) -> Iterator[Running]:
    with running(model) as service:
        yield service


def tensor(pixels: np.ndarray, **changes: Any) -> dict[str, Any]:
    facts = {
        "name": "image",
        "datatype": "UINT8",
        "shape": list(pixels.shape),
        "data": pixels.ravel().tolist(),
    }
    return {"inputs": [facts | changes]}


def data_of(answer: dict[str, Any]) -> dict[str, Any]:
    return {one["name"]: one["data"] for one in answer["outputs"]}


def test_what_there_is(client: TestClient) -> None:
    assert client.get("/v2").json()["extensions"] == ["binary_tensor_data"]
    told = client.get("/v2/models/vial").json()
    assert told["inputs"] == [{"name": "image", "datatype": "UINT8", "shape": [-1, -1, -1, 3]}]
    assert {"score", "p_value", "verdict", "threshold", "map"} <= {one["name"] for one in told["outputs"]}
    assert client.get("/v2/models/vial/ready").status_code == 200
    assert client.get("/v2/models/other/ready").status_code == 404
    assert client.get("/v2/models/vial/versions/7").status_code == 404


def test_arrays_in_json(client: TestClient, model: Path) -> None:
    detector = Detector.load(model)
    gray = bad()[:, :, 0]
    for pixels in (bad(), bad()[None], gray, gray[:, :, None], gray[None]):
        (expected,) = detector.score_many([np.ascontiguousarray(pixels.squeeze())])
        assert expected is not None
        answer = client.post(INFER, json=tensor(pixels) | {"id": "SN-7"}).json()
        told = data_of(answer)
        assert answer["id"] == "SN-7" and told["score"] == [expected.score]
        assert told["verdict"] == [expected.verdict] and told["threshold"] == [expected.threshold]
        assert "map" not in told
    batch = np.stack([good(), bad()])
    assert data_of(client.post(INFER, json=tensor(batch)).json())["verdict"] == ["passed", "rejected"]
    assert client.get("/v1/parts").json()[2]["part"] == "SN-7"


def test_a_file_as_bytes_and_the_map_on_request(client: TestClient, model: Path) -> None:
    file = png(bad())
    given = {"name": "image", "datatype": "BYTES", "shape": [1], "data": [base64.b64encode(file).decode()]}
    asked = {"inputs": [given], "outputs": [{"name": "map"}, {"name": "is_rejected"}]}
    answer = client.post(INFER, json=asked).json()
    heat, flag = answer["outputs"]
    expected = Detector.load(model).score(bad()).map
    assert heat["shape"] == [1, 64, 64] and flag["data"] == [True]
    np.testing.assert_allclose(np.array(heat["data"]).reshape(64, 64), expected, rtol=1e-4)


def test_binary_tensors(client: TestClient) -> None:
    pixels = bad()
    head = tensor(pixels)
    del head["inputs"][0]["data"]
    head["inputs"][0]["parameters"] = {"binary_data_size": pixels.nbytes}
    head["parameters"] = {"binary_data_output": True}
    text = json.dumps(head).encode()
    headers = {"Inference-Header-Content-Length": str(len(text))}
    answer = client.post(INFER, content=text + pixels.tobytes(), headers=headers)
    length = int(answer.headers["inference-header-content-length"])
    outputs, at, data = json.loads(answer.content[:length])["outputs"], length, {}
    for one in outputs:
        size = one["parameters"]["binary_data_size"]
        data[one["name"]] = answer.content[at : at + size]
        at += size
    assert at == len(answer.content)
    assert data["verdict"] == struct.pack("<I", 8) + b"rejected"
    assert np.frombuffer(data["score"], "<f8") > np.frombuffer(data["threshold"], "<f8")


@pytest.mark.parametrize(
    "wrong",
    [
        {},
        [],
        {"inputs": []},
        {"inputs": [{"name": "image"}]},
        tensor(bad(), datatype="INT8"),
        tensor(bad(), shape=[64, 64]),
        tensor(bad(), shape=[-1, 64, 3]),
        tensor(bad(), shape=[True, 64, 3]),
        tensor(bad(), shape=[2**40, 2**40]),
        tensor(bad(), shape="x"),
        tensor(bad(), data=[300] * bad().size),
        tensor(bad(), data=[None] * bad().size),
        tensor(bad(), data={"a": 1}),
        tensor(bad(), data=[float(10**300)] * bad().size),
        tensor(bad(), datatype="BYTES", shape=[1], data=["not base64 !"]),
        tensor(bad(), datatype="BYTES", shape=[2], data=["YQ=="]),
        tensor(bad(), parameters={"binary_data_size": 7}),
        tensor(bad()) | {"outputs": [{"name": "other"}]},
        tensor(bad()) | {"outputs": "score"},
        tensor(np.zeros((5,), np.uint8)),
        tensor(np.zeros((4, 4, 7), np.uint8)),
    ],
)
def test_what_is_no_request_is_refused(client: TestClient, wrong: Any) -> None:
    answer = client.post(INFER, json=wrong)
    assert answer.status_code in (400, 422) and answer.json()["error"]


def test_bodies_that_are_no_requests(client: TestClient) -> None:
    assert client.post(INFER, content=b"\xff{").status_code == 400
    assert client.post(INFER, content=b"[" * 100_000).status_code == 400
    for length in ("x", "-1", "9" * 30, "5"):
        headers = {"Inference-Header-Content-Length": length}
        assert client.post(INFER, content=b"{}", headers=headers).status_code == 400
    many = tensor(np.zeros((5, 8, 8, 3), np.uint8))
    assert client.post(INFER, json=many).status_code == 413
    data = struct.pack("<I", 99) + b"short"
    given = {
        "name": "image",
        "datatype": "BYTES",
        "shape": [1],
        "parameters": {"binary_data_size": len(data)},
    }
    text = json.dumps({"inputs": [given]}).encode()
    headers = {"Inference-Header-Content-Length": str(len(text))}
    assert client.post(INFER, content=text + data, headers=headers).status_code == 400


def test_the_client_of_triton_works_unchanged(service: Running, model: Path) -> None:
    import tritonclient.http as triton

    client = triton.InferenceServerClient(service.url.removeprefix("http://"))
    assert client.is_server_live() and client.is_server_ready() and client.is_model_ready("vial")
    assert client.get_model_metadata("vial")["inputs"][0]["name"] == "image"
    detector = Detector.load(model)
    for pixels in (good(), bad()):
        expected = detector.score(pixels)
        array = triton.InferInput("image", [1, *pixels.shape], "UINT8")
        array.set_data_from_numpy(pixels[None])
        found = client.infer("vial", [array], request_id="SN-1")
        assert found.as_numpy("score")[0] == pytest.approx(expected.score, rel=1e-6)
        assert found.as_numpy("verdict")[0].decode() == expected.verdict
        file = triton.InferInput("image", [1], "BYTES")
        file.set_data_from_numpy(np.array([png(pixels)], dtype=object))
        wanted = [triton.InferRequestedOutput("map"), triton.InferRequestedOutput("score", binary_data=False)]
        found = client.infer("vial", [file], outputs=wanted)
        assert found.as_numpy("map").shape == (1, 64, 64)
        assert found.as_numpy("score")[0] == pytest.approx(expected.score, rel=1e-6)
    with pytest.raises(triton.InferenceServerException, match="no such model"):
        client.infer("other", [array])
    client.close()
