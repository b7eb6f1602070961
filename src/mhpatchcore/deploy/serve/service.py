"""A service as one value: models, threads, the last parts, counts. Routes ask it; it knows nothing of HTTP."""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import scipy.stats  # noqa: F401  # imported late elsewhere, and the first part on the line need not wait for that

from mhpatchcore.deploy.inbox.jobs import Jobs
from mhpatchcore.deploy.inbox.versions import recover
from mhpatchcore.deploy.record import Record
from mhpatchcore.deploy.serve.answers import model_answer, part_answer
from mhpatchcore.deploy.serve.bodies import SENT, Sent, check_pixels
from mhpatchcore.deploy.serve.metrics import Metrics
from mhpatchcore.deploy.serve.pool import Deadline, Lane, Limits, Pool
from mhpatchcore.deploy.serve.refusals import Refused, closing, failed
from mhpatchcore.deploy.serve.registry import Registry, Served, Swap
from mhpatchcore.errors import ImageError, ImageTooLargeError, UserError
from mhpatchcore.result import Result
from mhpatchcore.runtime.texts import without_paths

LAST = 12  # parts that a swapped model is tried on
FEW, WILD = 5, 1 / 3  # parts that say something, and the share of them whose verdict may change
BEHIND = 200  # events that a slow listener may be behind; older ones are dropped
log = logging.getLogger("mhpatchcore")


@dataclass(frozen=True, eq=False)
class Part:
    """A part: what was answered, the image, and the result; without one, `refused` says why.

    A part of an earlier run has neither, and its image only if that was kept. A part does not hold the model that
    judged it: models are large, and may be replaced more often than parts go.
    """

    answer: dict[str, Any]
    sent: Sent
    result: Result | None = None
    refused: Refused | None = None

    @property
    def id(self) -> str:
        return str(self.answer["id"])

    @property
    def model(self) -> str:
        """The name of the model."""
        return str(self.answer["model"])


class Parts:
    """The newest parts, bounded in number and bytes, and those who listen. All on the thread of the event loop."""

    def __init__(self, most: int, most_bytes: int) -> None:
        self._most, self._most_bytes = most, most_bytes
        self._by_id: dict[str, Part] = {}  # the oldest first
        self._bytes = 0
        self._listening: set[asyncio.Queue[str | None]] = set()
        self._closed = False

    def keep(self, part: Part) -> None:
        self._by_id[part.id] = part
        self._bytes += part.sent.size
        while len(self._by_id) > self._most or (self._bytes > self._most_bytes and len(self._by_id) > 1):
            oldest = next(iter(self._by_id))
            self._bytes -= self._by_id.pop(oldest).sent.size

    def __getitem__(self, id_: str) -> Part:
        if id_ not in self._by_id:
            raise Refused(404, "there is no such part among the last ones")
        return self._by_id[id_]

    def newest(self, limit: int, model: str | None, verdict: str | None) -> list[dict[str, Any]]:
        """What was answered, the newest first."""
        answers = (part.answer for part in reversed(self._by_id.values()))
        found = (
            one for one in answers if model in (None, one["model"]) and verdict in (None, one["verdict"])
        )
        return list(islice(found, limit))

    def last(self, model: str, n: int) -> list[Part]:
        """The newest scored parts of a model that have their image; any thread may ask."""
        found = (part for part in [*self._by_id.values()][::-1] if part.model == model)
        return list(islice((one for one in found if one.answer["score"] is not None and one.sent.size), n))

    def tell(self, kind: str, what: dict[str, Any]) -> None:
        """Send an event to all who listen."""
        self._put(f"event: {kind}\ndata: {json.dumps(what)}\n\n" if self._listening else "")

    def _put(self, event: str | None) -> None:
        for queue in self._listening:
            if queue.full():
                queue.get_nowait()
            queue.put_nowait(event)

    @contextmanager
    def listening(self) -> Iterator[asyncio.Queue[str | None]]:
        """Events from now on, as the stream has them; None says that there are no more."""
        if self._closed:
            raise closing()
        queue: asyncio.Queue[str | None] = asyncio.Queue(BEHIND)
        self._listening.add(queue)
        try:
            yield queue
        finally:
            self._listening.discard(queue)

    @property
    def listeners(self) -> int:
        return len(self._listening)

    def close(self) -> None:
        self._closed = True
        self._put(None)


class Service:
    """All that the routes need. What is asked for goes in, JSON or a part comes out."""

    def __init__(
        self,
        places: Iterable[str | Path],
        limits: Limits | None = None,
        token: str | None = None,
        record: Record | None = None,
        other_product: bool = False,
    ) -> None:
        """Load the models (files, or folders of them), and the last parts of the record."""
        self.limits, self.token, self.record = limits or Limits(), token, record
        self.models = Registry(places, other_product)
        self.pool = Pool(self.limits)
        self.lane = Lane(self.pool)
        self.metrics = Metrics()
        # half of the cores stays with the line while a change is made
        self.jobs = Jobs(self.models.inbox, max(1, self.limits.workers // 2))
        kept = self.limits.kept_parts, self.limits.kept_bytes
        self.parts = Parts(*kept)
        for answer, image in record.newest(*kept) if record else ():
            self.parts.keep(Part(answer, Sent(image or b"", answer["name"], answer["part"])))
        for served in self.models.served:
            self._write_down(served)
        self.models.compared = self._compared

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
            result, seconds = await self.pool.run(lambda: judged(served, sent, self.limits, asked), deadline)
        except Refused as refused:
            return await self.reject(served, sent, refused, trial, time.perf_counter() - asked)
        except Exception:
            log.exception("an image makes the service fail", extra={"model": served.name, "part": sent.part})
            return await self.reject(served, sent, failed(), trial, time.perf_counter() - asked)
        return self._added(
            served, Part(part_answer(sent, served, result, seconds, trial), sent, result), sent
        )

    async def reject(
        self, served: Served, sent: Sent, refused: Refused, trial: bool = False, waited: float = 0.0
    ) -> Part:
        """A part that could not be judged. Its image is not kept to be looked at: that might fail in turn."""
        await asyncio.to_thread(lambda: sent.sha256)
        seconds = {"queue": waited, "decode": 0.0, "compute": 0.0}
        answer = part_answer(sent, served, refused, seconds, trial)
        self.metrics.refused.labels(served.name, refused.reason).inc()
        return self._added(served, Part(answer, Sent(b"", sent.name, sent.part), refused=refused), sent)

    def _added(self, served: Served, part: Part, sent: Sent) -> Part:
        answer = part.answer
        self.metrics.add(served, part.result, answer["seconds"], answer["trial"])
        self.parts.keep(part)
        self.parts.tell("part", answer)
        if self.record is not None:
            self.record.add(answer, sent.content if isinstance(sent.content, bytes) else None)
        level = logging.WARNING if part.refused else logging.INFO if answer["is_rejected"] else logging.DEBUG
        about = {name: answer[name] for name in ("id", "part", "model", "score", "trial")}
        log.log(level, "%s: %s", answer["verdict"], answer["reason"] or answer["name"], extra=about)
        return part

    def facts(self, served: Served) -> dict[str, Any]:
        return model_answer(served, self.metrics.facts(served), self.models.problem(served.name))

    def _compared(self, served: Served) -> Swap | None:
        """What a model that has been swapped in makes of the last parts; None where there are none."""
        self._write_down(served)
        parts = self.parts.last(served.name, LAST)
        turned = sum(_verdict(part, served) != part.answer["verdict"] for part in parts)
        is_wild = len(parts) >= FEW and turned > WILD * len(parts)
        return Swap(len(parts), turned, is_wild) if parts else None

    def _write_down(self, served: Served) -> None:
        """Settle what a killed process has left, and record which model is in use; verdicts do not depend on it."""
        journal, detector = self.models.inbox.journal, served.detector
        try:
            recover(journal, served.path)
            journal.found(served.name, served.sha256, detector.threshold, detector.model.product)
        except UserError as error:
            log.warning("%s: %s", served.name, error)

    def close(self) -> None:
        """Take no more requests, and send away those who listen."""
        self.pool.closing = True
        self.parts.close()

    def end(self) -> None:
        """Wait for what is under way, and for the record."""
        self.jobs.close()
        self.lane.end()
        self.pool.end()
        if self.record is not None:
            self.record.close()


def judged(served: Served, sent: Sent, limits: Limits, asked: float) -> tuple[Result, dict[str, float]]:
    """The result of an image with its regions, and the seconds of each phase since it was asked for."""
    started = time.perf_counter()
    _ = sent.sha256
    try:
        if not sent.size:
            raise ImageError("the body is empty: send an image")
        check_pixels(sent, limits.max_pixels)
        image = served.detector.opened(sent.source)
        decoded = time.perf_counter()
        result = served.detector.score_opened(image)
        _ = result.regions  # they take a map, which is made here and not on the thread of the event loop
    except UserError as error:
        status = 413 if isinstance(error, ImageTooLargeError) else 422
        raise Refused(status, str(without_paths(str(error).replace(SENT, sent.name)))) from error
    computing = time.perf_counter() - decoded
    return result, {"queue": started - asked, "decode": decoded - started, "compute": computing}


def _verdict(part: Part, served: Served) -> str:
    try:
        return served.detector.score_opened(served.detector.opened(part.sent.source)).verdict
    except UserError:  # images that the other model could read
        return "not scored"
