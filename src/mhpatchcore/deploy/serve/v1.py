"""The plain API: post an image, get a verdict; look at models, at the last parts, and at the record of all verdicts."""

from __future__ import annotations

import asyncio
import hmac
import json
import logging
from collections.abc import AsyncIterator
from contextlib import suppress
from datetime import datetime
from itertools import chain
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Depends, Query, Request
from fastapi.responses import Response, StreamingResponse

from mhpatchcore.deploy.record import EXPORTS, verdicts
from mhpatchcore.deploy.serve import answers, pictures
from mhpatchcore.deploy.serve.answers import reply
from mhpatchcore.deploy.serve.bodies import Sent, images_of, name_in
from mhpatchcore.deploy.serve.pool import Deadline
from mhpatchcore.deploy.serve.refusals import Refused, busy
from mhpatchcore.deploy.serve.service import Part, Service
from mhpatchcore.report.drawing import SCREEN
from mhpatchcore.result import Verdict

SLOWED = 1.0  # seconds that an answer to a wrong token takes
NO_PART = (400, 429, 503)  # statuses of requests that come again, or whose sender is gone
SILENCE = 10.0  # seconds after which a stream says that it is still there
MOST_LISTENERS = 64
MOST = 2**62
MEDIA = {
    "csv": "text/csv; charset=utf-8",
    "jsonl": "application/jsonl",
    "parquet": "application/vnd.apache.parquet",
}
PICTURE = answers.problems(429)
FILES = ("image/png", "image/jpeg", "application/octet-stream")
IMAGES = answers.taking(answers.Images, *FILES, media="multipart/form-data") | {
    "responses": {one: {"model": answers.RejectedAnswer} for one in (408, 413, 415, 422, 429, 500, 503)}
}
log = logging.getLogger("mhpatchcore")


# FastAPI calls plain functions on other threads: what takes no time is a coroutine, what does delays no verdict
async def service_of(request: Request) -> Service:
    service: Service = request.app.state.service
    return service


Known = Annotated[Service, Depends(service_of)]


async def check_token(request: Request, service: Known) -> None:
    """Everything but the page itself and the health of the service is for those who know the token.

    A wrong one is logged, and answered late: guessing takes time.
    """
    if service.token is None:
        return
    scheme, _, given = request.headers.get("authorization", "").partition(" ")
    if scheme.lower() == "bearer" and hmac.compare_digest(given.encode(), service.token.encode()):
        return  # how long that takes says nothing about the token
    if given:
        log.warning("a wrong token from %s", request.client.host if request.client else "somebody unknown")
        await asyncio.sleep(SLOWED)
    message = "a token is needed: Authorization: Bearer TOKEN"
    raise Refused(401, message, headers={"WWW-Authenticate": "Bearer"})


def rejected(part: Part) -> Response:
    """Why a part could not be judged, with that part."""
    assert part.refused is not None
    told = {"error": part.refused.message, "results": [part.answer]}
    return reply(told, part.refused.status, part.refused.headers)


router = APIRouter(
    prefix="/v1",
    tags=["v1"],
    dependencies=[Depends(check_token)],
    responses=answers.problems(401, 404, 422, 503),
)


@router.get("/models", response_model=list[answers.ModelAnswer])
def models(service: Known) -> Response:
    """All models in service."""
    return reply([service.facts(served) for served in service.models.served])


@router.get("/models/{name}", response_model=answers.ModelAnswer)
def model(name: str, service: Known) -> Response:
    """One model, with its history, its settings, and the scores that its threshold comes from."""
    served = service.models[name]
    return reply(service.facts(served) | answers.model_details(served))


@router.post("/models/{name}/score", response_model=answers.ScoreAnswer, **IMAGES)
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
    deadline_ms: Annotated[float | None, Query(gt=0, description=answers.DEADLINE)] = None,
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
        images, several = await images_of(request, part or [])
    except Refused as refused:
        if refused.status in NO_PART:
            raise
        unread = Sent(b"", name_in(request), part[0] if part else None)
        return rejected(await service.reject(served, unread, refused, trial))
    with service.pool.place():
        parts = await service.score(name, images, deadline=deadline, trial=trial)
    alone = parts[0]
    if not several and alone.refused is not None and alone.refused.status != 200:
        return rejected(alone)
    results = [dict(one.answer) for one in parts]
    with suppress(TimeoutError, Refused):  # a verdict matters more than its picture
        async with asyncio.timeout_at(deadline.at):
            wants_png = request.headers.get("accept", "").startswith("image/png")
            if alone.result is not None and len(parts) == 1 and wants_png:
                png = await pictures.get_heat(request, alone, "overlay")
                return Response(png, media_type="image/png", headers=_verdict_headers(alone))
            for told, one in zip(results, parts, strict=True):
                await _add_pictures(told, request, one, map, evidence)
    return reply({"results": results})


async def _add_pictures(
    told: dict[str, Any], request: Request, part: Part, heat: str, evidence: bool
) -> None:
    """The heatmap and the evidence of a part, as they were asked for; one without a result has none."""
    if part.result is None:
        return
    if heat == "link":
        told["heatmap"] = f"/v1/parts/{part.id}/heatmap.png"
    if heat == "png":
        png = await pictures.get_heat(request, part, "overlay")
        told["heatmap"] = pictures.data_url(png, "PNG")
    if evidence:
        told["evidence"] = json.loads(await pictures.get_evidence(request, part))


def _verdict_headers(part: Part) -> dict[str, str]:
    names = {"id": "X-Part-Id", "score": "X-Score", "threshold": "X-Threshold", "verdict": "X-Verdict"}
    return {header: str(part.answer[name]) for name, header in names.items() if part.answer[name] is not None}


@router.get("/models/{name}/rates", response_model=list[answers.Rate])
def rates(name: str, service: Known) -> Response:
    """What other rates of false alarms would mean, on the calibration scores and on the last parts."""
    served = service.models[name]
    calibration, recent = served.detector.calibration, service.metrics.scores(served)
    return reply(answers.rates(calibration, recent))


@router.get("/models/{name}/drift")
def drift(name: str, service: Known) -> Response:
    """The last parts against those of the calibration: have the scores changed, or how the camera sees them?"""
    served, metrics = service.models[name], service.metrics
    found = metrics.drift(served)
    told = {"n": 0, "verdict": "no parts to compare yet"} if found is None else found.to_json()
    return reply(told | {"scores": metrics.scores(served), "camera": metrics.camera(served).to_json()})


@router.get("/models/{name}/reference.jpg", response_class=Response, responses=answers.problems(429))
async def reference(name: str, request: Request, service: Known) -> Response:
    """A typical image of those that were learnt, to be looked at beside one of the last parts."""
    picture = await pictures.get_reference(request, service.models[name])
    return Response(picture, media_type="image/jpeg")


@router.get("/parts", response_model=list[answers.PartAnswer])
async def parts(
    service: Known,
    limit: Annotated[int, Query(ge=1, le=1000)] = 100,
    model: str | None = None,
    verdict: Verdict | None = None,
) -> Response:
    """The last parts, the newest first."""
    return reply(service.parts.newest(limit, model, verdict))


@router.get("/parts/{id_}/image.jpg", response_class=Response, responses=PICTURE)
async def part_image(
    id_: str, request: Request, service: Known, longest: Annotated[int, Query(ge=16, le=4096)] = SCREEN
) -> Response:
    """The image of one of the last parts, at the size of a screen, or with its longer side as asked for."""
    return _kept(await pictures.get_image(request, service.parts[id_], longest), "image/jpeg")


@router.get("/parts/{id_}/heatmap.png", response_class=Response, responses=PICTURE)
async def part_heatmap(
    id_: str, request: Request, service: Known, style: pictures.Style = "overlay"
) -> Response:
    """The heat over the image (overlay), or alone on a transparent ground (layer); or the outlines so (outline)."""
    return _kept(await pictures.get_heat(request, service.parts[id_], style), "image/png")


@router.get("/parts/{id_}/evidence.png", response_class=Response, responses=PICTURE)
async def part_evidence_picture(id_: str, request: Request, service: Known) -> Response:
    """One picture of the normal patches that the part was compared with."""
    figure = await pictures.get_evidence(request, service.parts[id_], as_picture=True)
    return Response(figure, media_type="image/png")


@router.get("/parts/{id_}/evidence.json", responses=PICTURE)
async def part_evidence(id_: str, request: Request, service: Known) -> Response:
    """The same in numbers, each patch with a small picture."""
    facts = await pictures.get_evidence(request, service.parts[id_])
    return Response(facts, media_type="application/json")


@router.get("/parts/{id_}", response_model=answers.PartAnswer)
async def one_part(id_: str, service: Known) -> Response:
    """One of the last parts."""
    return reply(service.parts[id_].answer)


def _kept(content: bytes, kind: str) -> Response:
    """A picture that will not change, as evidence does with the model."""
    return Response(content, media_type=kind, headers={"Cache-Control": "private, max-age=3600, immutable"})


@router.get("/events", response_class=StreamingResponse, responses=answers.problems(429))
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
            yield event


@router.get("/verdicts", response_class=Response, responses=answers.problems(507))
def all_verdicts(
    service: Known,
    format: Literal["csv", "jsonl", "parquet"] = "jsonl",
    since: Annotated[
        datetime | None, Query(description="From this time on; UTC, if it has no offset.")
    ] = None,
    until: Annotated[datetime | None, Query(description="Before this time.")] = None,
    model: str | None = None,
    verdict: Verdict | None = None,
    limit: Annotated[int, Query(ge=1, le=MOST, description="The first so many.")] = MOST,
) -> Response:
    """Every verdict that was given, the oldest first: JSON lines, CSV or Parquet."""
    if service.record is None:
        raise Refused(404, "there is no record: the service was started without one")
    pieces = EXPORTS[format](verdicts(service.record.path, since, until, model, verdict, limit))
    name = {"Content-Disposition": f'attachment; filename="verdicts.{format}"', "Cache-Control": "no-store"}
    first = next(pieces, b"")  # what can be wrong is so before anything is answered
    return StreamingResponse(chain([first], pieces), media_type=MEDIA[format], headers=name)
