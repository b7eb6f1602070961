"""The plain API: post an image, get a verdict; look at models."""

from __future__ import annotations

import asyncio
import json
import logging
from contextlib import suppress
from dataclasses import asdict
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Depends, Query, Request
from fastapi.responses import JSONResponse, Response

from mhpatchcore.deploy.serve import answers, pictures, schema
from mhpatchcore.deploy.serve.bodies import Sent, images_of, name_in
from mhpatchcore.deploy.serve.parts import Part
from mhpatchcore.deploy.serve.pool import Deadline
from mhpatchcore.deploy.serve.refusals import Refused, not_allowed
from mhpatchcore.deploy.serve.service import Service
from mhpatchcore.runtime.texts import representable

SLOWED = 1.0  # seconds that an answer to a wrong token takes
NO_PART = (400, 429, 503)  # statuses of requests that come again, or whose sender is gone
log = logging.getLogger("mhpatchcore")


# both are coroutines because FastAPI calls plain functions on other threads, which takes longer than they do
async def service_of(request: Request) -> Service:
    service: Service = request.app.state.service
    return service


async def check_token(request: Request) -> None:
    """Everything but the page itself and the health of the service is for those who know the token.

    A wrong one is logged, and answered late: guessing takes time.
    """
    scheme, _, given = request.headers.get("authorization", "").partition(" ")
    service: Service = request.app.state.service
    if service.knows(given if scheme.lower() == "bearer" else None):
        return
    if given:
        log.warning("a wrong token from %s", request.client.host if request.client else "somebody unknown")
        await asyncio.sleep(SLOWED)
    raise not_allowed()


def rejected(part: Part) -> JSONResponse:
    """Why a part could not be judged, with that part."""
    assert part.refused is not None
    told = {"error": part.refused.message, "results": [part.answer]}
    return JSONResponse(told, part.refused.status, part.refused.headers)


Known = Annotated[Service, Depends(service_of)]
router = APIRouter(prefix="/v1", tags=["v1"], dependencies=[Depends(check_token)])


@router.get("/models", responses=schema.answers(list[schema.ModelAnswer]))
async def models(service: Known) -> JSONResponse:
    """All models in service."""
    return JSONResponse([service.facts(served) for served in service.models.served])


@router.get("/models/{name}", responses=schema.answers(schema.ModelAnswer, 404))
async def model(name: str, service: Known) -> JSONResponse:
    """One model, with its history, its settings, and the scores that its threshold comes from."""
    served = service.models[name]
    return JSONResponse(service.facts(served) | answers.model_details(served))


@router.post(
    "/models/{name}/score",
    responses=schema.scored(404, 408, 413, 415, 422, 429, 500, 503),
    openapi_extra=schema.SCORE_BODY,
)
async def score(
    name: str,
    request: Request,
    service: Known,
    part: Annotated[list[str] | None, Query(description="Your own ids of the parts, in their order.")] = None,
    map: Annotated[
        Literal["link", "png", "none"],
        Query(description="The heatmap: a link to it, the picture itself as a data URL, or nothing."),
    ] = "link",
    evidence: Annotated[bool, Query(description="The normal patches it was compared with, too.")] = False,
    deadline_ms: Annotated[float | None, Query(gt=0, description=schema.DEADLINE)] = None,
    trial: Annotated[
        bool, Query(description="Only tried out: it does not count in rates, alarms and drift.")
    ] = False,
) -> Response:
    """Score one image (its file as the body) or many (multipart/form-data, field `images`).

    With `Accept: image/png` a single image is answered by its heatmap, and the verdict is in headers.
    """
    deadline = Deadline.of(service.limits, deadline_ms)
    served = service.models[name]
    service.pool.check()
    try:
        images, several = await images_of(request, service.limits, part or [])
    except Refused as refused:
        if refused.status not in NO_PART:
            unread = Sent(b"", name_in(request), part[0] if part else None)
            return rejected(await service.reject(served, unread, refused, trial))
        raise
    with service.pool.place():
        parts = await service.score(name, images, deadline=deadline, trial=trial)
    alone = parts[0]
    if not several and alone.refused is not None and alone.refused.status != 200:
        return rejected(alone)
    extras = [dict[str, Any]() for _ in parts]
    with suppress(TimeoutError, Refused):  # a verdict matters more than its picture
        async with asyncio.timeout_at(deadline.at):
            if alone.result is not None and len(parts) == 1 and _wants_png(request):
                png = await pictures.get_heat(request, service, alone, "overlay")
                return Response(png, media_type="image/png", headers=_verdict_headers(alone))
            for one, more in zip(parts, extras, strict=True):
                await _add_extras(more, request, service, one, map, evidence)
    results = [one.answer | more for one, more in zip(parts, extras, strict=True)]
    return JSONResponse({"results": results})


@router.get("/models/{name}/rates", responses=schema.answers(list[answers.Rate], 404))
async def rates(name: str, service: Known) -> JSONResponse:
    """What other rates of false alarms would mean, on the calibration scores and on the last parts."""
    served = service.models[name]
    calibration, recent = served.detector.calibration, service.observed.scores(served)
    found = await asyncio.to_thread(answers.rates, calibration, recent)
    return JSONResponse([asdict(one) for one in found])


@router.get("/models/{name}/drift", responses=schema.problems(404))
async def drift(name: str, service: Known) -> JSONResponse:
    """The last parts against those of the calibration: have the scores changed, or how the camera sees them?"""
    served = service.models[name]
    found = service.observed.drift(served)
    scores = service.observed.scores(served)
    told = {"n": 0, "verdict": "no parts to compare yet"} if found is None else found.to_json()
    camera = service.observed.camera(served).to_json()
    return JSONResponse(representable(told | {"scores": scores, "camera": camera}))


@router.get(
    "/models/{name}/reference.jpg", response_class=Response, responses=schema.problems(404, 422, 429, 503)
)
async def reference(name: str, request: Request, service: Known) -> Response:
    """A typical image of those that were learnt, to be looked at beside one of the last parts."""
    return Response(
        await pictures.get_reference(request, service, service.models[name]), media_type="image/jpeg"
    )


async def _add_extras(
    extras: dict[str, Any], request: Request, service: Service, part: Part, heat: str, evidence: bool
) -> None:
    """The heatmap and the evidence of a part, as they were asked for; one without a result has none."""
    if part.result is not None and heat == "link":
        extras["heatmap"] = f"/v1/parts/{part.id}/heatmap.png"
    if part.result is not None and heat == "png":
        extras["heatmap"] = pictures.data_url(await pictures.get_heat(request, service, part, "overlay"))
    if part.result is not None and evidence:
        extras["evidence"] = json.loads(await pictures.get_evidence(request, service, part))


def _wants_png(request: Request) -> bool:
    return request.headers.get("accept", "").partition(",")[0].partition(";")[0].strip() == "image/png"


def _verdict_headers(part: Part) -> dict[str, str]:
    names = {"id": "X-Part-Id", "score": "X-Score", "threshold": "X-Threshold", "verdict": "X-Verdict"}
    told = {header: part.answer[name] for name, header in names.items()}
    return {header: str(value) for header, value in told.items() if value is not None}
