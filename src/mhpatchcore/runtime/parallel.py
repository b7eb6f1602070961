"""Work spread over threads so that results never depend on how many there are.

BLAS changes the last bits of a product with its number of threads. So each task runs BLAS on one thread, and
tasks (chunks of images, blocks of rows) have a fixed size; threads only decide when a task runs.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from functools import cache, lru_cache, partial
from threading import Lock
from typing import Any, Generic, TypeVar

Item = TypeVar("Item")
Out = TypeVar("Out")


def available_cores() -> int:
    """Cores this process may use (a container may allow fewer than the machine has)."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def ordered_map(
    function: Callable[[Item], Out], items: Iterable[Item], workers: int, ahead: int = 1
) -> Iterator[Out]:
    """Apply `function` on `workers` threads; results come in order, at most `workers + ahead` under way.

    >>> list(ordered_map(lambda x: x * x, range(5), workers=2))
    [0, 1, 4, 9, 16]
    """
    if workers <= 1:
        yield from map(function, items)
        return
    under_way: deque[Future[Out]] = deque()
    with ThreadPoolExecutor(workers) as pool:
        try:
            for item in items:
                under_way.append(pool.submit(function, item))
                if len(under_way) >= workers + ahead:
                    yield under_way.popleft().result()
            while under_way:
                yield under_way.popleft().result()
        finally:
            for future in under_way:
                future.cancel()


class ProcessState:
    """A state of the whole process, which blocks of code need: `with state(): …`.

    Blocks may overlap, in any order and on any threads: the first sets the state, the last to leave restores what was
    there before. `begin` sets it, and gives back what restores it.
    """

    def __init__(self, begin: Callable[[], Callable[[], Any]]) -> None:
        self._begin = begin
        self._lock, self._inside = Lock(), 0
        self._restore: Callable[[], Any] | None = None

    @contextmanager
    def __call__(self) -> Iterator[None]:
        with self._lock:
            if self._inside == 0:
                self._restore = self._begin()
            self._inside += 1
        try:
            yield
        finally:
            with self._lock:
                self._inside -= 1
                if self._inside == 0 and self._restore is not None:
                    self._restore()


def _limit_blas() -> Callable[[], Any]:
    """Limit all BLAS libraries that are loaded by now, numpy's at least."""
    import numpy  # noqa: F401
    from threadpoolctl import ThreadpoolController

    libraries = ThreadpoolController().select(user_api="blas").lib_controllers
    before = [library.get_num_threads() for library in libraries]

    def set_threads(numbers: Sequence[int]) -> None:
        for library, number in zip(libraries, numbers, strict=True):
            # newer versions let only the first thread that asks set limits, and ignore all others
            getattr(library, "_real_set_num_threads", library.set_num_threads)(number)

    set_threads([1] * len(libraries))
    return partial(set_threads, before)


# within such a block every BLAS call of the process uses one thread, so that its bits are the same everywhere
one_blas_thread = ProcessState(_limit_blas)


_for_life = ExitStack()


@cache
def limit_blas() -> None:
    """One thread for every BLAS call of this process, a worker's, from now on."""
    _for_life.enter_context(one_blas_thread())


@contextmanager
def late_blas_limited() -> Iterator[None]:
    """Within `one_blas_thread`, for a BLAS library that was loaded after it began, such as scikit-learn's."""
    restore = _limit_blas()
    try:
        yield
    finally:
        restore()


class Memoised(Generic[Out]):
    """A function that remembers its last few results; threads that ask together wait for one of them to make it.

    For what a process needs once: networks, sessions. `forget` lets go of them.

    >>> double = Memoised(lambda x: [x, x])
    >>> double(2) is double(2)
    True
    """

    def __init__(self, function: Callable[..., Out]) -> None:
        self._lock, self._remembered = Lock(), lru_cache(maxsize=8)(function)

    def __call__(self, *arguments: Any) -> Out:
        with self._lock:
            return self._remembered(*arguments)

    def forget(self) -> None:
        self._remembered.cache_clear()
