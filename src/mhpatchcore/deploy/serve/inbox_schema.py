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


class ProgressAnswer(BaseModel):
    phase: str
    done: int
    total: int


class JobAnswer(BaseModel):
    """A proposal: queued, running, ready, then accepted or discarded; or failed. Once ready it has a `preview`."""

    model_config = ConfigDict(extra="allow")
    id: str
    model: str
    action: Literal["learn", "recalibrate"]
    state: Literal["queued", "running", "ready", "accepted", "discarded", "failed"]
    progress: ProgressAnswer
    error: str | None
    sha256: str | None
    preview: dict[str, Any] | None


class VersionAnswer(BaseModel):
    """A model file that was in use until some time, and what was done to it last."""

    version: str
    sha256: str
    until: str
    images: int
    false_alarm: float
    what: str
    who: str
    when: str
    note: str
    in_use: bool


class ChangeAnswer(BaseModel):
    model: str
    what: str
    who: str
    at: str
    note: str
    sha256_before: str
    sha256_after: str


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
PREVIEW_BODY = _body(
    _json(
        {
            "action": {"type": "string", "enum": ["learn", "recalibrate"]},
            "ids": {"type": "array", "items": {"type": "integer"}},
            "false_alarm": {"type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 1},
            "instead": {"type": "boolean"},
            "who": TEXT,
            "note": TEXT,
        },
        ("action",),
    )
)
UNDO_BODY = _body(_json({"version": {"type": "string"}, "who": TEXT, "note": TEXT}))
