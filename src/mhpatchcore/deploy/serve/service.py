"""A service as one value: models, threads, the last parts, counts. Routes ask it; it knows nothing of HTTP."""

from __future__ import annotations

import asyncio
import hmac
import secrets
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import scipy.ndimage  # these two are imported late elsewhere, and the first part on the line need not wait for that
import scipy.stats  # noqa: F401

from mhpatchcore.deploy.serve.answers import broken_answer, model_facts, part_answer
from mhpatchcore.deploy.serve.images import Sent, readable
from mhpatchcore.deploy.serve.limits import Limits
from mhpatchcore.deploy.serve.metrics import Metrics
from mhpatchcore.deploy.serve.observed import Observed
from mhpatchcore.deploy.serve.parts import Part, Parts
from mhpatchcore.deploy.serve.pool import Pool
from mhpatchcore.deploy.serve.refusals import Refused, not_allowed
from mhpatchcore.deploy.serve.registry import Registry, Served
from mhpatchcore.result import Result


@dataclass(frozen=True, eq=False)
class Service:
    """All that the routes need. What is asked for goes in, JSON or a part comes out."""

    models: Registry
    limits: Limits
    token: str | None
    pool: Pool
    parts: Parts
    observed: Observed
    metrics: Metrics

    @staticmethod
    def of(
        places: Iterable[str | Path],
        limits: Limits | None = None,
        token: str | None = None,
        other_product: bool = False,
    ) -> Service:
        """Load the models (files, or folders of them)."""
        limits = limits or Limits()
        parts = Parts(limits.kept_parts, limits.kept_bytes)
        models, observed = Registry(places, other_product), Observed()
        return Service(models, limits, token, Pool(limits), parts, observed, Metrics())

    async def score(self, name: str, images: Sequence[Sent]) -> list[Part | Refused]:
        """Score images side by side; all of them meet the model that is served now, whatever happens meanwhile."""
        served = self.models[name]
        return list(await asyncio.gather(*(self._score_one(served, sent) for sent in images)))

    async def _score_one(self, served: Served, sent: Sent) -> Part | Refused:
        try:
            (result, decoding, computing), waited = await self.pool.run(
                lambda: judged(served, sent, self.limits)
            )
        except Refused as refused:
            return refused
        seconds = {"queue": waited, "decode": decoding, "compute": computing}
        id_, at = secrets.token_hex(8), datetime.now(UTC).isoformat(timespec="milliseconds")
        answer = part_answer(id_, at, sent, served, result, seconds)
        part = Part(answer, sent, result)
        self.observed.add(served, result)
        self.metrics.scored(served.name, result.verdict, seconds)
        self.parts.add(part)
        return part

    def facts(self, served: Served) -> dict[str, Any]:
        return model_facts(served, self.observed.facts(served), self.models.problem(served.name))

    def count_refused(self, name: str, refused: Refused) -> None:
        """Under the name of a model that there is: others may ask for anything."""
        known = any(served.name == name for served in self.models.served)
        self.metrics.refused(name if known else "", refused.reason)

    def check_token(self, given: str | None) -> None:
        """Refuse who does not know the token; how long that takes says nothing about it."""
        if self.token is not None and not hmac.compare_digest((given or "").encode(), self.token.encode()):
            raise not_allowed()

    def close(self) -> None:
        """No more requests from now on; what was accepted is answered, and streams end."""
        self.pool.closing = True
        self.parts.close()


def judged(served: Served, sent: Sent, limits: Limits) -> tuple[Result, float, float]:
    """The result of an image with its regions, and the seconds of decoding and of computing."""
    started = time.perf_counter()
    with readable(sent, limits.max_pixels) as source:
        image = served.detector.opened(source)
        decoded = time.perf_counter()
        result = served.detector.score_opened(image)
        _ = result.regions  # they take a map, which is made here and not on the thread of the event loop
    return result, decoded - started, time.perf_counter() - decoded


def answered(outcome: Part | Refused, sent: Sent, served: Served) -> dict[str, Any]:
    """What is told of one image among many."""
    return broken_answer(sent, served, outcome.message) if isinstance(outcome, Refused) else outcome.answer
