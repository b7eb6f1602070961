"""Threads that score, a bounded queue before them, and no answer lost when the service ends."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from math import ceil
from typing import TypeVar

from mhpatchcore.deploy.serve.limits import Limits
from mhpatchcore.deploy.serve.refusals import busy, closing, too_late

Out = TypeVar("Out")
MEMORY = 0.9  # of the running mean of seconds per work


class Pool:
    """Each work runs on one of `workers` threads. All methods are called on the thread of the event loop."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._threads = ThreadPoolExecutor(limits.workers, thread_name_prefix="score")
        self._seconds = 0.05
        self.accepted = 0
        self.closing = False

    @contextmanager
    def place(self) -> Iterator[None]:
        """A place for one request, before its body is read: so what is in memory is bounded."""
        if self.closing:
            raise closing()
        if self.accepted >= self._limits.workers + self._limits.queue:
            raise busy(max(1, ceil(self.accepted * self._seconds / self._limits.workers)))
        self.accepted += 1
        try:
            yield
        finally:
            self.accepted -= 1

    async def run(self, work: Callable[[], Out]) -> tuple[Out, float]:
        """What the work gives, and the seconds that it has waited for a thread."""
        asked = time.perf_counter()

        def timed() -> tuple[Out, float, float]:
            started = time.perf_counter()
            return work(), started - asked, time.perf_counter() - started

        try:
            async with asyncio.timeout(self._limits.timeout):
                out, waited, took = await asyncio.get_running_loop().run_in_executor(self._threads, timed)
        except TimeoutError:
            raise too_late(self._limits.timeout) from None
        self._seconds = MEMORY * self._seconds + (1 - MEMORY) * took
        return out, waited

    def end(self) -> None:
        """Wait for what is under way."""
        self.closing = True
        self._threads.shutdown(wait=True)
