"""Trials in processes of their own, with limits on memory and time: a crash or a hang costs one trial, not the run."""

from __future__ import annotations

import os
import resource
import time
import traceback
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from multiprocessing import get_context
from multiprocessing.connection import Connection, wait
from pathlib import Path

from mhpatchcore.errors import UserError
from mhpatchcore.runtime.system import own_peak

REFUSED, HARMLESS = "refused", "harmless"
MEMORY = 2 * 10**9  # bytes of address space that a worker may take beside what it has once all is imported
SECONDS = 60.0  # on the clock; most trials take a few milliseconds
LONGEST_MESSAGE = 1000


class Violation(Exception):  # noqa: N818 (it reports a fault of the product, not of the program)
    """A trial ended as it must not: with another verdict, a number that is none, an unreadable message."""


@dataclass(frozen=True)
class Family:
    """Trials of one kind: `prepare(folder)` writes what they start from, `attempt(folder, seed)` is one of them.

    It returns REFUSED or HARMLESS, or raises what a user would see. `undamaged(folder)` does the same with nothing
    changed. All are functions of a module.
    """

    name: str
    prepare: Callable[[Path], None]
    undamaged: Callable[[Path], None]
    attempt: Callable[[Path, int], str]


@dataclass
class Tally:
    """What came of the trials of a family: the outcome and the seconds of each, by its seed."""

    name: str
    seconds: float = 0.0
    peak: int = 0
    outcomes: dict[int, tuple[str, float]] = field(default_factory=dict)

    @property
    def failures(self) -> list[tuple[int, str]]:
        """(seed, what happened) of those that ended as they must not."""
        ends = ((seed, outcome) for seed, (outcome, _) in sorted(self.outcomes.items()))
        return [(seed, outcome) for seed, outcome in ends if outcome not in (REFUSED, HARMLESS)]

    @property
    def trials(self) -> int:
        return len(self.outcomes)

    @property
    def slowest(self) -> float:
        return max((seconds for _, seconds in self.outcomes.values()), default=0.0)

    def count(self, wanted: str) -> int:
        return sum(outcome == wanted for outcome, _ in self.outcomes.values())

    def add(self, seed: int, outcome: str, seconds: float, peak: int) -> None:
        self.outcomes[seed] = outcome, seconds
        self.peak = max(self.peak, peak)


def run_trials(family: Family, folder: Path, seeds: range, workers: int, until: float) -> Tally:
    """As many of the trials as there is time for (until `time.monotonic()` is `until`), on some processes."""
    tally, started = Tally(family.name), time.monotonic()
    waiting = iter(seeds)
    crew = [_Worker(family, folder) for _ in range(workers)]
    try:
        for worker in crew:
            worker.give(waiting, until)
        while any(worker.seed is not None for worker in crew):
            for worker in crew:
                if worker.seed is not None and (ended := worker.outcome(0.5 / workers)) is not None:
                    tally.add(*ended)
                    worker.give(waiting, until)
    finally:
        for worker in crew:
            worker.stop()
    tally.seconds = time.monotonic() - started
    return tally


class _Worker:
    """A process that does one trial after the other, and a new one when it dies."""

    def __init__(self, family: Family, folder: Path) -> None:
        self.family, self.folder = family, folder
        self.seed: int | None = None
        self.began = 0.0
        self._start()

    def _start(self) -> None:
        context = get_context("spawn")
        self.pipe, theirs = context.Pipe()
        self.process = context.Process(target=_serve, args=(theirs, self.family, self.folder), daemon=True)
        self.process.start()
        theirs.close()
        self.pipe.recv()  # it is ready

    def give(self, waiting: Iterator[int], until: float) -> None:
        self.seed = next(waiting, None) if time.monotonic() < until else None
        if self.seed is not None:
            self.began = time.monotonic()
            self.pipe.send(self.seed)

    def outcome(self, patience: float) -> tuple[int, str, float, int] | None:
        """(seed, outcome, seconds, peak) of the trial under way, if it has ended by now."""
        assert self.seed is not None
        taken = time.monotonic() - self.began
        if wait([self.pipe, self.process.sentinel], patience):
            try:
                outcome, peak = self.pipe.recv()
                return self.seed, outcome, time.monotonic() - self.began, peak
            except EOFError:
                self.process.join()
                ended = f"crash: the process ended with {self.process.exitcode}"
        elif taken < SECONDS:
            return None
        else:
            ended = f"hang: no end after {taken:.0f} s"
        self.stop()
        self._start()
        return self.seed, ended, taken, 0

    def stop(self) -> None:
        self.process.kill()
        self.process.join()
        self.pipe.close()


def _serve(pipe: Connection, family: Family, folder: Path) -> None:
    family.undamaged(folder)  # imports everything, and makes what is made once
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)  # libtiff writes its opinions there
    limit_memory(MEMORY)
    pipe.send("ready")
    while True:
        seed = pipe.recv()
        pipe.send((outcome_of(family, folder, seed), own_peak()))


def limit_memory(more: int) -> None:
    """Let this process take so many bytes of address space more than it has now."""
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    limit = pages * resource.getpagesize() + more
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))


def outcome_of(family: Family, folder: Path, seed: int) -> str:
    """REFUSED, HARMLESS, or what was wrong."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return family.attempt(folder, seed)
        except UserError as error:
            return REFUSED if is_one_line(str(error)) else f"no message of one line: {error!r}"
        except Violation as violation:
            return str(violation)
        except Exception as error:
            place = traceback.extract_tb(error.__traceback__)[-1]
            return f"traceback: {type(error).__name__}: {error} ({Path(place.filename).name}:{place.lineno})"


def is_one_line(message: str) -> bool:
    return 0 < len(message) <= LONGEST_MESSAGE and message.isprintable()
