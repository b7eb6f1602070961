"""The shapes of what is answered, each with what makes it, and how the OpenAPI document tells them."""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import PurePath
from typing import Any, Literal

import numpy as np
from fastapi.responses import Response
from pydantic import BaseModel, ConfigDict, TypeAdapter
from pydantic_core import to_json

from mhpatchcore.calibration.threshold import Calibration
from mhpatchcore.deploy.record import in_utc
from mhpatchcore.deploy.serve.bodies import Sent
from mhpatchcore.deploy.serve.refusals import Refused
from mhpatchcore.deploy.serve.registry import Served, Swap
from mhpatchcore.result import Result, Verdict
from mhpatchcore.runtime.texts import representable, without_paths
from mhpatchcore.scoring.maps import Region

RATES = np.round(np.geomspace(0.002, 0.5, 60), 4)  # steps of the slider
DEADLINE = "Milliseconds from now, after which the answer is that the part is rejected, with this reason."


def reply(value: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """A value as JSON, dataclasses as objects; a number that is not finite is null."""
    return Response(to_json(value, inf_nan_mode="null"), status, headers, "application/json")


class Problem(BaseModel):
    """Why there is no result, in one sentence."""

    model_config = ConfigDict(json_schema_extra={"example": {"error": "the queue is full: try again"}})
    error: str


@dataclass(frozen=True)
class PartAnswer:
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
    trial: bool
    seconds: dict[Literal["queue", "decode", "compute"], float]
    threshold: float | None
    verdict: Verdict
    is_rejected: bool | None
    score: float | None = None
    p_value: float | None = None
    defect: str | None = None
    is_like_known: bool | None = None
    reason: str | None = None
    size: tuple[int, int] | None = None
    regions: list[Region] = field(default_factory=list)
    camera: dict[str, float | None] | None = None


def part_answer(
    sent: Sent, served: Served, outcome: Result | Refused, seconds: dict[str, float], trial: bool
) -> dict[str, Any]:
    """What is told of a part: its result, or why there is none, in which case it is rejected."""
    if isinstance(outcome, Refused):
        told: dict[str, Any] = {"verdict": "rejected", "is_rejected": True, "reason": outcome.message}
        told["threshold"] = served.detector.threshold
    else:
        told = outcome.to_dict() | {"size": outcome.size}
        del told["image"]
    answer = PartAnswer(
        id=secrets.token_hex(8),
        at=in_utc(datetime.now(UTC)),
        part=sent.part,
        name=sent.name,
        model=served.name,
        sha256=served.sha256,
        image_sha256=sent.sha256,
        trial=trial,
        seconds={name: round(value, 6) for name, value in seconds.items()},  # type: ignore[misc]
        **told,
    )
    return dict(representable(vars(answer)))


@dataclass(frozen=True)
class ScoredPart(PartAnswer):
    """A part, with the heatmap and the evidence that were asked for."""

    heatmap: str | None = None
    evidence: dict[str, Any] | None = None


REGION = {"box": [210, 388, 266, 455], "area": 2415, "peak": 44.2, "peak_at": [236, 420]}
EXAMPLE: Any = {
    "part": "SN-000417",
    "score": 41.7,
    "threshold": 30.8,
    "verdict": "rejected",
    "regions": [REGION],
}


class Images(BaseModel):
    """Images of parts, and the caller's ids for them, in their order."""

    images: list[bytes]
    part: list[str] = []


class ScoreAnswer(BaseModel):
    """The results of all images that were sent, in their order."""

    model_config = ConfigDict(json_schema_extra={"example": {"results": [EXAMPLE]}})
    results: list[ScoredPart]


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


def model_answer(served: Served, observed: dict[str, Any], problem: str | None) -> dict[str, Any]:
    """A model, and what it has seen in service."""
    model, calibration = served.detector.model, served.detector.calibration
    return _public(
        {
            "name": served.name,
            "file": served.path.name,
            "product": model.product,
            "sha256": served.sha256,
            "threshold": calibration.threshold,
            "false_alarm": calibration.false_alarm,
            "calibration_images": calibration.n,
            "scales": [
                {"size": str(size), "rows": len(scale.raw), "dimensions": scale.whitening.k}
                for size, scale in zip(model.config.sizes, model.scales, strict=True)
            ],
            "images_learnt": model.n_learnt,
            "rows": model.rows,
            "network": model.scales[0].backbone.info.name,
            "version": model.history[-1].version if model.history else None,
            "loaded_at": served.loaded_at,
            "problem": problem,
            "swap": served.swap and asdict(served.swap),
            **observed,
        }
    )


def model_details(served: Served) -> dict[str, Any]:
    """What is told of a model by itself, beside its facts; of the place of its images only the last name."""
    detector = served.detector
    history = [one.to_json() | {"source": PurePath(one.source).name} for one in detector.history]
    scores = sorted(map(float, detector.calibration.scores))
    return _public({"history": history, "calibration_scores": scores, "config": detector.config.to_json()})


def _public(facts: dict[str, Any]) -> dict[str, Any]:
    return dict(without_paths(representable(facts)))


@dataclass(frozen=True)
class Rate:
    """A rate of false alarms: its threshold, and the shares of calibration scores and of recent scores above it."""

    false_alarm: float
    threshold: float
    share: float
    recent_share: float | None


def rates(calibration: Calibration, recent: Sequence[float]) -> list[Rate]:
    """For a slider: rates, smallest first, with the threshold of each and the share of scores above it.

    >>> from mhpatchcore.calibration.threshold import calibrate
    >>> scores = np.arange(1, 10, dtype=np.float32)
    >>> rates(calibrate(scores, scores, 0.1, "held-out"), [5.5, 9.5])[-1]
    Rate(false_alarm=0.5, threshold=5.0, share=0.444..., recent_share=1.0)
    """

    def share_above(scores: Any, threshold: float) -> float:
        return float(np.mean(np.asarray(scores) > threshold))

    steps = [calibration.at_rate(float(rate)) for rate in RATES] if calibration.n else []
    return [
        Rate(
            step.false_alarm,
            step.threshold,
            share_above(calibration.scores, step.threshold),
            share_above(recent, step.threshold) if recent else None,
        )
        for step in steps
    ]


def taking(kind: Any, *binary: str, media: str = "application/json") -> dict[str, Any]:
    """What a route says of its body, of this class or in one of these binary media types, and of one it refuses."""
    files = {"schema": {"type": "string", "format": "binary"}}
    content = {media: {"schema": _schema(kind)}} | dict.fromkeys(binary, files)
    body = {"requestBody": {"required": True, "content": content}}
    return {"openapi_extra": body, "responses": problems(408, 413, 415, 429)}


def _schema(kind: Any) -> Any:
    """With inner classes in their places: references would lead to nothing in the whole document."""
    schema = TypeAdapter(kind).json_schema()
    inner = schema.pop("$defs", {})

    def inlined(value: Any) -> Any:
        if isinstance(value, dict) and "$ref" in value:
            return inlined(inner[value["$ref"].rpartition("/")[2]])
        if isinstance(value, dict):
            return {name: inlined(one) for name, one in value.items()}
        return [inlined(one) for one in value] if isinstance(value, list) else value

    return inlined(schema)


def problems(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """Answers without a result, each with its sentence."""
    return {status: {"model": Problem} for status in statuses}
