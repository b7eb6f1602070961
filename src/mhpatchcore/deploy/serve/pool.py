"""Threads of a service: those that score, behind a bounded queue, and one that draws and must not delay them.

The drawing thread begins a picture when few parts are being scored, or when it has waited for that long enough. Every
picture is made once, however many ask for it, and kept for those who ask later. What nobody waits for any more is not
begun.
"""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from math import ceil
from typing import TypeVar

from mhpatchcore.deploy.serve.refusals import Refused, busy, closing
from mhpatchcore.runtime.system import available_cores

Out = TypeVar("Out")
MEMORY = 0.9  # of the running mean of seconds that a work takes, with its waiting
PATIENCE = 1.0  # seconds that a picture waits for a quiet moment
COMING = 4  # bodies of the largest size that may come at a time
MOST_WAITING = 200
MOST_BYTES = 100_000_000  # of pictures that are kept
Key = tuple[object, ...]


@dataclass(frozen=True)
class Limits:
    """Of each request: bytes, of which less may be JSON, pixels and number of its images, seconds until its answer.

    `workers` images are scored at a time, each on one core, and `queue` further requests may wait. The last
    `kept_parts` parts stay in memory, as far as their images fit into `kept_bytes`.
    """

    max_bytes: int = 64_000_000
    max_json: int = 1_000_000
    max_pixels: int = 100_000_000
    max_images: int = 64
    workers: int = field(default_factory=available_cores)
    queue: int = 32
    timeout: float = 30.0
    kept_parts: int = 500
    kept_bytes: int = 200_000_000


@dataclass(frozen=True)
class Deadline:
    """Until when a result is wanted, on the clock of the event loop: the caller's time, or else that of the service."""

    at: float
    seconds: float
    is_callers: bool

    @staticmethod
    def of(limits: Limits, milliseconds: float | None = None) -> Deadline:
        """From now on."""
        seconds = limits.timeout if milliseconds is None else min(milliseconds / 1000, limits.timeout)
        return Deadline(asyncio.get_running_loop().time() + seconds, seconds, milliseconds is not None)

    def passed(self) -> Refused:
        if self.is_callers:
            told = f"there was no result within {1000 * self.seconds:g} ms, the caller's deadline"
            return Refused(200, told, "deadline")
        told = f"there was no result within {self.seconds:g} seconds: try again"
        return Refused(503, told, "timeout", {"Retry-After": "1"})


class Pool:
    """Each work runs on one of `workers` threads. All methods are called on the thread of the event loop."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._threads = ThreadPoolExecutor(limits.workers, thread_name_prefix="score")
        self._seconds = 0.05
        self._under_way = 0
        self._quiet = asyncio.Event()  # a core is free even if one more image comes
        self._quiet.set()
        self.bytes_left = COMING * limits.max_bytes  # for bodies that are coming
        self.accepted = 0
        self.closing = False

    def check(self) -> None:
        """Refuse a request that there is no place for, before its body is read."""
        if self.closing:
            raise closing()
        if self.accepted >= self._limits.workers + self._limits.queue:
            raise busy(ceil(self._seconds))

    @contextmanager
    def place(self) -> Iterator[None]:
        """A place for one request whose body is there: a slow sender takes none."""
        self.check()
        self.accepted += 1
        try:
            yield
        finally:
            self.accepted -= 1

    async def run(self, work: Callable[[], Out], deadline: Deadline) -> Out:
        """What the work gives."""
        asked = time.perf_counter()
        self._count(1)
        try:
            async with asyncio.timeout_at(deadline.at):
                return await asyncio.get_running_loop().run_in_executor(self._threads, work)
        except TimeoutError:
            raise deadline.passed() from None
        finally:
            self._count(-1)
            took = time.perf_counter() - asked
            self._seconds = MEMORY * self._seconds + (1 - MEMORY) * took

    async def quiet(self) -> None:
        """Wait for a moment with little to score, but not for ever."""
        with suppress(TimeoutError):
            await asyncio.wait_for(self._quiet.wait(), PATIENCE)

    def _count(self, change: int) -> None:
        self._under_way += change
        if self._under_way < max(1, self._limits.workers - 1):
            self._quiet.set()
        else:
            self._quiet.clear()

    def end(self) -> None:
        """Wait for what is under way."""
        self.closing = True
        self._threads.shutdown(wait=True)


@dataclass(eq=False)
class Wanted:
    """A picture that is to be made; those of a lower rank come first, and the latest of them."""

    rank: int
    make: Callable[[], bytes]
    done: asyncio.Future[bytes] = field(default_factory=lambda: asyncio.get_running_loop().create_future())
    waiting: int = 0
    begun: bool = False


class Lane:
    """All methods are called on the thread of the event loop."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="draw")
        self._wanted: dict[Key, Wanted] = {}  # the oldest first
        self._made: OrderedDict[Key, bytes] = OrderedDict()  # what was asked for last is at the end
        self._bytes = 0
        self._working: asyncio.Task[None] | None = None

    async def get(self, key: Key, rank: int, make: Callable[[], bytes]) -> bytes:
        """What `make` gives, on the lane's thread, or gave when it was asked for this key before."""
        if key in self._made:
            self._made.move_to_end(key)
            return self._made[key]
        wanted = self._wanted.get(key)
        if wanted is None:
            if len(self._wanted) >= MOST_WAITING:
                raise busy(1)
            wanted = self._wanted[key] = Wanted(rank, make)
        if self._working is None:
            self._working = asyncio.create_task(self._work())
        wanted.waiting += 1
        try:
            return await asyncio.shield(wanted.done)
        finally:
            wanted.waiting -= 1
            if not (wanted.waiting or wanted.begun):
                del self._wanted[key]

    def known(self, key: Key) -> bytes | None:
        """A picture that is there; from any thread."""
        return self._made.get(key)

    async def _work(self) -> None:
        while self._wanted:
            await self._pool.quiet()
            if self._wanted:
                await self._draw(*min(reversed(self._wanted.items()), key=lambda item: item[1].rank))
        self._working = None

    async def _draw(self, key: Key, wanted: Wanted) -> None:
        wanted.begun = True
        try:
            if self._pool.closing:
                raise closing()
            picture = await asyncio.get_running_loop().run_in_executor(self._thread, wanted.make)
        except Exception as error:
            if wanted.waiting:
                wanted.done.set_exception(error)
        else:
            wanted.done.set_result(picture)
            self._made[key] = picture
            self._bytes += len(picture)
            while self._bytes > MOST_BYTES:
                self._bytes -= len(self._made.popitem(last=False)[1])
        finally:
            del self._wanted[key]

    def end(self) -> None:
        self._thread.shutdown(wait=True, cancel_futures=True)
