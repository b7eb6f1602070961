"""A service as one value: models, threads, the last parts, counts. Routes ask it; it knows nothing of HTTP."""

from __future__ import annotations

import asyncio
import hmac
import logging
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import scipy.ndimage  # these two are imported late elsewhere, and the first part on the line need not wait for that
import scipy.stats  # noqa: F401

from mhpatchcore.deploy.inbox.versions import recover
from mhpatchcore.deploy.record import Record
from mhpatchcore.deploy.serve.answers import model_facts, part_answer
from mhpatchcore.deploy.serve.bodies import Receiving, Sent, as_source, readable
from mhpatchcore.deploy.serve.metrics import Metrics, Observed
from mhpatchcore.deploy.serve.parts import Part, Parts
from mhpatchcore.deploy.serve.pool import Deadline, Lane, Limits, Pool
from mhpatchcore.deploy.serve.refusals import Refused, failed
from mhpatchcore.deploy.serve.registry import Registry, Served, Swap
from mhpatchcore.errors import UserError
from mhpatchcore.result import Result

LAST = 12  # parts that a swapped model is tried on
log = logging.getLogger("mhpatchcore")


@dataclass(frozen=True, eq=False)
class Service:
    """All that the routes need. What is asked for goes in, JSON or a part comes out."""

    models: Registry
    limits: Limits
    token: str | None
    record: Record | None
    pool: Pool
    lane: Lane
    parts: Parts
    receiving: Receiving
    observed: Observed
    metrics: Metrics

    @staticmethod
    def of(
        places: Iterable[str | Path],
        limits: Limits | None = None,
        token: str | None = None,
        record: Record | None = None,
        other_product: bool = False,
    ) -> Service:
        """Load the models (files, or folders of them), and the last parts of the record."""
        limits = limits or Limits()
        models, pool = Registry(places, other_product), Pool(limits)
        parts, receiving = Parts(limits.kept_parts, limits.kept_bytes), Receiving(limits.receiving_bytes)
        for answer, image in record.newest(limits.kept_parts, limits.kept_bytes) if record else ():
            parts.keep(Part(answer, Sent(image or b"", answer["name"], answer["part"])))
        lane, observed = Lane(pool), Observed()
        service = Service(models, limits, token, record, pool, lane, parts, receiving, observed, Metrics())
        for served in models.served:
            service._write_down(served)
        models.compared = service._compared
        return service

    async def score(
        self, name: str, images: Sequence[Sent], *, deadline: Deadline | None = None, trial: bool = False
    ) -> list[Part]:
        """Score images side by side; all of them meet the model that is served now, whatever happens meanwhile.

        A part without a result is rejected. What somebody only tries out (`trial`) does not count as production.
        """
        served, deadline = self.models[name], deadline or Deadline.of(self.limits)
        return await asyncio.gather(*(self._score_one(served, sent, deadline, trial) for sent in images))

    async def _score_one(self, served: Served, sent: Sent, deadline: Deadline, trial: bool) -> Part:
        asked = time.perf_counter()
        try:
            (result, decoding, computing), waited = await self.pool.run(
                lambda: judged(served, sent, self.limits), deadline
            )
        except Refused as refused:
            return await self.reject(served, sent, refused, trial, time.perf_counter() - asked)
        except Exception:
            log.exception("an image makes the service fail", extra={"model": served.name, "part": sent.part})
            return await self.reject(served, sent, failed(), trial, time.perf_counter() - asked)
        seconds = {"queue": waited, "decode": decoding, "compute": computing}
        part = Part(part_answer(sent, served, result, seconds, trial), sent, result)
        if not trial:
            self.metrics.scored(served.name, result.verdict, seconds)
        return self._added(served, part, sent)

    async def reject(
        self, served: Served, sent: Sent, refused: Refused, trial: bool = False, waited: float = 0.0
    ) -> Part:
        """A part that could not be judged. Its image is not kept to be looked at: that might fail in turn."""
        await asyncio.to_thread(lambda: sent.sha256)
        seconds = {"queue": waited, "decode": 0.0, "compute": 0.0}
        answer = part_answer(sent, served, refused, seconds, trial)
        self.metrics.refused(served.name, refused.reason)
        return self._added(served, Part(answer, Sent(b"", sent.name, sent.part), refused=refused), sent)

    def _added(self, served: Served, part: Part, sent: Sent) -> Part:
        answer = part.answer
        self.observed.add(served, part.result, answer["trial"])
        self.parts.add(part)
        if self.record is not None:
            self.record.add(answer, sent.content if isinstance(sent.content, bytes) else None)
        level = logging.WARNING if part.refused else logging.INFO if answer["is_rejected"] else logging.DEBUG
        about = {name: answer[name] for name in ("id", "part", "model", "score", "trial")}
        log.log(level, "%s: %s", answer["verdict"], answer["reason"] or answer["name"], extra=about)
        return part

    def facts(self, served: Served) -> dict[str, Any]:
        return model_facts(served, self.observed.facts(served), self.models.problem(served.name))

    def count_refused(self, name: str, refused: Refused) -> None:
        """Under the name of a model that there is: others may ask for anything."""
        known = any(served.name == name for served in self.models.served)
        self.metrics.refused(name if known else "", refused.reason)

    def knows(self, token: str | None) -> bool:
        """Whether somebody may ask; how long that takes says nothing about the token."""
        return self.token is None or hmac.compare_digest((token or "").encode(), self.token.encode())

    def _compared(self, served: Served) -> Swap | None:
        """What a model that has been swapped in makes of the last parts; None where there are none."""
        self._write_down(served)
        parts = self.parts.last(served.name, LAST)
        turned = sum(_verdict(part, served) != part.answer["verdict"] for part in parts)
        return Swap.of(len(parts), turned) if parts else None

    def _write_down(self, served: Served) -> None:
        """Settle what a killed process has left, and record which model is in use; verdicts do not depend on it."""
        journal, detector = self.models.inbox.journal, served.detector
        try:
            recover(journal, served.path)
            journal.found(served.name, served.sha256, detector.threshold, detector.model.product)
        except UserError as error:
            log.warning("%s: %s", served.name, error)

    def close(self) -> None:
        """No more requests from now on; what was accepted is answered, and streams end."""
        self.pool.closing = True
        self.parts.close()

    def end(self) -> None:
        """Wait for what is under way, and for the record."""
        self.lane.end()
        self.pool.end()
        if self.record is not None:
            self.record.close()


def judged(served: Served, sent: Sent, limits: Limits) -> tuple[Result, float, float]:
    """The result of an image with its regions, and the seconds of decoding and of computing."""
    started = time.perf_counter()
    _ = sent.sha256
    with readable(sent, limits.max_pixels) as source:
        image = served.detector.opened(source)
        decoded = time.perf_counter()
        result = served.detector.score_opened(image)
        _ = result.regions  # they take a map, which is made here and not on the thread of the event loop
    return result, decoded - started, time.perf_counter() - decoded


def _verdict(part: Part, served: Served) -> str:
    try:
        with as_source(part.sent.content) as source:
            return served.detector.score_opened(served.detector.opened(source)).verdict
    except UserError:  # images that the other model could read
        return "not scored"
