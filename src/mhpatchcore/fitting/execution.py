"""How work is carried out, and where tasks run. Nothing here changes the model.

A task is a module-level function, or a `functools.partial` of one, of picklable values. It does not depend on where it
runs, so neither does the model: threads and a cluster give the same bits.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from traceback import walk_stack
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from mhpatchcore.errors import ImageWarning, UserError
from mhpatchcore.fitting.dask_executor import DaskExecutor
from mhpatchcore.inputs.sources import ImageLike
from mhpatchcore.runtime.costs import Costs, Phase
from mhpatchcore.runtime.parallel import ordered_map
from mhpatchcore.runtime.store import Store
from mhpatchcore.runtime.system import available_cores
from mhpatchcore.runtime.urls import url_of

if TYPE_CHECKING:
    from mhpatchcore.fitting.budget import Estimate

Item = TypeVar("Item")
Out = TypeVar("Out")


class Executor(Protocol):
    """Something that maps a task over items, `workers` at a time, and gives the results in order.

    One that is `remote` runs them where results are far away: a task then takes a whole run of chunks, and leaves in
    the store what it has made of them.
    """

    @property
    def workers(self) -> int: ...

    @property
    def remote(self) -> bool: ...

    def map(self, task: Callable[[Item], Out], items: Iterable[Item]) -> Iterator[Out]: ...

    def for_large_tasks(self) -> tuple[Executor, int]:
        """What maps tasks that can use several threads, and how many each of them may use."""

    def check(self, store: Store | None, image: ImageLike | None, warn: Callable[[str], None]) -> None:
        """Refuse workers that could not do their tasks, because they do not see the store or the image."""


@dataclass(frozen=True)
class Threads:
    """The cores of this machine, in this process."""

    workers: int
    remote = False

    def map(self, task: Callable[[Item], Out], items: Iterable[Item]) -> Iterator[Out]:
        return ordered_map(task, items, self.workers)

    def for_large_tasks(self) -> tuple[Executor, int]:
        """One after the other, on all cores."""
        return Threads(1), self.workers

    def check(self, *_: object) -> None:
        """They see what this process sees."""


def silent(*_: object) -> None:
    """Ignore whatever is reported."""


def _warn(message: str) -> None:
    """A warning of Python, at the user's line that has led here."""
    callers = (frame.f_globals.get("__name__", "") for frame, _ in walk_stack(sys._getframe()))
    ours = [depth for depth, name in enumerate(callers, start=1) if name.startswith("mhpatchcore.")]
    warnings.warn(message, ImageWarning, stacklevel=ours[-1] + 1)


@dataclass(frozen=True)
class Execution:
    """How work is carried out. Nothing here changes the model.

    Parameters
    ----------
    workers
        How many tasks run at a time (default: one per core).
    batch
        Images per call of the network.
    store
        A folder for what later fits can use again, also after a crash (default: a temporary one).
    store_limit
        How many bytes may stay in the store, not counting what this fit needs.
    memory
        A budget in bytes, within which `workers` and `batch` are upper bounds.
    skip_broken
        Leave out images that cannot be read.
    progress
        Called with (phase, done, total) at every step.
    warn
        Called with each message for the user, such as an image that was skipped (default: an `ImageWarning`).
    foresee
        Called with the estimated peak of memory, if there is a budget.
    telemetry
        Measures what each phase costs.
    executor
        Runs the tasks, if not threads of this process.
    """

    workers: int = field(default_factory=available_cores)
    batch: int = 1
    store: str | Path | None = None
    store_limit: int | None = None
    memory: int | None = None
    skip_broken: bool = False
    progress: Callable[[str, int, int], None] = silent
    warn: Callable[[str], None] = _warn
    foresee: Callable[[Estimate], None] = silent
    telemetry: Costs | None = None
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
        """What runs the tasks: the executor that was given, or threads."""
        return self.executor or Threads(self.workers)

    def on_cluster(self, client: Any) -> Execution:
        """The same, by the workers of a Dask cluster (`dask.distributed.Client`)."""
        return replace(self, executor=DaskExecutor(client))

    @contextmanager
    def phase(self, name: str, total: int) -> Iterator[Progress]:
        """A phase of the work, which takes `total` steps: what it costs, and how far it is."""
        with self.telemetry.phase(name) if self.telemetry else nullcontext(Phase(name)) as cost:
            phase = Progress(partial(self.progress, name), total, cost)
            phase.advance(0)
            yield phase
            if cost.items < total:
                phase.advance(total)

    def track(
        self, name: str, items: Iterable[Item], total: int, steps: Callable[[Item], int] = lambda _: 1
    ) -> Iterator[Item]:
        """A phase of the work as the items it goes through, each of which takes some of `total` steps."""
        with self.phase(name, total) as phase:
            yield from phase.over(items, steps)


@dataclass(frozen=True)
class Progress:
    """How far a phase is."""

    report: Callable[[int, int], None]
    total: int
    cost: Phase

    def advance(self, done: int) -> None:
        self.cost.items = done
        self.report(done, self.total)

    def over(
        self, items: Iterable[Item], steps: Callable[[Item], int] = lambda _: 1, of: int = 0
    ) -> Iterator[Item]:
        """The items, each of which takes some steps, `of` all of them together (as many as the phase, if not given)."""
        done = 0
        for item in items:
            yield item
            done += steps(item)
            self.advance(done * self.total // of if of else done)
