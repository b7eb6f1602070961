"""What is answered, as JSON takes it: pure functions of models and results."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import PurePath
from typing import Any

import numpy as np

from mhpatchcore.calibration.threshold import Calibration
from mhpatchcore.deploy.record import in_utc
from mhpatchcore.deploy.serve.bodies import Sent
from mhpatchcore.deploy.serve.refusals import Refused
from mhpatchcore.deploy.serve.registry import Served
from mhpatchcore.model.history import Event
from mhpatchcore.result import Result
from mhpatchcore.runtime.texts import representable, without_paths

RATES = np.round(np.geomspace(0.002, 0.5, 60), 4)  # steps of the slider


def model_facts(served: Served, observed: dict[str, Any], problem: str | None) -> dict[str, Any]:
    """What a list of models tells of one."""
    model, calibration = served.detector.model, served.detector.calibration
    facts = {
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
    }
    return _public(facts | observed)


def model_details(served: Served) -> dict[str, Any]:
    """What is told of a model by itself, beside its facts."""
    detector = served.detector
    return _public(
        {
            "history": [event_facts(event) for event in detector.history],
            "calibration_scores": sorted(map(float, detector.calibration.scores)),
            "config": detector.config.to_json(),
        }
    )


def event_facts(event: Event) -> dict[str, Any]:
    """A step of a model's life; of the place of its images only the last name."""
    return event.to_json() | {"source": PurePath(event.source).name}


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
    found = []
    for step in (calibration.at_rate(float(rate)) for rate in RATES if calibration.n):
        of_calibration = float(np.mean(calibration.scores > step.threshold))
        of_recent = float(np.mean(np.asarray(recent) > step.threshold)) if recent else None
        found.append(Rate(step.false_alarm, step.threshold, of_calibration, of_recent))
    return found


def part_answer(
    sent: Sent,
    served: Served,
    outcome: Result | Refused,
    seconds: dict[str, float],
    trial: bool,
) -> dict[str, Any]:
    """What is told of a part: its result, or why there is none, in which case it is rejected.

    `sha256` is that of the model file that judged it, `image_sha256` that of the image.
    """
    told = _unjudged(served, outcome) if isinstance(outcome, Refused) else _judged(outcome)
    answer: dict[str, Any] = representable(
        {
            "id": secrets.token_hex(8),
            "at": in_utc(datetime.now(UTC)),
            "part": sent.part,
            "name": sent.name,
            "model": served.name,
            "sha256": served.sha256,
            "image_sha256": sent.sha256,
            **told,
            "seconds": {name: round(value, 6) for name, value in seconds.items()},
            "trial": trial,
        }
    )
    return answer


def _judged(result: Result) -> dict[str, Any]:
    told = result.to_dict()
    del told["image"]
    return {**told, "reason": None, "size": result.size}


def _unjudged(served: Served, refused: Refused) -> dict[str, Any]:
    return {
        "score": None,
        "threshold": served.detector.threshold,
        "verdict": "rejected",
        "is_rejected": True,
        "p_value": None,
        "defect": None,
        "is_like_known": None,
        "regions": [],
        "camera": None,
        "reason": refused.message,
        "size": None,
    }


def _public(facts: dict[str, Any]) -> dict[str, Any]:
    public: dict[str, Any] = without_paths(representable(facts))
    return public
