"""Work spread over threads so that results never depend on how many there are.

BLAS changes the last bits of a product with its number of threads. So each task runs BLAS on one thread, tasks (chunks
of images, blocks of rows) have a fixed size, and results are reduced by trees of a fixed shape: the same items in the
same order give the same bits, wherever each part is computed. Threads only decide when a task runs.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack, contextmanager
from functools import cache, lru_cache
from itertools import repeat
from threading import Lock, local
from typing import Any, Generic, TypeVar

Item = TypeVar("Item")
Out = TypeVar("Out")
END = object()  # of what an iterator gives


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

    Blocks may overlap, on any threads: the first enters it, the last to leave restores what was there before.
    """

    def __init__(self, enter: Callable[[], AbstractContextManager[Any]]) -> None:
        self._enter = enter
        self._lock, self._inside, self._entered = Lock(), 0, ExitStack()

    @contextmanager
    def __call__(self) -> Iterator[None]:
        with self._lock:
            if self._inside == 0:
                self._entered.enter_context(self._enter())
            self._inside += 1
        try:
            yield
        finally:
            with self._lock:
                self._inside -= 1
                if self._inside == 0:
                    self._entered.close()


@contextmanager
def late_blas_limited() -> Iterator[None]:
    """One thread for every BLAS library that is loaded by now: within `one_blas_thread` for those loaded later."""
    import numpy  # noqa: F401
    from threadpoolctl import ThreadpoolController

    libraries = ThreadpoolController().select(user_api="blas").lib_controllers
    # newer versions let only the first thread that asks set limits, and ignore all others
    setters = [getattr(one, "_real_set_num_threads", one.set_num_threads) for one in libraries]
    before = [library.get_num_threads() for library in libraries]
    for set_threads in setters:
        set_threads(1)
    try:
        yield
    finally:
        for set_threads, number in zip(setters, before, strict=True):
            set_threads(number)


# within such a block every BLAS call of the process uses one thread, so that its bits are the same everywhere
one_blas_thread = ProcessState(late_blas_limited)
_for_life = ExitStack()


@cache
def limit_blas() -> None:
    """One thread for every BLAS call of this process, a worker's, from now on."""
    _for_life.enter_context(one_blas_thread())


class Memoised(Generic[Out]):
    """A function that remembers its last few results; threads that ask together wait for one of them to make it.

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


class Replay(Generic[Out]):
    """What `run()` gives, by number, mostly in rising order.

    Each thread has a run of its own and goes forward in it; going back begins a new run. So only the last is kept.
    """

    def __init__(self, run: Callable[[], Iterable[Out]]) -> None:
        self._run, self._here = run, local()

    def __getitem__(self, number: int) -> Out:
        here = self._here
        if getattr(here, "number", number) > number or not hasattr(here, "rest"):
            here.rest, here.number = iter(self._run()), -1
        while here.number < number:
            one = next(here.rest, END)
            if one is END:
                raise IndexError(number)
            here.last, here.number = one, here.number + 1
        last: Out = here.last
        return last

    def __reduce__(self) -> tuple[Any, ...]:
        return Replay, (self._run,)


def whole_subtrees(items: Sequence[Item], fan_in: int, levels: int) -> list[tuple[int, Sequence[Item]]]:
    """Leaves cut into whole subtrees of at most so many levels, each with its level; the largest come first.

    Each can be computed by itself, somewhere else. `tree_nodes` puts them together.

    >>> whole_subtrees("abcdefghijk", 2, 2)
    [(2, 'abcd'), (2, 'efgh'), (1, 'ij'), (0, 'k')]
    """
    found, start = [], 0
    for level in range(levels, -1, -1):
        size = fan_in**level
        stop = start + (len(items) - start) // size * size
        found += [(level, items[at : at + size]) for at in range(start, stop, size)]
        start = stop
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
    open_nodes: dict[int, tuple[Item, int]] = {}  # of each level, and how many it was merged of
    for leaf, leaf_level in zip(leaves, levels or repeat(0)):  # noqa: B905 (levels may go on)
        node, level = leaf, leaf_level
        while level in open_nodes:
            before, count = open_nodes.pop(level)
            node = merge(before, node)
            if count + 1 < fan_in:
                open_nodes[level] = node, count + 1
                break
            node, level = close(node), level + 1
        else:
            open_nodes[level] = node, 1
    return [open_nodes[level][0] for level in sorted(open_nodes, reverse=True)]
