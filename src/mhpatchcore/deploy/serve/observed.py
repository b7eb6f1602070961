"""What a model has seen in service, against what it has promised.

Of the last n parts that a model has judged, k were rejected; p is the rate that its threshold promises for good parts.
So many rejects or more would come with the probability

    P(X ≥ k),  X ~ Binomial(n, p)

if all parts were good. Below ALARM that is told: there are defects, or the line has changed. The test is looked at
after every part, and not once: so the level is far below the usual 0.01.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Any

from mhpatchcore.deploy.serve.registry import Served
from mhpatchcore.inspection.drift import CameraDrift, Drift, camera_drift, compare
from mhpatchcore.result import Result

LAST = 1000  # parts
LAST_MEASURED = 50  # parts that tell how the camera sees them now: few, so that a change is told soon
ALARM = 1e-4


@dataclass
class Tally:
    """Of one model: parts since the start, and the scores of the last ones under its present file.

    Parts without a result are `unjudged`, and those that somebody only tries out are `trials`: neither says anything
    about the line.
    """

    parts: int = 0
    rejected: int = 0
    unjudged: int = 0
    trials: int = 0
    sha256: str = ""
    scores: deque[float] = field(default_factory=lambda: deque(maxlen=LAST))
    measures: deque[tuple[float, ...]] = field(default_factory=lambda: deque(maxlen=LAST_MEASURED))


class Observed:
    """A tally for each model. All on the thread of the event loop."""

    def __init__(self) -> None:
        self._tallies: dict[str, Tally] = {}

    def add(self, served: Served, result: Result | None, trial: bool) -> None:
        """Count a part; None is one without a result."""
        tally = self._tallies.setdefault(served.name, Tally())
        if trial or result is None:
            tally.trials += trial
            tally.unjudged += not trial
            return
        if tally.sha256 != served.sha256:
            tally.sha256 = served.sha256
            tally.scores.clear()
            tally.measures.clear()
        tally.parts += 1
        tally.rejected += result.is_rejected
        tally.scores.append(result.score)
        tally.measures.append(result.measures)

    def scores(self, served: Served) -> list[float]:
        """Of the last parts that this very file has judged."""
        tally = self._tallies.get(served.name)
        return list(tally.scores) if tally is not None and tally.sha256 == served.sha256 else []

    def drift(self, served: Served) -> Drift | None:
        """None where there is nothing to compare."""
        scores, calibration = self.scores(served), served.detector.calibration
        return compare(scores, calibration) if scores and calibration.n else None

    def camera(self, served: Served) -> CameraDrift:
        """How the camera saw the last parts, against how it saw the learnt ones; looked at after every part."""
        tally = self._tallies.get(served.name)
        recent = tally.measures if tally is not None and tally.sha256 == served.sha256 else ()
        return camera_drift(list(recent), served.detector.model.measures, ALARM)

    def facts(self, served: Served) -> dict[str, Any]:
        """Counts since the start, and the rates of the last parts."""
        tally = self._tallies.get(served.name, Tally())
        drift, calibration = self.drift(served), served.detector.calibration
        return {
            "requests": tally.parts,
            "rejected": tally.rejected,
            "unjudged": tally.unjudged,
            "trials": tally.trials,
            "observed_parts": len(self.scores(served)),
            "observed_rate": None if drift is None else drift.reject_rate,
            "promised_rate": calibration.expected_rate if calibration.n else None,
            "rejects_p": None if drift is None else drift.rejects_p,
            "alarm": drift is not None and drift.rejects_p < ALARM,
            "drift": drift is not None and drift.is_drift,
            "camera_drift": self.camera(served).is_drift,
        }
