"""The inbox over HTTP: labels, and what comes of them: proposals with a preview, the threshold, and the way back."""

from __future__ import annotations

from asyncio import to_thread
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Query, Request
from fastapi.responses import Response
from pydantic import BaseModel

from mhpatchcore.calibration.choices import Choice, choices
from mhpatchcore.deploy.inbox import Inbox, Label, NoSuchPartError, Part, Said, Statement
from mhpatchcore.deploy.inbox.jobs import Job, Jobs
from mhpatchcore.deploy.inbox.journal import Change
from mhpatchcore.deploy.inbox.proposals import Preview, accept, propose
from mhpatchcore.deploy.inbox.proposals import Request as Asked
from mhpatchcore.deploy.inbox.versions import ModelChangedError, Version, recover, versions
from mhpatchcore.deploy.serve import service as serving
from mhpatchcore.deploy.serve.answers import ModelAnswer, answers, json_body, problems, reply
from mhpatchcore.deploy.serve.bodies import as_source, images_of, json_of, kind_of
from mhpatchcore.deploy.serve.pictures import encoded
from mhpatchcore.deploy.serve.refusals import Refused, unreadable
from mhpatchcore.deploy.serve.registry import Served
from mhpatchcore.deploy.serve.service import Service
from mhpatchcore.deploy.serve.v1 import Known, check_token, rejected
from mhpatchcore.errors import UserError
from mhpatchcore.report.drawing import SCREEN, screen_pixels
from mhpatchcore.runtime.texts import without_paths

LARGEST_ID = 2**63 - 1  # of SQLite


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


@dataclass(frozen=True, kw_only=True)
class Undo:
    """Which version to go back to; `instead_of` is the sha256 of the model that you have seen."""

    version: int | None = None
    instead_of: str = ""
    who: str = ""
    note: str = ""


@dataclass(frozen=True, kw_only=True)
class Threshold(Undo):
    """A rate of false alarms, from 0 to 0.5; `instead_of` is the sha256 of the model that you have seen."""

    false_alarm: float
    preview: bool = False


class VersionsAnswer(BaseModel):
    """The versions of a model, the highest number first, and its changes, the latest first."""

    versions: list[Version]
    changes: list[Change]


async def jobs_of(request: Request) -> Jobs:
    jobs: Jobs = request.app.state.jobs
    return jobs


Working = Annotated[Jobs, Depends(jobs_of)]
router = APIRouter(prefix="/v1", tags=["inbox"], dependencies=[Depends(check_token)])


@router.get("/inbox", responses=answers(list[Labelled]))
async def labelled(
    service: Known, jobs: Working, model: str | None = None, label: Label | None = None
) -> Response:
    """Labelled parts, the newest first."""
    parts = await to_thread(lambda: jobs.inbox.parts(model, label))
    return reply([_labelled(service, one) for one in parts])


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
) -> Response:
    """Label one of the last parts, by the id that scoring gave it: {"id": …, "label": "good"}.

    Or send an image itself, with the model and the label in the address: it is scored first.
    """
    if kind_of(request) == "application/json":
        asked = await json_of(request, Labelling)
        scored = service.parts[asked.id]
    elif model is None or label is None:
        raise unreadable("an image is labelled with ?model=NAME&label=good")
    else:
        asked = Labelling("", label, who, note)
        images, _ = await images_of(request, [part])
        with service.pool.place():
            (scored,) = await service.score(model, images[:1], trial=True)
        if scored.refused is not None:
            return rejected(scored)
    kept = await to_thread(lambda: _keep(jobs.inbox, scored, asked))
    return reply(_labelled(service, kept), 201)


@router.get("/inbox/{id_}", responses=answers(Labelled, 404))
async def one(id_: int, service: Known, jobs: Working) -> Response:
    """A labelled part."""
    return reply(_labelled(service, await to_thread(lambda: jobs.inbox.part(_known(id_)))))


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
    "/inbox/{id_}", responses=answers(Labelled, 404, 413, 415, 422), openapi_extra=json_body(Correction)
)
async def correct(id_: int, request: Request, service: Known, jobs: Working) -> Response:
    """Correct a label, or a note."""
    asked = await json_of(request, Correction)
    relabel = jobs.inbox.relabel
    part = await to_thread(lambda: relabel(_known(id_), asked.label, who=asked.who, note=asked.note))
    return reply(_labelled(service, part))


@router.delete("/inbox/{id_}", status_code=204, response_class=Response, responses=problems(404, 422, 503))
async def withdraw(id_: int, jobs: Working, who: str = "", note: str = "") -> Response:
    """Take a label back. What was said stays on record, and another label brings the part back."""
    await to_thread(lambda: jobs.inbox.withdraw(_known(id_), who=who, note=note))
    return Response(status_code=204)


@router.get("/inbox/{id_}/statements", responses=answers(list[Statement], 404, 503))
async def statements(id_: int, jobs: Working) -> Response:
    """All that was said of a part, the newest first; a label that is null took back the one before."""
    return reply(await to_thread(lambda: jobs.inbox.statements(_known(id_))))


def _keep(inbox: Inbox, scored: serving.Part, asked: Labelling) -> Part:
    """One of the last parts, as a row of the inbox."""
    sent, told = scored.sent, scored.answer
    if not isinstance(sent.content, bytes):
        raise UserError("the part came as numbers and not as a file: send the image itself")
    said = Said(told["score"], told["threshold"], told["p_value"], told["verdict"], told["sha256"])
    known = {"part": sent.part or "", "who": asked.who, "note": asked.note}
    return inbox.add(scored.model, asked.label, sent.content, sent.name, said=said, **known)


def _labelled(service: Service, part: Part) -> Labelled:
    served = _served(service, part.model)
    return Labelled(**vars(part), learnt=served is not None and part.sha256 in served.detector.model.hashes)


def _served(service: Service, name: str) -> Served | None:
    return next((one for one in service.models.served if one.name == name), None)


def _known(id_: int) -> int:
    if not 0 < id_ <= LARGEST_ID:
        raise NoSuchPartError(id_)
    return id_


@router.post(
    "/models/{name}/preview",
    status_code=202,
    responses=answers(Job, 404, 413, 415, 422, status=202),
    openapi_extra=json_body(Asked),
)
async def preview(name: str, request: Request, service: Known, jobs: Working) -> Response:
    """Propose a change of a model and see what it would do to every labelled part. Nothing is written yet."""
    served = service.models[name]
    return _job(jobs.start(served.path, await json_of(request, Asked)), 202)


@router.get("/jobs/{id_}", responses=answers(Job, 404))
async def job(id_: str, jobs: Working) -> Response:
    """How far a proposal is, and what it would do once that is known."""
    return _job(await to_thread(lambda: jobs.job(id_)))


@router.post("/jobs/{id_}/accept", responses=answers(Job, 404, 409, 503))
async def accept_job(id_: str, service: Known, jobs: Working) -> Response:
    """Put a proposed model into service; the former one is kept."""
    accepted = await to_thread(lambda: jobs.accept(id_))
    await to_thread(service.models.refresh)
    return _job(accepted)


@router.post("/jobs/{id_}/discard", responses=answers(Job, 404))
async def discard(id_: str, jobs: Working) -> Response:
    """Forget a proposal; one that is being made stops."""
    return _job(await to_thread(lambda: jobs.discard(id_)))


@router.put(
    "/models/{name}/threshold",
    responses=answers(ModelAnswer | Preview, 404, 409, 413, 415, 422, 428, 503),
    openapi_extra=json_body(Threshold),
)
async def set_threshold(name: str, request: Request, service: Known, jobs: Working) -> Response:
    """Set another rate of false alarms, instead of the model that you have seen; the former one is kept.

    With {"preview": true} nothing is written: the answer says what it would do to every labelled part.
    """
    served = service.models[name]
    asked = await json_of(request, Threshold)
    if not served.detector.calibration.n:
        message = "the model has no calibration scores: calibrate it with images first"
        raise Refused(409, "no calibration", message)
    wanted = Asked("recalibrate", false_alarm=asked.false_alarm, who=asked.who, note=asked.note)
    if asked.preview:
        proposal = await to_thread(lambda: propose(jobs.inbox, served.path, wanted))
        return reply(_preview(proposal.preview))
    await _put(service, jobs, served.path, wanted, asked.instead_of)
    return reply(service.facts(service.models[name]))


@router.get("/models/{name}/choices", responses=answers(list[Choice], 404, 503))
async def all_choices(name: str, service: Known, jobs: Working) -> Response:
    """The usual rates of false alarms and the one in use: thresholds, and how many labelled defects each finds.

    Defects count by the scores that they had when they were labelled.
    """
    calibration = service.models[name].detector.calibration

    def found() -> list[Choice]:
        defects = [one.score for one in jobs.inbox.parts(name, "defect") if one.score is not None]
        return list(choices(calibration, defects or None))

    return reply(await to_thread(found))


@router.get("/models/{name}/versions", responses=answers(VersionsAnswer, 404, 503))
async def all_versions(name: str, service: Known, jobs: Working) -> Response:
    """The model in use and the earlier ones, the highest number first; and who changed it when."""
    path, journal = service.models[name].path, jobs.inbox.journal

    def found() -> dict[str, Any]:
        recover(journal, path)
        return {"versions": versions(journal, path), "changes": journal.changes(name)}

    return reply(await to_thread(found))


@router.post(
    "/models/{name}/undo",
    responses=answers(Version, 404, 409, 413, 415, 422, 428, 503),
    openapi_extra=json_body(Undo),
)
async def undo(name: str, request: Request, service: Known, jobs: Working) -> Response:
    """Go back to an earlier version, or without one to that which the model in use was made from; that one is kept.

    A preview of it is a job with the action "undo".
    """
    path, asked = service.models[name].path, await json_of(request, Undo)
    wanted = Asked("undo", version=asked.version, who=asked.who, note=asked.note)
    await _put(service, jobs, path, wanted, asked.instead_of)
    found = await to_thread(lambda: versions(jobs.inbox.journal, path))
    return reply(next(one for one in found if one.in_use))


async def _put(service: Service, jobs: Jobs, path: Path, wanted: Asked, instead_of: str) -> None:
    """Make a change at once, if the model in use is still the one that was seen."""
    if not instead_of:
        raise Refused(428, "unseen", "say which model you have seen: give its sha256 as instead_of")

    def made() -> None:
        proposal = propose(jobs.inbox, path, wanted, scored=False)
        if proposal.preview.model_sha256 != instead_of:
            raise ModelChangedError(f"{path.name} is no longer the model that you have seen: look again")
        accept(jobs.inbox, proposal)

    await to_thread(made)
    await to_thread(service.models.refresh)


def _job(job: Job, status: int = 200) -> Response:
    preview = None if job.preview is None else _preview(job.preview)
    return reply(replace(job, error=without_paths(job.error), preview=preview), status)


def _preview(preview: Preview) -> Preview:
    """One whose messages have no paths."""
    return replace(preview, warnings=without_paths(preview.warnings))
