"""What a model has seen in service, against what it has promised.

Of the last n parts that a model has judged, k were rejected; p is the rate that its threshold promises for good parts.
So many rejects or more would come with the probability

    P(X ≥ k),  X ~ Binomial(n, p)

if all parts were good. Below ALARM that is told: there are defects, or the line has changed. The test is looked at
after every part, and not once: so the level is far below the usual 0.01.

For Prometheus it is counted and timed; what is known elsewhere is asked for when it is scraped.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector, generate_latest

from mhpatchcore.deploy.record import Record
from mhpatchcore.deploy.serve.registry import Served
from mhpatchcore.inspection.drift import CameraDrift, Drift, camera_drift, compare
from mhpatchcore.result import Result

LAST = 1000  # parts
LAST_MEASURED = 50  # parts that tell how the camera sees them now: few, so that a change is told soon
ALARM = 1e-4
SECONDS = (0.005, 0.01, 0.02, 0.03, 0.05, 0.075, 0.1, 0.15, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
PHASES = {
    "queue": "Waiting for a thread",
    "decode": "Decoding the image",
    "compute": "Network, search and map",
}
GAUGES = {
    "observed_rate": "Share of the last parts that were rejected",
    "promised_rate": "Share of good parts that the threshold promises to reject",
    "rejects_p": "Probability of so many rejects or more if all parts were good (binomial)",
    "alarm": "1 if there are more rejects than the threshold promises (rejects_p < 0.0001)",
    "drift": "1 if the scores of the last parts are not those of the calibration",
    "camera_drift": "1 if the last images are not as those that were learnt (light, focus, colour, place)",
    "problem": "1 if the model's file as it is now cannot be served",
}
RECORD = {
    "record_waiting": "Verdicts that are not yet written",
    "record_lost": "Verdicts that could not be written",
    "record_problem": "1 if verdicts cannot be written now",
}


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


class Metrics:
    """Written on the thread of the event loop alone, read on any; what is read are copies of what is kept.

    With a registry of its own, as several services can live in one process.
    """

    def __init__(self) -> None:
        self._tallies: dict[str, Tally] = {}
        self._registry = CollectorRegistry()
        ProcessCollector(registry=self._registry)
        known: dict[str, Any] = {"namespace": "mhpatchcore", "registry": self._registry}
        self.requests = Counter("requests", "Answers, by status", ["route", "status"], **known)
        self._parts = Counter("parts", "Parts that were scored", ["model", "verdict"], **known)
        self.refused = Counter("refused", "What was not scored, by reason", ["model", "reason"], **known)
        self._seconds = {
            phase: Histogram(f"{phase}_seconds", told, ["model"], buckets=SECONDS, **known)
            for phase, told in PHASES.items()
        }
        self.swaps = Counter("swaps", "Models put in place of others", ["model"], **known)
        self._models = {name: Gauge(name, told, ["model"], **known) for name, told in GAUGES.items()}
        info = "1 for every model in service, with the hash of its file"
        self._info = Gauge("model_info", info, ["model", "sha256"], **known)
        self._accepted = Gauge("accepted_requests", "Requests that wait for their answer", **known)
        self._record = {name: Gauge(name, told, **known) for name, told in RECORD.items()}

    def add(self, served: Served, result: Result | None, seconds: dict[str, float], trial: bool) -> None:
        """Count a part; None is one without a result."""
        tally = self._tallies.setdefault(served.name, Tally())
        if trial or result is None:
            tally.trials += trial
            tally.unjudged += not trial
            return
        self._parts.labels(served.name, result.verdict).inc()
        for phase, histogram in self._seconds.items():
            histogram.labels(served.name).observe(seconds[phase])
        if tally.sha256 != served.sha256:
            tally.sha256 = served.sha256
            tally.scores.clear()
            tally.measures.clear()
        tally.parts += 1
        tally.rejected += result.is_rejected
        tally.scores.append(result.score)
        tally.measures.append(result.measures)

    def _tally(self, served: Served) -> Tally:
        """Without scores and measures where another file has judged them."""
        tally = self._tallies.get(served.name, Tally())
        if tally.sha256 == served.sha256:
            return tally
        return Tally(tally.parts, tally.rejected, tally.unjudged, tally.trials)

    def scores(self, served: Served) -> list[float]:
        """Of the last parts that this very file has judged."""
        return list(self._tally(served).scores)

    def drift(self, served: Served) -> Drift | None:
        """None where there is nothing to compare."""
        scores, calibration = self.scores(served), served.detector.calibration
        return compare(scores, calibration) if scores and calibration.n else None

    def camera(self, served: Served) -> CameraDrift:
        """How the camera saw the last parts, against how it saw the learnt ones; looked at after every part."""
        recent = list(self._tally(served).measures)
        return camera_drift(recent, served.detector.model.measures, ALARM)

    def facts(self, served: Served) -> dict[str, Any]:
        """Counts since the start, and the rates of the last parts."""
        tally, drift, calibration = self._tally(served), self.drift(served), served.detector.calibration
        return {
            "requests": tally.parts,
            "rejected": tally.rejected,
            "unjudged": tally.unjudged,
            "trials": tally.trials,
            "observed_parts": len(tally.scores),
            "observed_rate": None if drift is None else drift.reject_rate,
            "promised_rate": calibration.expected_rate if calibration.n else None,
            "rejects_p": None if drift is None else drift.rejects_p,
            "alarm": drift is not None and drift.rejects_p < ALARM,
            "drift": drift is not None and drift.is_drift,
            "camera_drift": self.camera(served).is_drift,
        }

    def text(self, models: Iterable[dict[str, Any]], accepted: int, record: Record | None) -> bytes:
        """All of it in Prometheus' format; models are told by their facts."""
        self._info.clear()  # of hashes of models that were replaced
        for facts in models:
            self._info.labels(facts["name"], facts["sha256"]).set(1)
            told = facts | {"problem": facts["problem"] is not None}
            for name, gauge in self._models.items():
                gauge.labels(facts["name"]).set(float("nan") if told[name] is None else told[name])
        self._accepted.set(accepted)
        if record is not None:
            for name, value in zip(RECORD, (record.waiting, record.lost, bool(record.problem)), strict=True):
                self._record[name].set(value)
        return bytes(generate_latest(self._registry))
