"""Labels over HTTP; `inbox_changes` is about what comes of them."""

from __future__ import annotations

import io
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Query, Request
from fastapi.responses import JSONResponse, Response
from PIL import Image

from mhpatchcore.deploy.inbox.jobs import Jobs
from mhpatchcore.deploy.inbox.parts import Inbox, Label, NoSuchPartError, Part, Said
from mhpatchcore.deploy.serve import inbox_changes
from mhpatchcore.deploy.serve import inbox_schema as schema
from mhpatchcore.deploy.serve.bodies import images_of
from mhpatchcore.deploy.serve.images import as_source
from mhpatchcore.deploy.serve.inbox_asking import Known, Working, done, object_of, text_of
from mhpatchcore.deploy.serve.parts import Part as Scored
from mhpatchcore.deploy.serve.refusals import unreadable
from mhpatchcore.deploy.serve.registry import Served
from mhpatchcore.deploy.serve.schema import problems
from mhpatchcore.deploy.serve.service import Service
from mhpatchcore.deploy.serve.swaps import follow_swaps
from mhpatchcore.deploy.serve.v1 import check_token, rejected
from mhpatchcore.errors import UserError
from mhpatchcore.report.drawing import SCREEN, screen_pixels
from mhpatchcore.runtime.texts import representable

LARGEST_ID = 2**63 - 1  # of SQLite


def jobs_for(service: Service) -> Jobs:
    """The jobs of a service; its inbox lies beside the first of its models. Half of the cores stay with the line."""
    follow_swaps(service)
    return Jobs(service.models.inbox, max(1, service.limits.workers // 2))


router = APIRouter(prefix="/v1", tags=["inbox"], dependencies=[Depends(check_token)])
router.include_router(inbox_changes.router)


@router.get("/inbox", responses=schema.answers(list[schema.LabelledAnswer]))
async def labelled(
    service: Known, jobs: Working, model: str | None = None, label: Label | None = None
) -> JSONResponse:
    """Labelled parts, the newest first."""
    parts = await done(lambda: jobs.inbox.parts(model, label))
    return JSONResponse([_facts(service, one) for one in parts])


@router.post(
    "/inbox",
    status_code=201,
    responses=schema.answers(schema.LabelledAnswer, 404, 409, 413, 415, 422, status=201),
    openapi_extra=schema.LABEL_BODY,
)
async def add(
    request: Request,
    service: Known,
    jobs: Working,
    model: Annotated[str | None, Query(description="Of an image that is sent here.")] = None,
    label: Annotated[Label | None, Query(description="Of an image that is sent here.")] = None,
    part: str = "",
    who: str = "",
    note: str = "",
) -> JSONResponse:
    """Label one of the last parts, by the id that scoring gave it: {"id": …, "label": "good"}.

    Or send an image itself, with the model and the label in the address: it is scored first.
    """
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() == "application/json":
        asked = await object_of(request, service)
        scored = service.parts[text_of(asked, "id")]
        said, who, note = _label(asked), text_of(asked, "who"), text_of(asked, "note")
    else:
        if model is None or label is None:
            raise unreadable("an image is labelled with ?model=NAME&label=good")
        images, _ = await images_of(request, service.limits, [part])
        with service.pool.place():
            (scored,) = await service.score(model, images[:1], trial=True)
        if scored.refused is not None:
            return rejected(scored)
        said = label
    kept = await done(lambda: _kept(jobs.inbox, scored, said, who, note))
    return JSONResponse(_facts(service, kept), 201)


@router.get("/inbox/{id_}", responses=schema.answers(schema.LabelledAnswer, 404))
async def one(id_: int, service: Known, jobs: Working) -> JSONResponse:
    """A labelled part."""
    return JSONResponse(_facts(service, await done(lambda: jobs.inbox.part(_known(id_)))))


@router.get("/inbox/{id_}/image.jpg", response_class=Response, responses=problems(404))
async def image(
    id_: int, service: Known, jobs: Working, longest: Annotated[int, Query(ge=16, le=4096)] = SCREEN
) -> Response:
    """The image of a labelled part, at the size of a screen."""

    def drawn() -> bytes:
        part = jobs.inbox.part(_known(id_))
        served = _served(service, part.model)
        window = None if served is None else served.detector.config.views[0].window
        with as_source(jobs.inbox.image(id_)) as source:
            pixels = screen_pixels(source, window, longest)
        file = io.BytesIO()
        Image.fromarray(pixels).save(file, "JPEG", quality=88)
        return file.getvalue()

    return Response(await done(drawn), media_type="image/jpeg")


@router.patch(
    "/inbox/{id_}",
    responses=schema.answers(schema.LabelledAnswer, 404, 413, 415, 422),
    openapi_extra=schema.CORRECTION_BODY,
)
async def correct(id_: int, request: Request, service: Known, jobs: Working) -> JSONResponse:
    """Correct a label, or a note."""
    asked = await object_of(request, service)
    label = _label(asked) if "label" in asked else None
    who, note = text_of(asked, "who"), text_of(asked, "note") if "note" in asked else None
    part = await done(lambda: jobs.inbox.relabel(_known(id_), label, who=who, note=note))
    return JSONResponse(_facts(service, part))


@router.delete("/inbox/{id_}", status_code=204, response_class=Response, responses=problems(404, 422, 503))
async def withdraw(id_: int, jobs: Working, who: str = "", note: str = "") -> Response:
    """Take a label back. What was said stays on record, and another label brings the part back."""
    await done(lambda: jobs.inbox.withdraw(_known(id_), who=who, note=note))
    return Response(status_code=204)


@router.get("/inbox/{id_}/statements", responses=schema.answers(list[schema.StatementAnswer], 404, 503))
async def statements(id_: int, jobs: Working) -> JSONResponse:
    """All that was said of a part, the newest first; a label that is null took back the one before."""
    found = await done(lambda: jobs.inbox.statements(_known(id_)))
    return JSONResponse([representable(one.to_json()) for one in found])


def _kept(inbox: Inbox, scored: Scored, label: str, who: str, note: str) -> Part:
    """One of the last parts, as a row of the inbox."""
    content, told = scored.sent.content, scored.answer
    if not isinstance(content, bytes):
        raise UserError("the part came as numbers and not as a file: send the image itself")
    said = Said(told["score"], told["threshold"], told["p_value"], told["verdict"], told["sha256"])
    part, name = scored.sent.part or "", scored.sent.name
    return inbox.add(scored.model, label, content, name, part=part, said=said, who=who, note=note)


def _facts(service: Service, part: Part) -> dict[str, Any]:
    """A labelled part, and whether the model that is served now has learnt from it."""
    served = _served(service, part.model)
    learnt = served is not None and part.sha256 in served.detector.model.hashes
    told: dict[str, Any] = representable(part.to_json() | {"learnt": learnt})
    return told


def _served(service: Service, name: str) -> Served | None:
    return next((one for one in service.models.served if one.name == name), None)


def _label(asked: dict[str, Any]) -> str:
    label = asked.get("label")
    if not isinstance(label, str):
        raise unreadable('say what it is: {"label": "good"} or {"label": "defect"}')
    return label


def _known(id_: int) -> int:
    if not 0 < id_ <= LARGEST_ID:
        raise NoSuchPartError(id_)
    return id_
