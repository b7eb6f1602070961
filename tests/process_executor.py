"""An executor of other processes: what it maps must be picklable, and no state of this process can help it."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from typing import TypeVar

from mhpatchcore.runtime.parallel import limit_blas

Item = TypeVar("Item")
Out = TypeVar("Out")


@dataclass(frozen=True)
class Processes:
    """The cores of this machine, one process each."""

    workers: int
    remote = False

    def map(self, task: Callable[[Item], Out], items: Iterable[Item]) -> Iterator[Out]:
        under_way: deque[Future[Out]] = deque()
        # forking a process whose threads hold locks may hang
        with ProcessPoolExecutor(self.workers, get_context("spawn"), limit_blas) as pool:
            try:
                for item in items:
                    under_way.append(pool.submit(task, item))
                    if len(under_way) > self.workers:
                        yield under_way.popleft().result()
                while under_way:
                    yield under_way.popleft().result()
            finally:
                for future in under_way:
                    future.cancel()

    def for_large_tasks(self) -> tuple[Processes, int]:
        return self, 1

    def check(self, *_: object) -> None: ...
