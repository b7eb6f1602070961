"""Labels over HTTP; `change_routes` is about what comes of them."""

from __future__ import annotations

from asyncio import to_thread
from dataclasses import asdict, dataclass
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Query, Request
from fastapi.responses import JSONResponse, Response

from mhpatchcore.deploy.inbox import Inbox, Label, NoSuchPartError, Part, Said, Statement
from mhpatchcore.deploy.serve.bodies import as_source, images_of, json_of
from mhpatchcore.deploy.serve.change_routes import Working
from mhpatchcore.deploy.serve.parts import Part as Scored
from mhpatchcore.deploy.serve.pictures import encoded
from mhpatchcore.deploy.serve.refusals import unreadable
from mhpatchcore.deploy.serve.registry import Served
from mhpatchcore.deploy.serve.schema import answers, json_body, problems
from mhpatchcore.deploy.serve.service import Service
from mhpatchcore.deploy.serve.v1 import Known, check_token, rejected
from mhpatchcore.errors import UserError
from mhpatchcore.report.drawing import SCREEN, screen_pixels
from mhpatchcore.runtime.texts import representable

LARGEST_ID = 2**63 - 1  # of SQLite
router = APIRouter(prefix="/v1", tags=["inbox"], dependencies=[Depends(check_token)])


@dataclass(frozen=True)
class Labelling:
    """What somebody says of one of the last parts, by the id that scoring gave it."""

    id: str
    label: Label
    who: str = ""
    note: str = ""


@dataclass(frozen=True)
class Correction:
    """Another label or note; what is not given stays."""

    label: Label | None = None
    who: str = ""
    note: str | None = None


@dataclass(frozen=True, kw_only=True)
class Labelled(Part):
    """A labelled part; `learnt` is whether the model that is served now has learnt from it."""

    learnt: bool


@router.get("/inbox", responses=answers(list[Labelled]))
async def labelled(
    service: Known, jobs: Working, model: str | None = None, label: Label | None = None
) -> JSONResponse:
    """Labelled parts, the newest first."""
    parts = await to_thread(lambda: jobs.inbox.parts(model, label))
    return JSONResponse([_facts(service, one) for one in parts])


@router.post(
    "/inbox",
    status_code=201,
    responses=answers(Labelled, 404, 409, 413, 415, 422, status=201),
    openapi_extra=json_body(Labelling, "image/png", "image/jpeg"),
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
        asked = await json_of(request, service.limits, Labelling)
        scored = service.parts[asked.id]
    elif model is None or label is None:
        raise unreadable("an image is labelled with ?model=NAME&label=good")
    else:
        asked = Labelling("", label, who, note)
        images, _ = await images_of(request, service.limits, [part])
        with service.pool.place():
            (scored,) = await service.score(model, images[:1], trial=True)
        if scored.refused is not None:
            return rejected(scored)
    kept = await to_thread(lambda: _kept(jobs.inbox, scored, asked))
    return JSONResponse(_facts(service, kept), 201)


@router.get("/inbox/{id_}", responses=answers(Labelled, 404))
async def one(id_: int, service: Known, jobs: Working) -> JSONResponse:
    """A labelled part."""
    return JSONResponse(_facts(service, await to_thread(lambda: jobs.inbox.part(_known(id_)))))


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
            return encoded(screen_pixels(source, window, longest), "JPEG")

    return Response(await to_thread(drawn), media_type="image/jpeg")


@router.patch(
    "/inbox/{id_}",
    responses=answers(Labelled, 404, 413, 415, 422),
    openapi_extra=json_body(Correction),
)
async def correct(id_: int, request: Request, service: Known, jobs: Working) -> JSONResponse:
    """Correct a label, or a note."""
    asked = await json_of(request, service.limits, Correction)
    part = await to_thread(
        lambda: jobs.inbox.relabel(_known(id_), asked.label, who=asked.who, note=asked.note)
    )
    return JSONResponse(_facts(service, part))


@router.delete("/inbox/{id_}", status_code=204, response_class=Response, responses=problems(404, 422, 503))
async def withdraw(id_: int, jobs: Working, who: str = "", note: str = "") -> Response:
    """Take a label back. What was said stays on record, and another label brings the part back."""
    await to_thread(lambda: jobs.inbox.withdraw(_known(id_), who=who, note=note))
    return Response(status_code=204)


@router.get("/inbox/{id_}/statements", responses=answers(list[Statement], 404, 503))
async def statements(id_: int, jobs: Working) -> JSONResponse:
    """All that was said of a part, the newest first; a label that is null took back the one before."""
    found = await to_thread(lambda: jobs.inbox.statements(_known(id_)))
    return JSONResponse(representable([asdict(one) for one in found]))


def _kept(inbox: Inbox, scored: Scored, asked: Labelling) -> Part:
    """One of the last parts, as a row of the inbox."""
    sent, told = scored.sent, scored.answer
    if not isinstance(sent.content, bytes):
        raise UserError("the part came as numbers and not as a file: send the image itself")
    said = Said(told["score"], told["threshold"], told["p_value"], told["verdict"], told["sha256"])
    known = {"part": sent.part or "", "who": asked.who, "note": asked.note}
    return inbox.add(scored.model, asked.label, sent.content, sent.name, said=said, **known)


def _facts(service: Service, part: Part) -> dict[str, Any]:
    """A labelled part, and whether the model that is served now has learnt from it."""
    served = _served(service, part.model)
    learnt = served is not None and part.sha256 in served.detector.model.hashes
    facts: dict[str, Any] = representable(asdict(part) | {"learnt": learnt})
    return facts


def _served(service: Service, name: str) -> Served | None:
    return next((one for one in service.models.served if one.name == name), None)


def _known(id_: int) -> int:
    if not 0 < id_ <= LARGEST_ID:
        raise NoSuchPartError(id_)
    return id_
