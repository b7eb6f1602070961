"""How work is carried out. Nothing here changes the model."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from traceback import walk_stack
from typing import TYPE_CHECKING

from mhpatchcore.errors import ImageWarning, UserError
from mhpatchcore.fitting.executor import Executor, Threads
from mhpatchcore.runtime.parallel import available_cores
from mhpatchcore.runtime.telemetry import Telemetry
from mhpatchcore.runtime.urls import url_of

if TYPE_CHECKING:
    from mhpatchcore.fitting.budget import Estimate


def _silent(*_: object) -> None:
    """Nobody listens."""


def _warn(message: str) -> None:
    """A warning of Python, at the user's line that has led here."""
    callers = (frame.f_globals.get("__name__", "") for frame, _ in walk_stack(sys._getframe()))
    ours = [depth for depth, name in enumerate(callers, start=1) if name.startswith("mhpatchcore.")]
    warnings.warn(message, ImageWarning, stacklevel=ours[-1] + 1)


@dataclass(frozen=True)
class Execution:
    """How work is carried out. Nothing here changes the model.

    `workers` tasks run at a time, each with `batch` images per call of the network. `store` is a folder for what later
    fits can use again, also after a crash (a temporary one, where not given); `store_limit` bytes are left there at
    most, but for what this fit needs. With a budget of `memory` bytes `workers` and `batch` are upper bounds, and
    `foresee(estimate)` hears of the peak to be expected. `progress(phase, done, total)` hears of every step,
    `warn(message)` of what a user should know, such as every image that is skipped because it cannot be read (where
    not given these are warnings of Python, of class ImageWarning), and `telemetry` measures what each phase costs.
    `executor` runs the tasks elsewhere than on threads of this process.
    """

    workers: int = field(default_factory=available_cores)
    batch: int = 1
    store: str | Path | None = None
    store_limit: int | None = None
    memory: int | None = None
    skip_broken: bool = False
    progress: Callable[[str, int, int], None] = _silent
    warn: Callable[[str], None] = _warn
    foresee: Callable[[Estimate], None] = _silent
    telemetry: Telemetry | None = None
    executor: Executor | None = None

    def __post_init__(self) -> None:
        if self.workers < 1 or self.batch < 1:
            raise UserError("workers and batch are at least 1")
        if self.store_limit is not None and self.store is None:
            raise UserError(
                "a limit is for a store that is kept: name its folder (`store=FOLDER`), or leave the limit out"
            )
        if self.store is not None and url_of(self.store):
            raise UserError(
                f"a store is a folder on a disk, for a cluster on one that all share, not {url_of(self.store)}: "
                "name another (`store=FOLDER`)"
            )

    @property
    def runs_on(self) -> Executor:
        """Where tasks run: threads, unless an executor is given."""
        return self.executor or Threads(self.workers)

    @contextmanager
    def phase(self, name: str, total: int) -> Iterator[Callable[[int], None]]:
        """A phase of the work: a function that is told how many of `total` steps are done."""
        self.progress(name, 0, total)
        if self.telemetry is None:
            yield lambda done: self.progress(name, done, total)
            return
        with self.telemetry.phase(name) as measured:

            def advance(done: int) -> None:
                measured.items = done
                self.progress(name, done, total)

            yield advance
