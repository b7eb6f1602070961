"""The last parts: what was answered, pictures of them, a stream of those that come; and the record of all verdicts."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import datetime
from itertools import chain
from typing import Annotated

from fastapi import APIRouter, Depends, Query, Request
from fastapi.responses import JSONResponse, Response, StreamingResponse

from mhpatchcore.deploy.record import Query as Wanted
from mhpatchcore.deploy.record import verdicts
from mhpatchcore.deploy.record_export import EXPORTS, MEDIA, Format
from mhpatchcore.deploy.serve import pictures, schema
from mhpatchcore.deploy.serve.refusals import busy, unknown
from mhpatchcore.deploy.serve.service import Service
from mhpatchcore.deploy.serve.v1 import Known, check_token
from mhpatchcore.report.drawing import SCREEN

router = APIRouter(prefix="/v1", tags=["v1"], dependencies=[Depends(check_token)])
SILENCE = 10.0  # seconds after which a stream says that it is still there
MOST_LISTENERS = 64
MOST = 2**62
PICTURE = schema.problems(404, 422, 429, 503)


@router.get("/parts", responses=schema.answers(list[schema.PartAnswer]))
async def parts(
    service: Known,
    limit: Annotated[int, Query(ge=1, le=1000)] = 100,
    model: str | None = None,
    verdict: schema.Verdict | None = None,
) -> JSONResponse:
    """The last parts, the newest first."""
    return JSONResponse(service.parts.newest(limit, model, verdict))


@router.get("/parts/{id_}/image.jpg", response_class=Response, responses=PICTURE)
async def part_image(
    id_: str, request: Request, service: Known, longest: Annotated[int, Query(ge=16, le=4096)] = SCREEN
) -> Response:
    """The image of one of the last parts, at the size of a screen, or with its longer side as asked for."""
    return _kept(await pictures.get_image(request, service, service.parts[id_], longest), "image/jpeg")


@router.get("/parts/{id_}/heatmap.png", response_class=Response, responses=PICTURE)
async def part_heatmap(
    id_: str, request: Request, service: Known, style: pictures.Style = "overlay"
) -> Response:
    """The heat over the image (overlay), or alone on a transparent ground (layer); or the outlines so (outline)."""
    return _kept(await pictures.get_heat(request, service, service.parts[id_], style), "image/png")


@router.get("/parts/{id_}/evidence.png", response_class=Response, responses=PICTURE)
async def part_evidence_picture(id_: str, request: Request, service: Known) -> Response:
    """One picture of the normal patches that the part was compared with."""
    figure = await pictures.get_figure(request, service, service.parts[id_])
    return Response(figure, media_type="image/png")


@router.get("/parts/{id_}/evidence.json", responses=PICTURE)
async def part_evidence(id_: str, request: Request, service: Known) -> Response:
    """The same in numbers, each patch with a small picture."""
    facts = await pictures.get_evidence(request, service, service.parts[id_])
    return Response(facts, media_type="application/json")


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


@router.get("/verdicts", response_class=Response, responses=schema.problems(404, 422, 507))
async def all_verdicts(
    service: Known,
    format: Format = "jsonl",
    since: Annotated[
        datetime | None, Query(description="From this time on; UTC, if it has no offset.")
    ] = None,
    until: Annotated[datetime | None, Query(description="Before this time.")] = None,
    model: str | None = None,
    verdict: schema.Verdict | None = None,
    limit: Annotated[int, Query(ge=1, le=MOST, description="The first so many.")] = MOST,
) -> Response:
    """Every verdict that was given, the oldest first: JSON lines, CSV or Parquet."""
    if service.record is None:
        raise unknown("record: the service was started without one")
    answers = verdicts(service.record.path, Wanted(since, until, model, verdict, limit))
    headers = {
        "Content-Disposition": f'attachment; filename="verdicts.{format}"',
        "Cache-Control": "no-store",
    }
    pieces = EXPORTS[format](answers)
    # what can be wrong is so before anything is answered
    first = await asyncio.to_thread(next, pieces, b"")
    return StreamingResponse(chain([first], pieces), media_type=MEDIA[format], headers=headers)


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


def _kept(content: bytes, kind: str) -> Response:
    """A picture that will not change, as evidence does with the model."""
    return Response(content, media_type=kind, headers={"Cache-Control": "private, max-age=3600, immutable"})
