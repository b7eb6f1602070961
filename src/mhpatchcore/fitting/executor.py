"""Where tasks run: an executor maps a task over items and gives the results in order.

A task is a module-level function, or a `functools.partial` of one, of picklable values. It does not depend on where it
runs, so neither does the model: threads, processes and a cluster give the same bits.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cache
from multiprocessing import get_context
from typing import Protocol, TypeVar

from mhpatchcore.inputs.sources import ImageLike
from mhpatchcore.runtime.parallel import one_blas_thread, ordered_map
from mhpatchcore.runtime.store import Store

Item = TypeVar("Item")
Out = TypeVar("Out")


def silent(*_: object) -> None:
    """Nobody listens."""


class Executor(Protocol):
    """Something that maps a task over items; `workers` of them run at a time.

    One that is `remote` runs them where results are far away: a task then takes a whole run of chunks, and leaves in
    the store what it has made of them.
    """

    @property
    def workers(self) -> int: ...

    @property
    def remote(self) -> bool: ...

    def map(self, task: Callable[[Item], Out], items: Iterable[Item]) -> Iterator[Out]: ...

    def check(
        self, store: Store | None, image: ImageLike | None, warn: Callable[[str], None] = silent
    ) -> None:
        """Refuse workers that could not do their tasks, because they do not see the store or the image."""


class _ThisMachine:
    """Workers that see what this process sees."""

    remote = False

    def check(
        self, store: Store | None, image: ImageLike | None, warn: Callable[[str], None] = silent
    ) -> None: ...


@dataclass(frozen=True)
class Threads(_ThisMachine):
    """The cores of this machine, in this process."""

    workers: int

    def map(self, task: Callable[[Item], Out], items: Iterable[Item]) -> Iterator[Out]:
        return ordered_map(task, items, self.workers)


@dataclass(frozen=True)
class Processes(_ThisMachine):
    """The cores of this machine, one process each."""

    workers: int

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


@cache
def limit_blas() -> None:
    """Once, for the whole life of a worker process."""
    _for_life.enter_context(one_blas_thread())


_for_life = ExitStack()
