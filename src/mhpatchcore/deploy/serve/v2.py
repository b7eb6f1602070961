"""The Open Inference Protocol (v2): what clients of Triton, KServe and OpenVINO Model Server speak.

A request is JSON; with the header Inference-Header-Content-Length it is so many bytes of JSON, followed by the data of
the tensor that says `binary_data_size` (Triton's binary tensor extension). Answers are alike. A tensor of the type
BYTES holds elements of four bytes of length (little-endian) and so many bytes.
"""

from __future__ import annotations

import asyncio
import base64
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from math import nan, prod
from typing import Annotated, Any, Literal

import numpy as np
from fastapi import APIRouter, Depends, Query, Request
from fastapi.responses import Response
from pydantic import Field, TypeAdapter, ValidationError
from pydantic_core import to_json

from mhpatchcore import __version__
from mhpatchcore.deploy.serve.answers import DEADLINE, Problem, problems, reply, taking
from mhpatchcore.deploy.serve.bodies import Sent, body_of
from mhpatchcore.deploy.serve.pool import Deadline, Limits
from mhpatchcore.deploy.serve.refusals import Refused, described
from mhpatchcore.deploy.serve.service import Part
from mhpatchcore.deploy.serve.v1 import Known, check_token, rejected
from mhpatchcore.runtime.arrays import Array

LENGTH = "Inference-Header-Content-Length"
DTYPES = {"BOOL": "?", "UINT8": "u1", "UINT16": "<u2", "FP32": "<f4", "FP64": "<f8"}
DEPTHS = {"16-bit": "UINT16", "float": "FP32"}  # of models that do not take UINT8
CHANNELS = (1, 2, 3, 4)
# datatypes, and what is told of a part whose deadline has passed
OUTPUTS: dict[str, tuple[str, Any]] = {
    "score": ("FP64", nan),
    "p_value": ("FP64", nan),
    "verdict": ("BYTES", "rejected"),
    "threshold": ("FP64", nan),
    "is_rejected": ("BOOL", True),
    "map": ("FP32", None),
}
USUAL = ("score", "p_value", "verdict", "threshold")
Parameters = dict[str, Any] | None


@dataclass(frozen=True)
class Tensor:
    """An image, or several of one size, as an array or as files (BYTES); binary data has no `data`."""

    shape: Annotated[list[Annotated[int, Field(gt=0, lt=2**31)]], Field(min_length=1, max_length=4)]
    datatype: Literal["UINT8", "UINT16", "FP32", "FP64", "BYTES"]
    name: str = ""
    parameters: Parameters = None
    data: Any = None


@dataclass(frozen=True)
class WantedOutput:
    name: str
    parameters: Parameters = None


@dataclass(frozen=True)
class Inference:
    """A request in JSON: one tensor, and the outputs that are wanted; without any, all usual ones."""

    inputs: Annotated[list[Tensor], Field(min_length=1, max_length=1)]
    outputs: list[WantedOutput] | None = None
    id: str | None = None
    parameters: Parameters = None


health = APIRouter(prefix="/v2", tags=["v2"])
router = APIRouter(
    prefix="/v2",
    tags=["v2"],
    dependencies=[Depends(check_token)],
    responses=problems(400, 401, 404, 422, 500, 503),
)
MODEL, VERSION = "/models/{name}", "/models/{name}/versions/1"  # the two addresses of a model
INFERENCE = taking(Inference, "application/octet-stream")


@health.get("/health/live")
async def live() -> Response:
    """Whether the process answers."""
    return reply({"live": True})


@health.get("/health/ready", responses={503: {"model": Problem}})
async def ready(service: Known) -> Response:
    """Whether requests are taken."""
    closing = service.pool.closing
    return reply({"ready": not closing}, 503 if closing else 200)


@router.get("")
async def server() -> Response:
    """Name, version and extensions of the server."""
    return reply({"name": "mhpatchcore", "version": __version__, "extensions": ["binary_tensor_data"]})


@router.get(MODEL)
@router.get(VERSION, include_in_schema=False)
async def metadata(name: str, service: Known) -> Response:
    """Inputs and outputs of a model."""
    window = service.models[name].detector.config.views[0].window
    image = {"name": "image", "datatype": DEPTHS.get(window.depth, "UINT8"), "shape": [-1, -1, -1, 3]}
    outputs = [
        {"name": one, "datatype": datatype, "shape": [-1, -1, -1] if one == "map" else [-1]}
        for one, (datatype, _) in OUTPUTS.items()
    ]
    told = {"name": name, "versions": ["1"], "platform": "mhpatchcore"}
    return reply(told | {"inputs": [image], "outputs": outputs})


@router.get(MODEL + "/ready")
@router.get(VERSION + "/ready", include_in_schema=False)
async def model_ready(name: str, service: Known) -> Response:
    """Whether a model is loaded."""
    return reply({"name": service.models[name].name, "ready": True})


@router.post(MODEL + "/infer", **INFERENCE)
@router.post(VERSION + "/infer", **INFERENCE, include_in_schema=False)
async def infer(
    name: str,
    request: Request,
    service: Known,
    deadline_ms: Annotated[float | None, Query(gt=0, description=DEADLINE)] = None,
) -> Response:
    """Score images: arrays (H, W), (H, W, 3) or (N, H, W, 3), or files as BYTES. The map is given on request."""
    limits = service.limits
    deadline = Deadline.of(limits, deadline_ms)
    _ = service.models[name]
    service.pool.check()
    json_length = request.headers.get(LENGTH)
    body = await body_of(request, limits.max_json if json_length is None else limits.max_bytes)
    asked, images = await asyncio.to_thread(_read, body, json_length, limits)
    part = (asked.parameters or {}).get("part")
    first = (part if isinstance(part, str) else None) or asked.id or None
    sent = [Sent(content, "image", None if i else first) for i, content in enumerate(images)]
    with service.pool.place():
        parts = await service.score(name, sent, deadline=deadline)
    for one in parts:
        if one.refused is not None and one.refused.status != 200:
            return rejected(one)
    return await asyncio.to_thread(_answered, name, asked, parts)


def _read(body: bytes, json_length: str | None, limits: Limits) -> tuple[Inference, list[bytes | Array]]:
    """A request and its images."""
    length = len(body)
    if json_length is not None:
        if not (json_length.isascii() and json_length.isdigit() and int(json_length[:12]) <= length):
            raise Refused(400, f"{LENGTH} is longer than the body")
        length = int(json_length)
    if length > limits.max_json:
        most = f"more than {limits.max_json} bytes, the most that are taken"
        raise Refused(413, f"the JSON has {most}: send tensors as binary data")
    try:
        asked = TypeAdapter(Inference).validate_json(body[:length], strict=True)
    except ValidationError as error:
        raise Refused(400, described(error.errors())) from None
    if any(one.name not in OUTPUTS for one in asked.outputs or ()):
        raise Refused(400, f"there is no such output; there are: {', '.join(OUTPUTS)}")
    images = _images(asked.inputs[0], body[length:])
    if len(images) > limits.max_images:
        raise Refused(413, f"a request has at most {limits.max_images} images, not {len(images)}")
    return asked, images


def _images(tensor: Tensor, data: bytes) -> list[bytes | Array]:
    shape, size = tensor.shape, (tensor.parameters or {}).get("binary_data_size")
    if size is not None and size != len(data):
        raise Refused(400, f"{len(data)} bytes of data follow, and binary_data_size says otherwise")
    if tensor.datatype == "BYTES":
        files = _decoded(tensor.data) if size is None else _unpacked(data)
        if len(files) != prod(shape):
            raise Refused(400, "the shape does not fit the data")
        return list(files)
    try:
        values = _numbers(tensor) if size is None else np.frombuffer(data, DTYPES[tensor.datatype])
        values = values.reshape(shape)
    except ValueError:
        raise Refused(400, "the shape does not fit the data") from None
    if values.ndim < 2:
        raise Refused(400, "an image has the shape (H, W), (H, W, 3) or, with others, (N, H, W, 3)")
    is_one = values.ndim == 3 and values.shape[0] == 1 and values.shape[2] not in CHANNELS
    return list(values) if values.ndim == 4 or is_one else [values]


def _numbers(tensor: Tensor) -> Array:
    """The numbers of a tensor in JSON."""
    kind = np.dtype(DTYPES[tensor.datatype])
    try:
        values = np.array(tensor.data, np.float64)
    except (TypeError, ValueError, OverflowError):
        raise Refused(400, "the data is not a list of numbers") from None
    if kind.kind == "u" and not ((values >= 0) & (values <= np.iinfo(kind).max)).all():
        raise Refused(400, f"the data does not fit into {tensor.datatype}")
    return values.astype(kind)


def _decoded(given: Any) -> list[bytes]:
    """The files of a tensor in JSON."""
    try:
        return [base64.b64decode(one, validate=True) for one in given]
    except (TypeError, ValueError):
        raise Refused(400, "in JSON a file is a text in base64; or send it as binary data") from None


def _unpacked(data: bytes) -> list[bytes]:
    """Elements of a BYTES tensor.

    >>> _unpacked(b"\\x02\\x00\\x00\\x00ab\\x00\\x00\\x00\\x00")
    [b'ab', b'']
    """
    found, at = [], 0
    while at < len(data):
        end = at + 4 + int.from_bytes(data[at : at + 4], "little")
        if at + 4 > len(data) or end > len(data):
            raise Refused(400, "the BYTES tensor ends within an element")
        found.append(data[at + 4 : end])
        at = end
    return found


def _answered(name: str, asked: Inference, parts: Sequence[Part]) -> Response:
    """The outputs that are wanted of all images, in JSON or behind it."""
    is_binary = (asked.parameters or {}).get("binary_data_output") is True
    told, data = [], []
    for output in asked.outputs or [WantedOutput(one) for one in USUAL]:
        datatype, values = OUTPUTS[output.name][0], _output(output.name, parts)
        tensor: dict[str, Any] = {"name": output.name, "datatype": datatype, "shape": values.shape}
        if (output.parameters or {}).get("binary_data", is_binary) is True:
            data.append(_packed(values, datatype))
            tensor["parameters"] = {"binary_data_size": len(data[-1])}
        else:
            tensor["data"] = values.ravel().tolist()
        told.append(tensor)
    document = {"model_name": name, "model_version": "1", "outputs": told}
    document |= {"id": asked.id} if asked.id else {}
    if not data:
        return reply(document)
    text = to_json(document, inf_nan_mode="null")
    headers = {LENGTH: str(len(text))}
    return Response(b"".join([text, *data]), media_type="application/octet-stream", headers=headers)


def _output(name: str, parts: Sequence[Part]) -> Array:
    """One output of all images; maps must have one size."""
    results = [part.result for part in parts]
    if name != "map":
        missing = OUTPUTS[name][1]
        values = [missing if result is None else getattr(result, name) for result in results]
        return np.array(values, object if name == "verdict" else None)
    if len({None if result is None else result.size for result in results}) != 1 or results[0] is None:
        raise Refused(400, "images of several sizes, or without a result, have no map in common")
    return np.stack([result.map_over((0, 0, *result.size), *result.size) for result in results if result])


def _packed(values: Array, datatype: str) -> bytes:
    if datatype != "BYTES":
        return np.ascontiguousarray(values, DTYPES[datatype]).tobytes()
    return b"".join(struct.pack("<I", len(text)) + text.encode() for text in values)
