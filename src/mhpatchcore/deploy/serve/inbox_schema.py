"""The shapes of the inbox's bodies and answers, for the OpenAPI document."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict

from mhpatchcore.deploy.serve.schema import BINARY, problems


class LabelledAnswer(BaseModel):
    """A labelled part: what the model said of it then, who says what about it, and whether it has been learnt since."""

    id: int
    model: str
    label: Literal["good", "defect"]
    part: str
    name: str
    sha256: str
    bytes: int
    score: float | None
    threshold: float | None
    p_value: float | None
    verdict: str
    model_sha256: str
    who: str
    at: str
    note: str
    learnt: bool


class StatementAnswer(BaseModel):
    """What somebody said of a part, and what the model had said of it; a label that is null took one back."""

    id: int
    label: Literal["good", "defect"] | None
    part: str
    name: str
    score: float | None
    threshold: float | None
    p_value: float | None
    verdict: str
    model_sha256: str
    who: str
    at: str
    note: str


class ProgressAnswer(BaseModel):
    phase: str
    done: int
    total: int


class PreviewAnswer(BaseModel):
    """What a change would do: to the threshold, and to every labelled part (`effects`).

    `lost` are defects that are caught now and would pass; `outliers` are parts that would be learnt although they score
    far above the threshold.
    """

    model_config = ConfigDict(extra="allow")
    action: Literal["learn", "teach", "recalibrate", "undo"]
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

    model_config = ConfigDict(extra="allow")
    id: str
    model: str
    action: Literal["learn", "teach", "recalibrate", "undo"]
    state: Literal["queued", "running", "ready", "accepting", "accepted", "discarded", "failed"]
    progress: ProgressAnswer
    error: str | None
    sha256: str | None
    preview: PreviewAnswer | None


class VersionAnswer(BaseModel):
    """A model file by its number, until when it was in use, and what was done to it last."""

    version: int
    sha256: str
    until: str
    product: str
    images: int
    false_alarm: float
    what: str
    who: str
    when: str
    note: str
    in_use: bool


class ChangeAnswer(BaseModel):
    """A model took the place of another. "found" is one that somebody has put there by hand."""

    id: int
    model: str
    what: str
    state: Literal["intended", "done", "not done", "unknown"]
    who: str
    at: str
    note: str
    sha256_before: str
    sha256_after: str
    threshold_before: float | None
    threshold_after: float | None
    product: str


class VersionsAnswer(BaseModel):
    versions: list[VersionAnswer]
    changes: list[ChangeAnswer]


def answers(kind: Any, *statuses: int, status: int = 200) -> dict[int | str, dict[str, Any]]:
    """What a route answers, and the statuses under which it does not."""
    return {status: {"model": kind}, **problems(*statuses)}


TEXT: dict[str, Any] = {"type": "string", "maxLength": 2000}
LABEL: dict[str, Any] = {"type": "string", "enum": ["good", "defect"]}


def _json(properties: dict[str, Any], required: tuple[str, ...] = ()) -> dict[str, Any]:
    schema = {"type": "object", "properties": properties, "required": list(required)}
    return {"application/json": {"schema": schema}}


def _body(content: dict[str, Any]) -> dict[str, Any]:
    return {"requestBody": {"required": True, "content": content}}


LABEL_BODY = _body(
    _json({"id": {"type": "string"}, "label": LABEL, "who": TEXT, "note": TEXT}, ("id", "label"))
    | {"image/png": BINARY, "image/jpeg": BINARY}
)
CORRECTION_BODY = _body(_json({"label": LABEL, "who": TEXT, "note": TEXT}))
VERSION: dict[str, Any] = {"type": "integer", "minimum": 1}
RATE: dict[str, Any] = {"type": "number", "exclusiveMinimum": 0, "maximum": 0.5}
SEEN: dict[str, Any] = {"type": "string", "description": "The sha256 of the model that you have seen."}
PREVIEW_BODY = _body(
    _json(
        {
            "action": {"type": "string", "enum": ["learn", "teach", "recalibrate", "undo"]},
            "ids": {"type": "array", "items": {"type": "integer"}},
            "false_alarm": RATE,
            "instead": {"type": "boolean"},
            "version": VERSION,
            "name": TEXT,
            "who": TEXT,
            "note": TEXT,
        },
        ("action",),
    )
)
UNDO_BODY = _body(_json({"version": VERSION, "instead_of": SEEN, "who": TEXT, "note": TEXT}))
THRESHOLD_BODY = _body(
    _json(
        {
            "false_alarm": RATE,
            "preview": {"type": "boolean"},
            "instead_of": SEEN,
            "who": TEXT,
            "note": TEXT,
        },
        ("false_alarm",),
    )
)
