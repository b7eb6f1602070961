"""Changes of a model over HTTP: proposals with a preview, accept or discard, the threshold, and the way back."""

from __future__ import annotations

from asyncio import to_thread
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Depends, Request
from fastapi.responses import JSONResponse
from pydantic import BaseModel, ConfigDict

from mhpatchcore.calibration.choices import Choice, choices
from mhpatchcore.deploy.inbox.jobs import Job, Jobs
from mhpatchcore.deploy.inbox.journal import Change
from mhpatchcore.deploy.inbox.proposals import Action, accept, propose
from mhpatchcore.deploy.inbox.proposals import Request as Asked
from mhpatchcore.deploy.inbox.versions import ModelChangedError, Version, recover, versions
from mhpatchcore.deploy.serve.bodies import json_of
from mhpatchcore.deploy.serve.refusals import Refused
from mhpatchcore.deploy.serve.schema import ModelAnswer, answers, json_body
from mhpatchcore.deploy.serve.service import Service
from mhpatchcore.deploy.serve.v1 import Known, check_token
from mhpatchcore.runtime.texts import representable, without_paths


@dataclass(frozen=True)
class Undo:
    """Which version to go back to; `instead_of` is the sha256 of the model that you have seen."""

    version: int | None = None
    instead_of: str = ""
    who: str = ""
    note: str = ""


@dataclass(frozen=True)
class Threshold:
    """A rate of false alarms, from 0 to 0.5; `instead_of` is the sha256 of the model that you have seen."""

    false_alarm: float
    preview: bool = False
    instead_of: str = ""
    who: str = ""
    note: str = ""


class PreviewAnswer(BaseModel):
    """What a change would do: to the threshold, and to every labelled part (`effects`).

    `lost` are defects that are caught now and would pass; `outliers` are parts that would be learnt although they score
    far above the threshold.
    """

    model_config = ConfigDict(extra="allow")
    action: Action
    model_sha256: str
    version: int | None
    threshold_before: float | None
    threshold_after: float | None
    rate_before: float
    rate_after: float
    effects: list[dict[str, Any]]
    lost: list[int]
    outliers: list[int]
    warnings: list[str]


class JobAnswer(BaseModel):
    """A proposal: queued, running, ready, then accepted or discarded; or failed. Once ready it has a `preview`."""

    id: str
    model: str
    action: Action
    state: Literal["queued", "running", "ready", "accepting", "accepted", "discarded", "failed"]
    progress: dict[str, int | str]
    error: str | None
    sha256: str | None
    preview: PreviewAnswer | None


class VersionsAnswer(BaseModel):
    """The versions of a model, the highest number first, and its changes, the latest first."""

    versions: list[Version]
    changes: list[Change]


async def jobs_of(request: Request) -> Jobs:
    jobs: Jobs = request.app.state.jobs
    return jobs


def jobs_for(service: Service) -> Jobs:
    """The jobs of a service; its inbox lies beside the first of its models. Half of the cores stay with the line."""
    return Jobs(service.models.inbox, max(1, service.limits.workers // 2))


Working = Annotated[Jobs, Depends(jobs_of)]
router = APIRouter(prefix="/v1", tags=["inbox"], dependencies=[Depends(check_token)])


@router.post(
    "/models/{name}/preview",
    status_code=202,
    responses=answers(JobAnswer, 404, 413, 415, 422, status=202),
    openapi_extra=json_body(Asked),
)
async def preview(name: str, request: Request, service: Known, jobs: Working) -> JSONResponse:
    """Propose a change of a model and see what it would do to every labelled part. Nothing is written yet."""
    served = service.models[name]
    return JSONResponse(_job(jobs.start(served.path, await json_of(request, service.limits, Asked))), 202)


@router.get("/jobs/{id_}", responses=answers(JobAnswer, 404))
async def job(id_: str, jobs: Working) -> JSONResponse:
    """How far a proposal is, and what it would do once that is known."""
    return JSONResponse(_job(await to_thread(lambda: jobs.job(id_))))


@router.post("/jobs/{id_}/accept", responses=answers(JobAnswer, 404, 409, 503))
async def accept_job(id_: str, service: Known, jobs: Working) -> JSONResponse:
    """Put a proposed model into service; the former one is kept."""
    accepted = await to_thread(lambda: jobs.accept(id_))
    await to_thread(service.models.refresh)
    return JSONResponse(_job(accepted))


@router.post("/jobs/{id_}/discard", responses=answers(JobAnswer, 404))
async def discard(id_: str, jobs: Working) -> JSONResponse:
    """Forget a proposal; one that is being made stops."""
    return JSONResponse(_job(await to_thread(lambda: jobs.discard(id_))))


@router.put(
    "/models/{name}/threshold",
    responses=answers(ModelAnswer | PreviewAnswer, 404, 409, 413, 415, 422, 428, 503),
    openapi_extra=json_body(Threshold),
)
async def set_threshold(name: str, request: Request, service: Known, jobs: Working) -> JSONResponse:
    """Set another rate of false alarms, instead of the model that you have seen; the former one is kept.

    With {"preview": true} nothing is written: the answer says what it would do to every labelled part.
    """
    served = service.models[name]
    asked = await json_of(request, service.limits, Threshold)
    if not served.detector.calibration.n:
        message = "the model has no calibration scores: calibrate it with images first"
        raise Refused(409, "no calibration", message)
    wanted = await to_thread(
        lambda: Asked("recalibrate", false_alarm=asked.false_alarm, who=asked.who, note=asked.note)
    )
    if asked.preview:
        proposal = await to_thread(lambda: propose(jobs.inbox, served.path, wanted))
        return JSONResponse(_preview(proposal.to_json()))
    await _put(service, jobs, served.path, wanted, asked.instead_of)
    return JSONResponse(service.facts(service.models[name]))


@router.get("/models/{name}/choices", responses=answers(list[Choice], 404, 503))
async def all_choices(name: str, service: Known, jobs: Working) -> JSONResponse:
    """The usual rates of false alarms and the one in use: thresholds, and how many labelled defects each finds.

    Defects count by the scores that they had when they were labelled.
    """
    calibration = service.models[name].detector.calibration

    def found() -> list[dict[str, Any]]:
        defects = [one.score for one in jobs.inbox.parts(name, "defect") if one.score is not None]
        return [asdict(one) for one in choices(calibration, defects or None)]

    return JSONResponse(representable(await to_thread(found)))


@router.get("/models/{name}/versions", responses=answers(VersionsAnswer, 404, 503))
async def all_versions(name: str, service: Known, jobs: Working) -> JSONResponse:
    """The model in use and the earlier ones, the highest number first; and who changed it when."""
    path, journal = service.models[name].path, jobs.inbox.journal

    def found() -> dict[str, Any]:
        recover(journal, path)
        return {
            "versions": [asdict(one) for one in versions(journal, path)],
            "changes": [asdict(one) for one in journal.changes(name)],
        }

    return JSONResponse(representable(await to_thread(found)))


@router.post(
    "/models/{name}/undo",
    responses=answers(Version, 404, 409, 413, 415, 422, 428, 503),
    openapi_extra=json_body(Undo),
)
async def undo(name: str, request: Request, service: Known, jobs: Working) -> JSONResponse:
    """Go back to an earlier version, or without one to that which the model in use was made from; that one is kept.

    A preview of it is a job with the action "undo".
    """
    path, asked = service.models[name].path, await json_of(request, service.limits, Undo)
    wanted = Asked("undo", version=asked.version, who=asked.who, note=asked.note)
    await _put(service, jobs, path, wanted, asked.instead_of)
    found = await to_thread(lambda: versions(jobs.inbox.journal, path))
    return JSONResponse(representable(asdict(next(one for one in found if one.in_use))))


async def _put(service: Service, jobs: Jobs, path: Path, wanted: Asked, instead_of: str) -> None:
    """Make a change at once, if the model in use is still the one that was seen."""
    if not instead_of:
        raise Refused(428, "unseen", "say which model you have seen: give its sha256 as instead_of")

    def made() -> None:
        proposal = propose(jobs.inbox, path, wanted, scored=False)
        if proposal.model_sha256 != instead_of:
            raise ModelChangedError(f"{path.name} is no longer the model that you have seen: look again")
        accept(jobs.inbox, proposal)

    await to_thread(made)
    await to_thread(service.models.refresh)


def _job(job: Job) -> dict[str, Any]:
    facts = job.to_json()
    return facts | {"error": without_paths(facts["error"]), "preview": _preview(facts["preview"])}


def _preview(facts: dict[str, Any] | None) -> dict[str, Any] | None:
    """A preview with names as they were given, and messages without paths."""
    return None if facts is None else representable(facts | {"warnings": without_paths(facts["warnings"])})
