"""Work phase by phase: how far it is, and what it costs in wall time, CPU time and peak memory.

Peaks are the kernel's high-water marks (VmHWM), reset at the start of every phase, so no short spike is missed
between two looks. Where the kernel does not allow the reset, a peak is that of the process so far. The peak of the
whole also covers what happens before, between and after the phases, such as loading a network.
"""

from __future__ import annotations

import os
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Any

from mhpatchcore.runtime.system import children_peak, current_rss, own_peak, reset_peak

PHASES = {  # of a fit and an evaluation; an experiment counts the pixels of test images in one more, "metrics"
    "extract": "reading images",  # decode, backbone, store
    "augment": "trying copies",
    "moments": "summing up patches",  # count, mean and scatter, principal directions, shrinkage
    "metric": "whitening",
    "bank": "building the bank",  # the constructor's passes over the store
    "select": "selecting rows",
    "rank": "looking for suspects",  # all training images against the bank rows of the others, if asked for
    "calibrate": "calibrating",  # normal images against the bank rows of the others
    "coverage": "measuring coverage",  # distances of all training patches to the bank, for the report of a fit
    "score": "scoring",
    "ranks": "ranking frames",
    "look": "looking at images",
}


@dataclass
class Phase:
    """One phase: seconds on the clock and of CPU, the peak of resident memory, what it wrote to the store.

    `items` are images, which the running phase counts; "metric" is one step.
    """

    name: str
    wall_seconds: float = 0.0
    cpu_seconds: float = 0.0
    peak_rss: int = 0
    items: int = 0
    bytes_stored: int = 0

    @property
    def items_per_second(self) -> float:
        return self.items / self.wall_seconds if self.wall_seconds > 0 else 0.0


class Costs:
    """Measures phases one after the other; phases do not overlap.

    >>> costs = Costs()
    >>> with costs.phase("extract") as phase:
    ...     phase.items = 2
    >>> [(phase.name, phase.items) for phase in costs.phases]
    [('extract', 2)]
    """

    def __init__(self) -> None:
        self.baseline_rss = current_rss()
        self.phases: list[Phase] = []
        self._highest = 0
        self._start_mark()
        self._stored: defaultdict[str, int] = defaultdict(int)

    @contextmanager
    def phase(self, name: str) -> Iterator[Phase]:
        self._highest = self.peak_rss
        self._start_mark()
        phase = Phase(name)
        wall, cpu = time.perf_counter(), cpu_seconds()
        try:
            yield phase
        finally:
            phase.wall_seconds, phase.cpu_seconds = time.perf_counter() - wall, cpu_seconds() - cpu
            phase.peak_rss, phase.bytes_stored = self._mark(), self._stored.pop(name, 0)
            self.phases.append(phase)

    def stored(self, phase: str, size: int) -> None:
        """Count bytes that a phase has written to the store."""
        self._stored[phase] += size

    @property
    def peak_rss(self) -> int:
        """The highest mark since the start."""
        return max(self._highest, self._mark())

    def _start_mark(self) -> None:
        reset_peak()
        self._largest_child = children_peak()

    def _mark(self) -> int:
        """The peak since the last start; children's peaks cannot be reset, so only a new largest one counts."""
        child = children_peak()
        return max(own_peak(), child if child > self._largest_child else 0)

    def to_json(self) -> dict[str, Any]:
        phases = [asdict(phase) | {"items_per_second": phase.items_per_second} for phase in self.phases]
        return {"baseline_rss": self.baseline_rss, "peak_rss": self.peak_rss, "phases": phases}


def cpu_seconds() -> float:
    """CPU time of this process and its finished children."""
    times = os.times()  # in ticks of 10 ms, good enough for children
    return time.process_time() + times.children_user + times.children_system


@contextmanager
def progress_bars(only_for_people: bool = False) -> Iterator[Callable[[str, int, int], None]]:
    """A function `progress(phase, done, total)` that draws one bar per phase with the time that is left.

    Where stderr is a file or a pipe, the bars are written once, at the end; not at all if they are `only_for_people`.
    """
    from rich import progress
    from rich.console import Console

    console = Console(stderr=True)
    if only_for_people and not console.is_terminal:
        yield lambda phase, done, total: None
        return
    bars = progress.Progress(
        progress.TextColumn("{task.description:<20}"),
        progress.BarColumn(),
        progress.MofNCompleteColumn(),
        progress.TimeElapsedColumn(),
        progress.TextColumn("left"),
        progress.TimeRemainingColumn(),
        console=console,
        redirect_stdout=False,  # rich would send what is printed to stdout meanwhile to stderr
    )
    tasks: dict[str, Any] = {}

    def show(phase: str, done: int, total: int) -> None:
        if phase not in tasks:
            bars.start()  # not before there is something to show: an early error stands alone
            tasks[phase] = bars.add_task(PHASES.get(phase, phase), total=total)
        bars.update(tasks[phase], total=total, completed=done)

    try:
        yield show
    finally:
        bars.stop()
