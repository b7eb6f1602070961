"""The last parts, for anyone who wants to look at one, and a stream of them for anyone who wants to watch."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import islice
from typing import Any

from mhpatchcore.deploy.serve.bodies import Sent
from mhpatchcore.deploy.serve.refusals import Refused, closing, unknown
from mhpatchcore.result import Result

BEHIND = 200  # events that a slow listener may be behind; older ones are dropped


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

    def add(self, part: Part) -> None:
        """Keep a part, and tell it to those who listen."""
        self.keep(part)
        self.tell("part", part.answer)

    def keep(self, part: Part) -> None:
        self._by_id[part.id] = part
        self._bytes += part.sent.size
        while len(self._by_id) > self._most or (self._bytes > self._most_bytes and len(self._by_id) > 1):
            oldest = next(iter(self._by_id))
            self._bytes -= self._by_id.pop(oldest).sent.size

    def __getitem__(self, id_: str) -> Part:
        try:
            return self._by_id[id_]
        except KeyError:
            raise unknown("such part among the last ones") from None

    def newest(
        self, limit: int, model: str | None = None, verdict: str | None = None
    ) -> list[dict[str, Any]]:
        """What was answered, the newest first."""
        found = (
            part.answer
            for part in reversed(self._by_id.values())
            if model in (None, part.answer["model"]) and verdict in (None, part.answer["verdict"])
        )
        return list(islice(found, limit))

    def last(self, model: str, n: int) -> list[Part]:
        """The newest scored parts of a model that have their image; any thread may ask."""
        found = (part for part in [*self._by_id.values()][::-1] if part.model == model)
        return list(islice((one for one in found if one.answer["score"] is not None and one.sent.size), n))

    def tell(self, kind: str, what: dict[str, Any]) -> None:
        """Send an event to all who listen."""
        event = f"event: {kind}\ndata: {json.dumps(what)}\n\n" if self._listening else ""
        for queue in self._listening:
            _put(event, queue)

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
        for queue in self._listening:
            _put(None, queue)


def _put(event: str | None, queue: asyncio.Queue[str | None]) -> None:
    if queue.full():
        with suppress(asyncio.QueueEmpty):
            queue.get_nowait()
    queue.put_nowait(event)
