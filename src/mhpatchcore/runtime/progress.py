"""How far the work is: a bar for each phase, on stderr or in a notebook."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

PHASES = {
    "extract": "reading images",
    "augment": "trying copies",
    "moments": "whitening",
    "bank": "building the bank",
    "select": "selecting rows",
    "rank": "looking for suspects",
    "calibrate": "calibrating",
    "coverage": "measuring coverage",
    "score": "scoring",
    "ranks": "ranking frames",
    "look": "looking at images",
}


@contextmanager
def progress_bars(only_for_people: bool = False) -> Iterator[Callable[[str, int, int], None]]:
    """A function `progress(phase, done, total)` that draws one bar per phase with the time that is left.

    Where stderr is a file or a pipe, the bars are written once, at the end; not at all if they are `only_for_people`.
    """
    from rich.console import Console

    console = Console(stderr=True)
    if only_for_people and not console.is_terminal:
        yield lambda phase, done, total: None
        return
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    columns = (
        TextColumn("{task.description:<20}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
    )
    # rich would send what is printed to stdout meanwhile to stderr
    bars = Progress(*columns, console=console, redirect_stdout=False)
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
