"""Work spread over threads so that results never depend on how many there are.

BLAS changes the last bits of a product with its number of threads. So each task runs BLAS on one thread, and
tasks (chunks of images, blocks of rows) have a fixed size; threads only decide when a task runs.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import TypeVar

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


@contextmanager
def one_blas_thread() -> Iterator[None]:
    """Within this block every BLAS call uses one thread, so that its bits are the same everywhere."""
    from threadpoolctl import threadpool_limits

    with threadpool_limits(limits=1, user_api="blas"):
        yield
