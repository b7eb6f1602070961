"""Images that a function gives anew whenever it is called: a generator that can be run again.

Images are asked for by number, mostly in rising order. Each thread has a run of its own and goes forward in it; going
back begins a new run. So no image is kept but the last.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import cached_property
from threading import local
from typing import Any

from mhpatchcore.errors import ImageError


class Replay:
    """What `run()` gives, by number."""

    def __init__(self, run: Callable[[], Iterable[Any]]) -> None:
        self._run = run
        self._here = local()

    @cached_property
    def length(self) -> int:
        """How many there are, which takes a run."""
        return sum(1 for _ in self._run())

    def __getitem__(self, number: int) -> Any:
        here = self._here
        if getattr(here, "number", number) > number or not hasattr(here, "rest"):
            here.rest, here.number = iter(self._run()), -1
        while here.number < number:
            here.last = _next(here.rest, number)
            here.number += 1
        return here.last

    def __reduce__(self) -> tuple[Any, ...]:
        return Replay, (self._run,)


class LazyImage:
    """One of the images of a replay, which is made when it is asked for."""

    def __init__(self, replay: Replay, number: int) -> None:
        self._replay, self._number = replay, number

    def made(self) -> Any:
        return self._replay[self._number]

    def __str__(self) -> str:
        return f"number {self._number}"


def _next(rest: Iterator[Any], number: int) -> Any:
    try:
        return next(rest)
    except StopIteration:
        raise ImageError(
            f"image {number} is missing: what gives the images has given fewer than before; give a list of them"
        ) from None
