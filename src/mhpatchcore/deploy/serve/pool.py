"""How much a service takes on: threads that score, a bounded queue before them, and no answer lost at its end."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from math import ceil
from typing import TypeVar

from mhpatchcore.deploy.serve.refusals import Refused, busy, closing, deadline_passed, too_late
from mhpatchcore.errors import UserError
from mhpatchcore.runtime.parallel import available_cores

Out = TypeVar("Out")
MEMORY = 0.9  # of the running mean of seconds per work


@dataclass(frozen=True)
class Limits:
    """Of each request: bytes, of which less may be JSON, pixels and number of its images, seconds until its answer.

    `workers` images are scored at a time, each on one core, and `queue` further requests may wait; bodies that are
    still coming have at most `receiving_bytes` together. The last `kept_parts` parts stay in memory, as far as their
    images fit into `kept_bytes`.
    """

    max_bytes: int = 64_000_000
    max_json: int = 1_000_000
    max_pixels: int = 100_000_000
    max_images: int = 64
    workers: int = field(default_factory=available_cores)
    queue: int = 32
    timeout: float = 30.0
    receiving_bytes: int = 256_000_000
    kept_parts: int = 500
    kept_bytes: int = 200_000_000

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if not value > 0:
                raise UserError(f"{name.replace('_', '-')} must be more than 0, not {value}")


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
        return deadline_passed(1000 * self.seconds) if self.is_callers else too_late(self.seconds)


class Pool:
    """Each work runs on one of `workers` threads. All methods are called on the thread of the event loop.

    `quiet` is set while a core is free even if one more image comes: the time for what is less urgent.
    """

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._threads = ThreadPoolExecutor(limits.workers, thread_name_prefix="score")
        self._seconds = 0.05
        self._under_way = 0
        self._quiet = asyncio.Event()
        self._quiet.set()
        self.accepted = 0
        self.closing = False

    def check(self) -> None:
        """Refuse a request that there is no place for, before its body is read."""
        if self.closing:
            raise closing()
        if self.accepted >= self._limits.workers + self._limits.queue:
            raise busy(max(1, ceil(self.accepted * self._seconds / self._limits.workers)))

    @contextmanager
    def place(self) -> Iterator[None]:
        """A place for one request whose body is there: who sends slowly takes none."""
        self.check()
        self.accepted += 1
        try:
            yield
        finally:
            self.accepted -= 1

    async def run(self, work: Callable[[], Out], deadline: Deadline) -> tuple[Out, float]:
        """What the work gives, and the seconds that it has waited for a thread."""
        asked = time.perf_counter()

        def timed() -> tuple[Out, float, float]:
            started = time.perf_counter()
            return work(), started - asked, time.perf_counter() - started

        self._count(1)
        try:
            async with asyncio.timeout_at(deadline.at):
                out, waited, took = await asyncio.get_running_loop().run_in_executor(self._threads, timed)
        except TimeoutError:
            raise deadline.passed() from None
        finally:
            self._count(-1)
        self._seconds = MEMORY * self._seconds + (1 - MEMORY) * took
        return out, waited

    async def quiet(self, patience: float) -> None:
        """Wait for a moment with little to score, but no longer than `patience` seconds."""
        with suppress(TimeoutError):
            async with asyncio.timeout(patience):
                await self._quiet.wait()

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
