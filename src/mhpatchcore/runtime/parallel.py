"""Work spread over threads so that results never depend on how many there are, and the memory that it leaves behind.

BLAS changes the last bits of a product with its number of threads. So each task runs BLAS on one thread, tasks (chunks
of images, blocks of rows) have a fixed size, and results are reduced by trees of a fixed shape: the same items in the
same order give the same bits, wherever each part is computed. Threads only decide when a task runs.
"""

from __future__ import annotations

import ctypes
import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from functools import cache, lru_cache, partial
from itertools import repeat
from threading import Lock
from typing import Any, Generic, TypeVar

Item = TypeVar("Item")
Out = TypeVar("Out")

_M_MMAP_THRESHOLD, _M_ARENA_MAX = -3, -8  # of malloc.h
LARGE = 2**20  # bytes of an array that gets memory of its own


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


def whole_subtrees(items: Sequence[Item], fan_in: int, levels: int) -> list[tuple[int, Sequence[Item]]]:
    """Leaves cut into whole subtrees of at most so many levels, each with its level; the largest come first.

    Each can be computed by itself, somewhere else. `tree_nodes` puts them together.

    >>> whole_subtrees("abcdefghijk", 2, 2)
    [(2, 'abcd'), (2, 'efgh'), (1, 'ij'), (0, 'k')]
    """
    found = []
    start = 0
    for level in range(levels, -1, -1):
        size = fan_in**level
        while start + size <= len(items):
            found.append((level, items[start : start + size]))
            start += size
    return found


def tree_nodes(
    leaves: Iterable[Item],
    fan_in: int,
    merge: Callable[[Item, Item], Item],
    close: Callable[[Item], Item] = lambda node: node,
    levels: Iterable[int] | None = None,
) -> list[Item]:
    """What is left of a tree in which every `fan_in` nodes of a level make one of the next: the largest first.

    Nodes are merged one by one as they come, and closed when they are complete; so a level holds one open node, and
    memory grows with the logarithm of the number of leaves. With `levels` the leaves are roots of `whole_subtrees`.

    >>> tree_nodes("abcdefg", 2, lambda x, y: f"({x}{y})")
    ['((ab)(cd))', '(ef)', 'g']
    >>> tree_nodes(["(ab)", "(cd)", "(ef)", "g"], 2, lambda x, y: f"({x}{y})", levels=[1, 1, 1, 0])
    ['((ab)(cd))', '(ef)', 'g']
    """
    open_nodes: list[Item | None] = []
    counts: list[int] = []
    for leaf, level in zip(leaves, levels or repeat(0)):  # noqa: B905 (levels may go on)
        node: Item | None = leaf
        while node is not None:
            while level >= len(open_nodes):
                open_nodes.append(None)
                counts.append(0)
            before = open_nodes[level]
            merged = node if before is None else merge(before, node)
            counts[level] += 1
            if counts[level] == fan_in:
                open_nodes[level], counts[level] = None, 0
                node, level = close(merged), level + 1
            else:
                open_nodes[level], node = merged, None
    return [node for node in reversed(open_nodes) if node is not None]


def give_back() -> None:
    """Return free heap memory to the system. The C library keeps it otherwise, and it counts as ours.

    Worth its few milliseconds after work that leaves much behind, such as loading a network.
    """
    with suppress(OSError, AttributeError):  # a C library other than glibc: nothing to call, nothing lost
        ctypes.CDLL(None).malloc_trim(0)


def share_one_heap() -> None:
    """Let all threads from now on share one heap. Each would get its own, with free memory no other can use.

    Large arrays get memory of their own, which goes back when they do; in the heap they would leave holes, more of them
    the longer the work takes.
    """
    with suppress(OSError, AttributeError):
        library = ctypes.CDLL(None)
        library.mallopt(_M_ARENA_MAX, 1)
        library.mallopt(_M_MMAP_THRESHOLD, LARGE)
