"""The inbox over HTTP: labels, and what comes of them: proposals with a preview, the threshold, and the way back."""

from __future__ import annotations

from asyncio import to_thread
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

from fastapi import APIRouter, Depends, Query, Request
from fastapi.responses import Response
from pydantic import BaseModel

from mhpatchcore.calibration.choices import Choice, choices
from mhpatchcore.deploy.inbox import Inbox, Label, NoSuchPartError, Part, Said, Statement
from mhpatchcore.deploy.inbox.jobs import Job
from mhpatchcore.deploy.inbox.journal import Change
from mhpatchcore.deploy.inbox.proposals import Preview, accept, propose
from mhpatchcore.deploy.inbox.proposals import Request as Asked
from mhpatchcore.deploy.inbox.versions import ModelChangedError, Version, recover, versions
from mhpatchcore.deploy.serve import service as serving
from mhpatchcore.deploy.serve.answers import ModelAnswer, problems, reply, taking
from mhpatchcore.deploy.serve.bodies import Sent, images_of, json_body, json_of, kind_of
from mhpatchcore.deploy.serve.pictures import encoded
from mhpatchcore.deploy.serve.refusals import Refused
from mhpatchcore.deploy.serve.registry import Served
from mhpatchcore.deploy.serve.service import Service
from mhpatchcore.deploy.serve.v1 import Known, check_token, rejected
from mhpatchcore.errors import UserError
from mhpatchcore.report.drawing import SCREEN, screen_pixels
from mhpatchcore.runtime.texts import without_paths

STATUSES = (401, 404, 409, 422, 428, 503)


async def part_id(id_: int) -> int:
    if not 0 < id_ < 2**63:  # SQLite has no larger ones
        raise NoSuchPartError(id_)
    return id_


PartId = Annotated[int, Depends(part_id)]


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
class Changing:
    """Who changes a model, and why, instead of which one."""

    instead_of: str = ""
    who: str = ""
    note: str = ""


@dataclass(frozen=True, kw_only=True)
class Undo(Changing):
    """Which version to go back to; `instead_of` is the sha256 of the model that you have seen."""

    version: int | None = None


@dataclass(frozen=True, kw_only=True)
class Threshold(Changing):
    """A rate of false alarms, from 0 to 0.5; `instead_of` is the sha256 of the model that you have seen."""

    false_alarm: float
    preview: bool = False


class VersionsAnswer(BaseModel):
    """The versions of a model, the highest number first, and its changes, the latest first."""

    versions: list[Version]
    changes: list[Change]


router = APIRouter(
    prefix="/v1", tags=["inbox"], dependencies=[Depends(check_token)], responses=problems(*STATUSES)
)
# FastAPI calls plain functions on threads of their own: the inbox and the disk hold nobody up


@router.get("/inbox", response_model=list[Labelled])
def labelled(service: Known, model: str | None = None, label: Label | None = None) -> Response:
    """Labelled parts, the newest first."""
    return reply([_labelled(service, one) for one in service.models.inbox.parts(model, label)])


@router.post(
    "/inbox", status_code=201, response_model=Labelled, **taking(Labelling, "image/png", "image/jpeg")
)
async def add(
    request: Request,
    service: Known,
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
        raise Refused(422, "an image is labelled with ?model=NAME&label=good")
    else:
        asked = Labelling("", label, who, note)
        images, _ = await images_of(request, [part])
        with service.pool.place():
            (scored,) = await service.score(model, images[:1], trial=True)
        if scored.refused is not None:
            return rejected(scored)
    kept = await to_thread(lambda: _keep(service.models.inbox, scored, asked))
    return reply(_labelled(service, kept), 201)


@router.get("/inbox/{id_}", response_model=Labelled)
def one(id_: PartId, service: Known) -> Response:
    """A labelled part."""
    return reply(_labelled(service, service.models.inbox.part(id_)))


@router.get("/inbox/{id_}/image.jpg", response_class=Response)
def image(id_: PartId, service: Known, longest: Annotated[int, Query(ge=16, le=4096)] = SCREEN) -> Response:
    """The image of a labelled part, at the size of a screen."""
    inbox = service.models.inbox
    served = _served(service, inbox.part(id_).model)
    window = None if served is None else served.detector.config.views[0].window
    source = Sent(inbox.image(id_)).source
    return Response(encoded(screen_pixels(source, window, longest), "JPEG"), media_type="image/jpeg")


@router.patch("/inbox/{id_}", response_model=Labelled, **taking(Correction))
def correct(id_: PartId, service: Known, asked: Annotated[Correction, json_body(Correction)]) -> Response:
    """Correct a label, or a note."""
    part = service.models.inbox.relabel(id_, asked.label, who=asked.who, note=asked.note)
    return reply(_labelled(service, part))


@router.delete("/inbox/{id_}", status_code=204, response_class=Response)
def withdraw(id_: PartId, service: Known, who: str = "", note: str = "") -> Response:
    """Take a label back. What was said stays on record, and another label brings the part back."""
    service.models.inbox.withdraw(id_, who=who, note=note)
    return Response(status_code=204)


@router.get("/inbox/{id_}/statements", response_model=list[Statement])
def statements(id_: PartId, service: Known) -> Response:
    """All that was said of a part, the newest first; a label that is null took back the one before."""
    return reply(service.models.inbox.statements(id_))


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


@router.post("/models/{name}/preview", status_code=202, response_model=Job, **taking(Asked))
def preview(name: str, service: Known, asked: Annotated[Asked, json_body(Asked)]) -> Response:
    """Propose a change of a model and see what it would do to every labelled part. Nothing is written yet."""
    return _job(service.jobs.start(service.models[name].path, asked), 202)


@router.get("/jobs/{id_}", response_model=Job)
def job(id_: str, service: Known) -> Response:
    """How far a proposal is, and what it would do once that is known."""
    return _job(service.jobs.job(id_))


@router.post("/jobs/{id_}/accept", response_model=Job)
def accept_job(id_: str, service: Known) -> Response:
    """Put a proposed model into service; the former one is kept."""
    accepted = service.jobs.accept(id_)
    service.models.refresh()
    return _job(accepted)


@router.post("/jobs/{id_}/discard", response_model=Job)
def discard(id_: str, service: Known) -> Response:
    """Forget a proposal; one that is being made stops."""
    return _job(service.jobs.discard(id_))


@router.put("/models/{name}/threshold", response_model=ModelAnswer | Preview, **taking(Threshold))
def set_threshold(name: str, service: Known, asked: Annotated[Threshold, json_body(Threshold)]) -> Response:
    """Set another rate of false alarms, instead of the model that you have seen; the former one is kept.

    With {"preview": true} nothing is written: the answer says what it would do to every labelled part.
    """
    served = service.models[name]
    if not served.detector.calibration.n:
        raise Refused(409, "the model has no calibration scores: calibrate it with images first")
    wanted = Asked("recalibrate", false_alarm=asked.false_alarm, who=asked.who, note=asked.note)
    if asked.preview:
        return reply(_preview(propose(service.models.inbox, served.path, wanted).preview))
    _put(service, served.path, wanted, asked.instead_of)
    return reply(service.facts(service.models[name]))


@router.get("/models/{name}/choices", response_model=list[Choice])
def all_choices(name: str, service: Known) -> Response:
    """The usual rates of false alarms and the one in use: thresholds, and how many labelled defects each finds.

    Defects count by the scores that they had when they were labelled.
    """
    calibration = service.models[name].detector.calibration
    labelled = service.models.inbox.parts(name, "defect")
    return reply(choices(calibration, [one.score for one in labelled if one.score is not None] or None))


@router.get("/models/{name}/versions", response_model=VersionsAnswer)
def all_versions(name: str, service: Known) -> Response:
    """The model in use and the earlier ones, the highest number first; and who changed it when."""
    path, journal = service.models[name].path, service.models.inbox.journal
    recover(journal, path)
    return reply({"versions": versions(journal, path), "changes": journal.changes(name)})


@router.post("/models/{name}/undo", response_model=Version, **taking(Undo))
def undo(name: str, service: Known, asked: Annotated[Undo, json_body(Undo)]) -> Response:
    """Go back to an earlier version, or without one to that which the model in use was made from; that one is kept.

    A preview of it is a job with the action "undo".
    """
    path = service.models[name].path
    wanted = Asked("undo", version=asked.version, who=asked.who, note=asked.note)
    _put(service, path, wanted, asked.instead_of)
    return reply(next(one for one in versions(service.models.inbox.journal, path) if one.in_use))


def _put(service: Service, path: Path, wanted: Asked, instead_of: str) -> None:
    """Make a change at once, if the model in use is still the one that was seen."""
    if not instead_of:
        raise Refused(428, "say which model you have seen: give its sha256 as instead_of")
    proposal = propose(service.models.inbox, path, wanted, scored=False)
    if proposal.preview.model_sha256 != instead_of:
        raise ModelChangedError(f"{path.name} is no longer the model that you have seen: look again")
    accept(service.models.inbox, proposal)
    service.models.refresh()


def _job(job: Job, status: int = 200) -> Response:
    preview = None if job.preview is None else _preview(job.preview)
    return reply(replace(job, error=without_paths(job.error), preview=preview), status)


def _preview(preview: Preview) -> Preview:
    """One whose messages have no paths."""
    return replace(preview, warnings=without_paths(preview.warnings))
