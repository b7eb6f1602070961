"""The shapes of bodies and answers for the OpenAPI document, where no class of the program has them already."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, TypeAdapter

from mhpatchcore.deploy.serve.registry import Swap

Verdict = Literal["passed", "rejected", "no threshold"]
DEADLINE = "Milliseconds from now, after which the answer is that the part is rejected, with this reason."


class Problem(BaseModel):
    """Why there is no result, in one sentence."""

    model_config = ConfigDict(json_schema_extra={"example": {"error": "the queue is full: try again"}})
    error: str


class RegionAnswer(BaseModel):
    """A place above the threshold: its box (top, left, bottom, right) in pixels, area, peak, and where that is.

    `name` is that of the known defect it looks like, or "unknown", and `sure` how sure that is, from 0 to 1.
    """

    box: list[int]
    area: int
    peak: float
    peak_at: list[int]
    name: str | None = None
    sure: float | None = None


class PartAnswer(BaseModel):
    """A part. `sha256` is that of the model file that judged it, `image_sha256` that of the image.

    One that could not be judged is rejected, has a `reason` and no score. A `trial` was only tried out.
    """

    id: str
    at: str
    part: str | None
    name: str
    model: str
    sha256: str
    image_sha256: str
    score: float | None
    threshold: float | None
    p_value: float | None
    verdict: Verdict
    is_rejected: bool | None
    defect: str | None = None
    is_like_known: bool | None = None
    reason: str | None
    trial: bool
    size: list[int] | None
    regions: list[RegionAnswer]
    camera: dict[str, float | None] | None
    seconds: dict[Literal["queue", "decode", "compute"], float]
    heatmap: str | None = None
    evidence: dict[str, Any] | None = None


EXAMPLE: Any = {
    "results": [
        {
            "id": "9f1c2b7a5d3e4f60",
            "at": "2026-11-17T08:30:00.125+00:00",
            "part": "SN-000417",
            "name": "000417.png",
            "model": "bottle",
            "sha256": "5be0…",
            "image_sha256": "a3f1…",
            "score": 41.7,
            "threshold": 30.8,
            "p_value": 0.0099,
            "verdict": "rejected",
            "is_rejected": True,
            "reason": None,
            "trial": False,
            "size": [900, 900],
            "regions": [{"box": [210, 388, 266, 455], "area": 2415, "peak": 44.2, "peak_at": [236, 420]}],
            "seconds": {"queue": 0.0004, "decode": 0.009, "compute": 0.041},
            "heatmap": "/v1/parts/9f1c2b7a5d3e4f60/heatmap.png",
        }
    ]
}


class ScoreAnswer(BaseModel):
    """The results of all images that were sent, in their order."""

    model_config = ConfigDict(json_schema_extra={"example": EXAMPLE})
    results: list[PartAnswer]


class RejectedAnswer(Problem):
    """Why an image could not be judged, and the part that is rejected for it."""

    results: list[PartAnswer] | None = None


class ModelAnswer(BaseModel):
    """A model in service."""

    model_config = ConfigDict(extra="allow")
    name: str
    file: str
    product: str
    sha256: str
    threshold: float | None
    false_alarm: float
    images_learnt: int
    rows: int
    network: str
    version: str | None
    loaded_at: str
    requests: int
    rejected: int
    unjudged: int
    trials: int
    observed_rate: float | None
    promised_rate: float | None
    alarm: bool
    drift: bool
    problem: str | None
    swap: Swap | None


BINARY: dict[str, Any] = {"schema": {"type": "string", "format": "binary"}}
IMAGES: dict[str, Any] = {
    "type": "object",
    "required": ["images"],
    "properties": {
        "images": {"type": "array", "items": {"type": "string", "format": "binary"}},
        "part": {"type": "array", "items": {"type": "string"}},
    },
}


def body(content: dict[str, Any]) -> dict[str, Any]:
    """A body for OpenAPI, by its media types."""
    return {"requestBody": {"required": True, "content": content}}


def json_body(kind: Any, *binary: str) -> dict[str, Any]:
    """A body of this class in JSON, or in one of these binary media types."""
    schema = _inline(TypeAdapter(kind).json_schema())
    return body({"application/json": {"schema": schema}} | dict.fromkeys(binary, BINARY))


def _inline(schema: dict[str, Any]) -> dict[str, Any]:
    """A schema with its inner classes in their places: references would lead to nothing in the whole document."""
    inner = schema.pop("$defs", {})

    def put(value: Any) -> Any:
        if isinstance(value, dict) and "$ref" in value:
            return put(inner[value["$ref"].rpartition("/")[2]])
        if isinstance(value, dict):
            return {name: put(one) for name, one in value.items()}
        return [put(one) for one in value] if isinstance(value, list) else value

    inlined: dict[str, Any] = put(schema)
    return inlined


SCORE_BODY = body(
    dict.fromkeys(("image/png", "image/jpeg", "application/octet-stream"), BINARY)
    | {"multipart/form-data": {"schema": IMAGES}}
)


def answers(model: Any, *statuses: int, status: int = 200) -> dict[int | str, dict[str, Any]]:
    """An answer of this shape, and those without a result, each with its sentence."""
    return {status: {"model": model}} | problems(*statuses)


def scored(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """A verdict; under other statuses there is often a part, too, which could not be judged."""
    return answers(ScoreAnswer) | {status: {"model": RejectedAnswer} for status in statuses}


def problems(*statuses: int) -> dict[int | str, dict[str, Any]]:
    return {status: {"model": Problem} for status in (401, *statuses)}
