"""The inbox over HTTP: labels, proposals with a preview, accept or discard, and the way back."""

from __future__ import annotations

import asyncio
import io
from collections.abc import Callable
from typing import Annotated, Any, TypeVar

from fastapi import APIRouter, Depends, Query, Request
from fastapi.responses import JSONResponse, Response
from PIL import Image

from mhpatchcore.deploy.inbox import FILE, Inbox, Label, NoSuchPartError, Part, Said, changed
from mhpatchcore.deploy.inbox_jobs import Jobs, NoSuchJobError, NotReadyError
from mhpatchcore.deploy.inbox_loop import Request as Asked
from mhpatchcore.deploy.inbox_versions import ModelChangedError, sha256_of, undone, versions
from mhpatchcore.deploy.serve import inbox_schema as schema
from mhpatchcore.deploy.serve.bodies import images_of, json_of
from mhpatchcore.deploy.serve.images import as_source
from mhpatchcore.deploy.serve.parts import Part as Scored
from mhpatchcore.deploy.serve.refusals import Refused, of_user_error, unknown, unreadable
from mhpatchcore.deploy.serve.registry import Served
from mhpatchcore.deploy.serve.schema import problems
from mhpatchcore.deploy.serve.service import Service
from mhpatchcore.deploy.serve.v1 import check_token, rejected, service_of
from mhpatchcore.errors import UserError
from mhpatchcore.report.drawing import SCREEN, screen_pixels
from mhpatchcore.runtime.texts import representable, without_paths

LARGEST_ID = 2**63 - 1  # of SQLite
Out = TypeVar("Out")


def jobs_for(service: Service) -> Jobs:
    """The jobs of a service; its inbox lies beside the first of its models. Half of the cores stay with the line."""
    return Jobs(Inbox(service.models.served[0].path.parent / FILE), max(1, service.limits.workers // 2))


def jobs_of(request: Request) -> Jobs:
    jobs: Jobs = request.app.state.jobs
    return jobs


Known = Annotated[Service, Depends(service_of)]
Working = Annotated[Jobs, Depends(jobs_of)]
router = APIRouter(prefix="/v1", tags=["inbox"], dependencies=[Depends(check_token)])


@router.get("/inbox", responses=schema.answers(list[schema.LabelledAnswer]))
async def labelled(
    service: Known, jobs: Working, model: str | None = None, label: Label | None = None
) -> JSONResponse:
    """Labelled parts, the newest first."""
    parts = await _done(lambda: jobs.inbox.parts(model, label))
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
        asked = await _object(request, service)
        scored = service.parts[_text(asked, "id")]
        said, who, note = _label(asked), _text(asked, "who"), _text(asked, "note")
    else:
        if model is None or label is None:
            raise unreadable("an image is labelled with ?model=NAME&label=good")
        images, _ = await images_of(request, service.limits, [part])
        with service.pool.place():
            (scored,) = await service.score(model, images[:1], trial=True)
        if scored.refused is not None:
            return rejected(scored)
        said = label
    kept = await _done(lambda: _kept(jobs.inbox, scored, said, who, note))
    return JSONResponse(_facts(service, kept), 201)


@router.get("/inbox/{id_}", responses=schema.answers(schema.LabelledAnswer, 404))
async def one(id_: int, service: Known, jobs: Working) -> JSONResponse:
    """A labelled part."""
    return JSONResponse(_facts(service, await _done(lambda: jobs.inbox.part(_known(id_)))))


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

    return Response(await _done(drawn), media_type="image/jpeg")


@router.patch(
    "/inbox/{id_}",
    responses=schema.answers(schema.LabelledAnswer, 404, 413, 415, 422),
    openapi_extra=schema.CORRECTION_BODY,
)
async def correct(id_: int, request: Request, service: Known, jobs: Working) -> JSONResponse:
    """Correct a label, or a note."""
    asked = await _object(request, service)
    label = _label(asked) if "label" in asked else None
    who, note = (_text(asked, name) if name in asked else None for name in ("who", "note"))
    part = await _done(lambda: jobs.inbox.relabel(_known(id_), label, who=who, note=note))
    return JSONResponse(_facts(service, part))


@router.delete("/inbox/{id_}", status_code=204, response_class=Response, responses=problems(404))
async def remove(id_: int, jobs: Working) -> Response:
    """Forget a labelled part and its image; models that have learnt from it stay as they are."""
    await _done(lambda: jobs.inbox.remove(_known(id_)))
    return Response(status_code=204)


@router.post(
    "/models/{name}/preview",
    status_code=202,
    responses=schema.answers(schema.JobAnswer, 404, 413, 415, 422, status=202),
    openapi_extra=schema.PREVIEW_BODY,
)
async def preview(name: str, request: Request, service: Known, jobs: Working) -> JSONResponse:
    """Propose a change of a model and see what it would do to every labelled part. Nothing is written yet."""
    served = service.models[name]
    asked = await _object(request, service)
    ids, rate = asked.get("ids"), asked.get("false_alarm")
    if ids is not None and not (isinstance(ids, list) and all(type(id_) is int for id_ in ids)):
        raise unreadable("ids are the numbers of labelled parts: [1, 2]")
    if rate is not None and (isinstance(rate, bool) or not isinstance(rate, int | float) or not 0 < rate < 1):
        raise unreadable("a rate lies between 0 and 1, for example 0.01")
    wanted = await _done(
        lambda: Asked(
            action=asked.get("action", ""),
            ids=None if ids is None else tuple(ids),
            false_alarm=rate,
            instead=asked.get("instead") is True,
            who=_text(asked, "who"),
            note=_text(asked, "note"),
        )
    )
    return JSONResponse(_told(jobs.start(served.path, wanted).to_json()), 202)


@router.get("/jobs/{id_}", responses=schema.answers(schema.JobAnswer, 404))
async def job(id_: str, jobs: Working) -> JSONResponse:
    """How far a proposal is, and what it would do once that is known."""
    return JSONResponse(_told((await _done(lambda: jobs.job(id_))).to_json()))


@router.post("/jobs/{id_}/accept", responses=schema.answers(schema.JobAnswer, 404, 409))
async def accept(id_: str, service: Known, jobs: Working) -> JSONResponse:
    """Put a proposed model into service; the former one is kept."""
    accepted = await _done(lambda: jobs.accept(id_))
    await asyncio.to_thread(service.models.refresh)
    return JSONResponse(_told(accepted.to_json()))


@router.post("/jobs/{id_}/discard", responses=schema.answers(schema.JobAnswer, 404))
async def discard(id_: str, jobs: Working) -> JSONResponse:
    """Forget a proposal; one that is being made stops."""
    return JSONResponse(_told((await _done(lambda: jobs.discard(id_))).to_json()))


@router.get("/models/{name}/versions", responses=schema.answers(schema.VersionsAnswer, 404))
async def all_versions(name: str, service: Known, jobs: Working) -> JSONResponse:
    """The model in use and the earlier ones, the latest first; and who changed it when."""
    path = service.models[name].path
    found, changes = await _done(lambda: (versions(path), jobs.inbox.changes(name)))
    return JSONResponse(
        _told(
            {
                "versions": [one.to_json() for one in found],
                "changes": [change.to_json() for change in changes],
            }
        )
    )


@router.post(
    "/models/{name}/undo",
    responses=schema.answers(schema.VersionAnswer, 404, 409, 413, 415, 422),
    openapi_extra=schema.UNDO_BODY,
)
async def undo(name: str, request: Request, service: Known, jobs: Working) -> JSONResponse:
    """Go back to an earlier version, or without one to that before; the present one is kept."""
    path = service.models[name].path
    asked = await _object(request, service)
    version, who, note = (_text(asked, key) for key in ("version", "who", "note"))

    def done() -> dict[str, Any]:
        before = sha256_of(path)
        chosen = undone(path, version)
        jobs.inbox.record(changed(name, "undo", who, note, before, chosen.sha256))
        service.models.refresh()
        return chosen.to_json()

    return JSONResponse(_told(await _done(done)))


async def _done(work: Callable[[], Out]) -> Out:
    """Do what takes a file, beside the event loop; what can be wrong has a status."""
    try:
        return await asyncio.to_thread(work)
    except (NoSuchPartError, NoSuchJobError) as error:
        raise unknown(
            "such part in the inbox" if isinstance(error, NoSuchPartError) else "such job"
        ) from error
    except (ModelChangedError, NotReadyError) as error:
        raise Refused(409, "changed", str(error)) from error
    except UserError as error:
        raise of_user_error(error) from error


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
    return _told(part.to_json() | {"learnt": learnt})


def _served(service: Service, name: str) -> Served | None:
    return next((one for one in service.models.served if one.name == name), None)


async def _object(request: Request, service: Service) -> dict[str, Any]:
    asked = await json_of(request, service.limits)
    if not isinstance(asked, dict):
        raise unreadable('the body is a JSON object, for example {"label": "good"}')
    return asked


def _label(asked: dict[str, Any]) -> str:
    label = asked.get("label")
    if not isinstance(label, str):
        raise unreadable('say what it is: {"label": "good"} or {"label": "defect"}')
    return label


def _text(asked: dict[str, Any], name: str) -> str:
    value = asked.get(name, "")
    if not isinstance(value, str):
        raise unreadable(f"{name} is a text")
    return value


def _known(id_: int) -> int:
    if not 0 < id_ <= LARGEST_ID:
        raise NoSuchPartError(id_)
    return id_


def _told(facts: dict[str, Any]) -> dict[str, Any]:
    told: dict[str, Any] = without_paths(representable(facts))
    return told
