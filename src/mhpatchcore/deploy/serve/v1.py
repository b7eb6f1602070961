"""The plain API: post an image, get a verdict; look at models and at the last parts; listen to what is scored."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Depends, Query, Request
from fastapi.responses import JSONResponse, Response, StreamingResponse

from mhpatchcore.deploy.serve import answers, pictures, schema
from mhpatchcore.deploy.serve.bodies import images_of
from mhpatchcore.deploy.serve.parts import Part
from mhpatchcore.deploy.serve.refusals import Refused, busy, unreadable
from mhpatchcore.deploy.serve.service import Service, answered
from mhpatchcore.errors import UserError
from mhpatchcore.report.drawing import SCREEN
from mhpatchcore.runtime.texts import representable

SILENCE = 10.0  # seconds after which a stream says that it is still there
MOST_LISTENERS = 64


# both are coroutines because FastAPI calls plain functions on other threads, which takes longer than they do
async def service_of(request: Request) -> Service:
    service: Service = request.app.state.service
    return service


async def check_token(request: Request) -> None:
    """Everything but the page itself and the health of the service is for those who know the token."""
    scheme, _, given = request.headers.get("authorization", "").partition(" ")
    service: Service = request.app.state.service
    service.check_token(given if scheme.lower() == "bearer" else None)


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
    responses=schema.answers(schema.ScoreAnswer, 404, 408, 413, 415, 422, 429, 503),
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
) -> Response:
    """Score one image (its file as the body) or many (multipart/form-data, field `images`).

    With `Accept: image/png` a single image is answered by its heatmap, and the verdict is in headers.
    """
    with service.pool.place():
        served = service.models[name]
        images, several = await images_of(request, service.limits, part or [])
        outcomes = await service.score(name, images)
        alone = outcomes[0]
        if not several and isinstance(alone, Refused):
            raise alone
        if isinstance(alone, Part) and len(outcomes) == 1 and _wants_png(request):
            png = await _drawn(service, lambda: pictures.heatmap(alone))
            return Response(png, media_type="image/png", headers=_verdict_headers(alone))
        results = []
        for outcome, sent in zip(outcomes, images, strict=True):
            told = answered(outcome, sent, served)
            if isinstance(outcome, Refused):
                service.count_refused(name, outcome)
            else:
                told = told | await _extras(service, outcome, map, evidence)
            results.append(told)
    return JSONResponse({"results": results})


@router.get("/models/{name}/rates", responses=schema.answers(list[schema.RateAnswer], 404))
async def rates(name: str, service: Known) -> JSONResponse:
    """What other rates of false alarms would mean, on the calibration scores and on the last parts."""
    served = service.models[name]
    return JSONResponse(answers.rates(served.detector.calibration, service.observed.scores(served)))


@router.get("/models/{name}/drift", responses=schema.problems(404))
async def drift(name: str, service: Known) -> JSONResponse:
    """The scores of the last parts against those of the calibration: has the line changed?"""
    served = service.models[name]
    found = service.observed.drift(served)
    scores = service.observed.scores(served)
    told = {"n": 0, "verdict": "no parts to compare yet"} if found is None else found.to_json()
    return JSONResponse(representable(told | {"scores": scores}))


@router.get("/parts", responses=schema.answers(list[schema.PartAnswer]))
async def parts(
    service: Known,
    limit: Annotated[int, Query(ge=1, le=1000)] = 100,
    model: str | None = None,
    verdict: Literal["passed", "rejected", "no threshold"] | None = None,
) -> JSONResponse:
    """The last parts, the newest first."""
    return JSONResponse(service.parts.newest(limit, model, verdict))


@router.get("/parts/{id_}/image.jpg", response_class=Response, responses=schema.problems(404))
async def part_image(
    id_: str, service: Known, longest: Annotated[int, Query(ge=16, le=4096)] = SCREEN
) -> Response:
    """The image of one of the last parts, at the size of a screen, or with its longer side as asked for."""
    part = service.parts[id_]
    return Response(await _drawn(service, lambda: pictures.picture(part, longest)), media_type="image/jpeg")


@router.get("/parts/{id_}/heatmap.png", response_class=Response, responses=schema.problems(404))
async def part_heatmap(id_: str, service: Known, style: pictures.Style = "overlay") -> Response:
    """The heat over the image (overlay), or alone on a transparent ground (layer); or the outlines so (outline)."""
    part = service.parts[id_]
    return Response(await _drawn(service, lambda: pictures.heatmap(part, style)), media_type="image/png")


@router.get("/parts/{id_}/evidence.png", response_class=Response, responses=schema.problems(404))
async def part_evidence_picture(id_: str, service: Known) -> Response:
    """One picture of the normal patches that the part was compared with."""
    part = service.parts[id_]
    detector = service.models[part.model].detector
    png = await _drawn(service, lambda: pictures.evidence_picture(part, detector))
    return Response(png, media_type="image/png")


@router.get("/parts/{id_}/evidence.json", responses=schema.problems(404))
async def part_evidence(id_: str, service: Known) -> JSONResponse:
    """The same in numbers, each patch with a small picture."""
    part = service.parts[id_]
    detector = service.models[part.model].detector
    return JSONResponse(await _drawn(service, lambda: pictures.evidence_facts(part, detector)))


@router.get("/parts/{id_}", responses=schema.answers(schema.PartAnswer, 404))
async def one_part(id_: str, service: Known) -> JSONResponse:
    """One of the last parts."""
    return JSONResponse(service.parts[id_].answer)


@router.get("/events", response_class=StreamingResponse, responses=schema.problems(429, 503))
async def events(service: Known) -> StreamingResponse:
    """Server-sent events: `part` for every part that is scored from now on, `model` for every model that is swapped."""
    if service.parts.listeners >= MOST_LISTENERS:
        raise busy(10)
    headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
    return StreamingResponse(_stream(service), media_type="text/event-stream", headers=headers)


async def _stream(service: Service) -> AsyncIterator[str]:
    with service.parts.listening() as queue:
        yield ": here\n\n"
        while True:
            try:
                event = await asyncio.wait_for(queue.get(), SILENCE)
            except TimeoutError:
                yield ": still here\n\n"
                continue
            if event is None:
                return
            yield f"event: {event[0]}\ndata: {json.dumps(event[1])}\n\n"


async def _extras(service: Service, part: Part, heat: str, evidence: bool) -> dict[str, Any]:
    """The heatmap and the evidence of a part, as they were asked for."""
    extras: dict[str, Any] = {}
    if heat == "link":
        extras["heatmap"] = f"/v1/parts/{part.id}/heatmap.png"
    elif heat == "png":
        extras["heatmap"] = pictures.data_url(await _drawn(service, lambda: pictures.heatmap(part)))
    if evidence:
        detector = service.models[part.model].detector
        extras["evidence"] = await _drawn(service, lambda: pictures.evidence_facts(part, detector))
    return extras


async def _drawn(service: Service, work: Callable[[], Any]) -> Any:
    """Draw on the threads that score: pictures are work like any other."""
    try:
        drawn, _ = await service.pool.run(work)
    except UserError as error:
        raise unreadable(str(error)) from error
    return drawn


def _wants_png(request: Request) -> bool:
    return request.headers.get("accept", "").partition(",")[0].partition(";")[0].strip() == "image/png"


def _verdict_headers(part: Part) -> dict[str, str]:
    names = {"id": "X-Part-Id", "score": "X-Score", "threshold": "X-Threshold", "verdict": "X-Verdict"}
    told = {header: part.answer[name] for name, header in names.items()}
    return {header: str(value) for header, value in told.items() if value is not None}
