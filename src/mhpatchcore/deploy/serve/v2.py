"""The Open Inference Protocol (v2): what clients of Triton, KServe and OpenVINO Model Server speak."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from math import nan
from typing import Annotated, Any

import numpy as np
from fastapi import APIRouter, Depends, Query, Request
from fastapi.responses import JSONResponse, Response

from mhpatchcore import __version__
from mhpatchcore.deploy.serve import schema
from mhpatchcore.deploy.serve.bodies import Sent, body_of
from mhpatchcore.deploy.serve.parts import Part
from mhpatchcore.deploy.serve.pool import Deadline
from mhpatchcore.deploy.serve.refusals import Refused, unknown
from mhpatchcore.deploy.serve.registry import Served
from mhpatchcore.deploy.serve.service import Service
from mhpatchcore.deploy.serve.tensors import HEADER, Document, Output, answer, asked
from mhpatchcore.deploy.serve.v1 import Known, check_token, rejected

health = APIRouter(prefix="/v2", tags=["v2"])
router = APIRouter(prefix="/v2", tags=["v2"], dependencies=[Depends(check_token)])
VERSION = "1"
INFER_BODY = schema.json_body(Document, "application/octet-stream")
INFER_STATUSES = schema.problems(400, 404, 408, 413, 415, 422, 429, 500, 503)
DATATYPES = {"16-bit": "UINT16", "float": "FP32"}
USUAL = ("score", "p_value", "verdict", "threshold")
OUTPUTS = {
    "score": ("FP64", [-1]),
    "p_value": ("FP64", [-1]),
    "verdict": ("BYTES", [-1]),
    "threshold": ("FP64", [-1]),
    "is_rejected": ("BOOL", [-1]),
    "map": ("FP32", [-1, -1, -1]),
}
REJECTED: dict[str, Any] = {  # what is told of a part whose deadline has passed
    "score": nan,
    "p_value": nan,
    "verdict": "rejected",
    "threshold": nan,
    "is_rejected": True,
}


@health.get("/health/live")
async def live() -> JSONResponse:
    """Whether the process answers."""
    return JSONResponse({"live": True})


@health.get("/health/ready", responses={503: {"model": schema.Problem}})
async def ready(service: Known) -> JSONResponse:
    """Whether requests are taken."""
    closing = service.pool.closing
    return JSONResponse({"ready": not closing}, 503 if closing else 200)


@router.get("", responses=schema.problems())
async def server() -> JSONResponse:
    """Name, version and extensions of the server."""
    return JSONResponse({"name": "mhpatchcore", "version": __version__, "extensions": ["binary_tensor_data"]})


@router.get("/models/{name}", responses=schema.problems(404))
@router.get("/models/{name}/versions/{version}", responses=schema.problems(404), include_in_schema=False)
async def metadata(name: str, service: Known, version: str = VERSION) -> JSONResponse:
    """Inputs and outputs of a model."""
    served = _known(service, name, version)
    window = served.detector.config.views[0].window
    image = {"name": "image", "datatype": DATATYPES.get(window.depth, "UINT8"), "shape": [-1, -1, -1, 3]}
    outputs = [{"name": one, "datatype": kind, "shape": shape} for one, (kind, shape) in OUTPUTS.items()]
    told = {"name": name, "versions": [VERSION], "platform": "mhpatchcore"}
    return JSONResponse(told | {"inputs": [image], "outputs": outputs})


@router.get("/models/{name}/ready", responses=schema.problems(404))
@router.get(
    "/models/{name}/versions/{version}/ready", responses=schema.problems(404), include_in_schema=False
)
async def model_ready(name: str, service: Known, version: str = VERSION) -> JSONResponse:
    """Whether a model is loaded."""
    _known(service, name, version)
    return JSONResponse({"name": name, "ready": True})


@router.post(
    "/models/{name}/infer",
    responses=INFER_STATUSES,
    openapi_extra=INFER_BODY,
)
@router.post(
    "/models/{name}/versions/{version}/infer",
    responses=INFER_STATUSES,
    openapi_extra=INFER_BODY,
    include_in_schema=False,
)
async def infer(
    name: str,
    request: Request,
    service: Known,
    version: str = VERSION,
    deadline_ms: Annotated[float | None, Query(gt=0, description=schema.DEADLINE)] = None,
) -> Response:
    """Score images: arrays (H, W), (H, W, 3) or (N, H, W, 3), or files as BYTES. The map is given on request."""
    deadline = Deadline.of(service.limits, deadline_ms)
    _known(service, name, version)
    service.pool.check()
    json_length, limits = request.headers.get(HEADER), service.limits
    body = await body_of(request, limits, limits.max_json if json_length is None else limits.max_bytes)
    wanted = await asyncio.to_thread(asked, body, json_length, limits.max_json, limits.max_images)
    names = tuple(wanted.outputs) or USUAL
    for one in names:
        if one not in OUTPUTS:
            raise Refused(400, "input", f"there is no such output; there are: {', '.join(OUTPUTS)}")
    first = wanted.part or wanted.id or None
    images = [Sent(content, "image", None if i else first) for i, content in enumerate(wanted.images)]
    with service.pool.place():
        parts = await service.score(name, images, deadline=deadline)
    for part in parts:
        if part.refused is not None and part.refused.status != 200:
            return rejected(part)
    outputs = await asyncio.to_thread(lambda: [_output(one, parts) for one in names])
    binary = {one: wanted.outputs.get(one, wanted.binary) for one in names}
    body, length = answer(name, wanted.id, outputs, binary)
    if length is None:
        return Response(body, media_type="application/json")
    headers = {"Inference-Header-Content-Length": str(length)}
    return Response(body, media_type="application/octet-stream", headers=headers)


def _known(service: Service, name: str, version: str) -> Served:
    if version != VERSION:
        raise unknown("such version")
    return service.models[name]


def _output(name: str, parts: Sequence[Part]) -> Output:
    """One output of all images; maps must have one size."""
    kind, results = OUTPUTS[name][0], [part.result for part in parts]
    if name == "map":
        sizes = {result.size for result in results if result is not None}
        if len(sizes) != 1 or None in results:
            raise Refused(400, "input", "images of several sizes, or without a result, have no map in common")
        maps = [
            result.map_over((0, 0, *result.size), *result.size) for result in results if result is not None
        ]
        return Output(name, kind, np.stack(maps))
    values = [REJECTED[name] if result is None else getattr(result, name) for result in results]
    return Output(name, kind, values if kind == "BYTES" else np.array(values))
