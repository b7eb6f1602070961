"""Changes of a model over HTTP: proposals with a preview, accept or discard, the threshold, and the way back."""

from __future__ import annotations

import asyncio
from dataclasses import asdict
from pathlib import Path
from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse

from mhpatchcore.calibration.choices import Choice, choices
from mhpatchcore.deploy.inbox.change import ModelChangedError, recover
from mhpatchcore.deploy.inbox.jobs import Job
from mhpatchcore.deploy.inbox.proposals import Request as Asked
from mhpatchcore.deploy.inbox.proposals import accept, propose
from mhpatchcore.deploy.inbox.versions import versions
from mhpatchcore.deploy.serve import inbox_schema as schema
from mhpatchcore.deploy.serve.inbox_asking import Known, Working, done, object_of, text_of
from mhpatchcore.deploy.serve.refusals import Refused, unreadable
from mhpatchcore.deploy.serve.schema import ModelAnswer
from mhpatchcore.runtime.texts import representable, without_paths

LARGEST_RATE = 0.5  # of good parts that may be rejected
router = APIRouter()


@router.post(
    "/models/{name}/preview",
    status_code=202,
    responses=schema.answers(schema.JobAnswer, 404, 413, 415, 422, status=202),
    openapi_extra=schema.PREVIEW_BODY,
)
async def preview(name: str, request: Request, service: Known, jobs: Working) -> JSONResponse:
    """Propose a change of a model and see what it would do to every labelled part. Nothing is written yet."""
    served = service.models[name]
    asked = await object_of(request, service)
    ids = asked.get("ids")
    if ids is not None and not (isinstance(ids, list) and all(type(id_) is int for id_ in ids)):
        raise unreadable("ids are the numbers of labelled parts: [1, 2]")
    wanted = await done(
        lambda: Asked(
            action=asked.get("action", ""),
            ids=None if ids is None else tuple(ids),
            false_alarm=_rate(asked),
            instead=asked.get("instead") is True,
            version=_version(asked),
            name=text_of(asked, "name"),
            who=text_of(asked, "who"),
            note=text_of(asked, "note"),
        )
    )
    return JSONResponse(_job(jobs.start(served.path, wanted)), 202)


@router.get("/jobs/{id_}", responses=schema.answers(schema.JobAnswer, 404))
async def job(id_: str, jobs: Working) -> JSONResponse:
    """How far a proposal is, and what it would do once that is known."""
    return JSONResponse(_job(await done(lambda: jobs.job(id_))))


@router.post("/jobs/{id_}/accept", responses=schema.answers(schema.JobAnswer, 404, 409, 503))
async def accept_job(id_: str, service: Known, jobs: Working) -> JSONResponse:
    """Put a proposed model into service; the former one is kept."""
    accepted = await done(lambda: jobs.accept(id_))
    await asyncio.to_thread(service.models.refresh)
    return JSONResponse(_job(accepted))


@router.post("/jobs/{id_}/discard", responses=schema.answers(schema.JobAnswer, 404))
async def discard(id_: str, jobs: Working) -> JSONResponse:
    """Forget a proposal; one that is being made stops."""
    return JSONResponse(_job(await done(lambda: jobs.discard(id_))))


@router.put(
    "/models/{name}/threshold",
    responses=schema.answers(ModelAnswer | schema.PreviewAnswer, 404, 409, 413, 415, 422, 428, 503),
    openapi_extra=schema.THRESHOLD_BODY,
)
async def set_threshold(name: str, request: Request, service: Known, jobs: Working) -> JSONResponse:
    """Set another rate of false alarms, instead of the model that you have seen; the former one is kept.

    With {"preview": true} nothing is written: the answer says what it would do to every labelled part.
    """
    served = service.models[name]
    asked = await object_of(request, service)
    rate, who, note = _rate(asked), text_of(asked, "who"), text_of(asked, "note")
    if rate is None:
        raise unreadable('give a rate: {"false_alarm": 0.01}')
    if not served.detector.calibration.n:
        raise Refused(
            409, "no calibration", "the model has no calibration scores: calibrate it with images first"
        )
    wanted = Asked("recalibrate", false_alarm=rate, who=who, note=note)
    if asked.get("preview") is True:
        proposal = await done(lambda: propose(jobs.inbox, served.path, wanted))
        return JSONResponse(_preview(proposal.preview.to_json()))
    await _put(service, jobs, served.path, wanted, _seen(asked))
    return JSONResponse(service.facts(service.models[name]))


@router.get("/models/{name}/choices", responses=schema.answers(list[Choice], 404, 503))
async def all_choices(name: str, service: Known, jobs: Working) -> JSONResponse:
    """The usual rates of false alarms and the one in use: thresholds, and how many labelled defects each finds.

    Defects count by the scores that they had when they were labelled.
    """
    calibration = service.models[name].detector.calibration

    def found() -> list[dict[str, Any]]:
        defects = [one.score for one in jobs.inbox.parts(name, "defect") if one.score is not None]
        return [asdict(one) for one in choices(calibration, defects or None)]

    return JSONResponse(representable(await done(found)))


@router.get("/models/{name}/versions", responses=schema.answers(schema.VersionsAnswer, 404, 503))
async def all_versions(name: str, service: Known, jobs: Working) -> JSONResponse:
    """The model in use and the earlier ones, the highest number first; and who changed it when."""
    path, journal = service.models[name].path, jobs.inbox.journal

    def found() -> dict[str, Any]:
        recover(journal, path)
        return {
            "versions": [one.to_json() for one in versions(journal, path)],
            "changes": [one.to_json() for one in journal.changes(name)],
        }

    return JSONResponse(representable(await done(found)))


@router.post(
    "/models/{name}/undo",
    responses=schema.answers(schema.VersionAnswer, 404, 409, 413, 415, 422, 428, 503),
    openapi_extra=schema.UNDO_BODY,
)
async def undo(name: str, request: Request, service: Known, jobs: Working) -> JSONResponse:
    """Go back to an earlier version, or without one to that which the model in use was made from; that one is kept.

    A preview of it is a job with the action "undo".
    """
    path, asked = service.models[name].path, await object_of(request, service)
    wanted = Asked("undo", version=_version(asked), who=text_of(asked, "who"), note=text_of(asked, "note"))
    await _put(service, jobs, path, wanted, _seen(asked))
    found = await done(lambda: versions(jobs.inbox.journal, path))
    return JSONResponse(representable(next(one for one in found if one.in_use).to_json()))


async def _put(service: Known, jobs: Working, path: Path, wanted: Asked, instead_of: str) -> None:
    """Make a change at once, if the model in use is still the one that was seen."""

    def made() -> None:
        proposal = propose(jobs.inbox, path, wanted, scored=False)
        if proposal.preview.model_sha256 != instead_of:
            raise ModelChangedError(f"{path.name} is no longer the model that you have seen: look again")
        accept(jobs.inbox, proposal)

    await done(made)
    await asyncio.to_thread(service.models.refresh)


def _seen(asked: dict[str, Any]) -> str:
    """The hash of the model that a change was decided for."""
    instead_of = text_of(asked, "instead_of")
    if not instead_of:
        raise Refused(428, "unseen", "say which model you have seen: give its sha256 as instead_of")
    return instead_of


def _rate(asked: dict[str, Any]) -> float | None:
    rate = asked.get("false_alarm")
    if rate is None:
        return None
    if isinstance(rate, bool) or not isinstance(rate, int | float) or not 0 < rate <= LARGEST_RATE:
        raise unreadable(f"a rate lies between 0 and {LARGEST_RATE}, for example 0.01")
    return float(rate)


def _version(asked: dict[str, Any]) -> int | None:
    version = asked.get("version")
    if version is not None and type(version) is not int:
        raise unreadable("a version is a number: 3")
    return version


def _job(job: Job) -> dict[str, Any]:
    told = job.to_json()
    return told | {"error": without_paths(told["error"]), "preview": _preview(told["preview"])}


def _preview(told: dict[str, Any] | None) -> dict[str, Any] | None:
    """What is told of a preview: names as they were given, messages without paths."""
    return None if told is None else representable(told | {"warnings": without_paths(told["warnings"])})
