"""What commands print: progress with an estimate on stderr, results on stdout, as text or JSON."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import typer

from mhpatchcore.runtime.texts import representable

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

JsonFlag = typer.Option(False, "--json", help="Print the result as JSON.")
QuietFlag = typer.Option(False, "--quiet", "-q", help="No progress.")

StackFlag = typer.Option(
    False,
    "--stack",
    help="The images are two or three folders, or patterns in quotes, with frames of the same parts, matched by name.",
)
EveryOption = typer.Option(
    1, "--every", min=1, metavar="N", help="Take every N-th frame of a video.", show_default=False
)

OtherProductFlag = typer.Option(
    False, "--other-product", help="Let the model take the place of one of another product."
)

RUN = "How the work is done"  # it changes nothing in a model
SkipBrokenFlag = typer.Option(
    False, "--skip-broken", help="Leave out images that cannot be read, and say so.", rich_help_panel=RUN
)
StoreOption = typer.Option(
    None,
    metavar="DIR",
    help="Keep what is worked out in this folder, where later runs find it, also after a crash (default: a temporary "
    "one).",
    rich_help_panel=RUN,
)
StoreLimitOption = typer.Option(
    None,
    "--store-limit",
    metavar="SIZE",
    help="Keep the folder of --store below this, e.g. 20GB: what has not been used for longest goes.",
    rich_help_panel=RUN,
)
WorkersOption = typer.Option(
    None, min=1, metavar="N", help="Threads (default: one per core).", rich_help_panel=RUN
)


@contextmanager
def progress_display(quiet: bool) -> Iterator[Callable[[str, int, int], None]]:
    """A function `progress(phase, done, total)` that draws one bar per phase with the time that is left.

    Bars are for people: nothing is drawn where stderr is a file or a pipe.
    """
    from rich.console import Console

    console = Console(stderr=True)
    if quiet or not console.is_terminal:
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


def warn(message: str) -> None:
    print(f"warning: {' '.join(message.splitlines())}", file=sys.stderr)


def warn_and_keep(messages: list[str]) -> Callable[[str], None]:
    """`warn`, with what it has said kept for --json."""

    def both(message: str) -> None:
        warn(message)
        messages.append(message)

    return both


def counted(n: int, thing: str) -> str:
    """
    >>> counted(1, "image"), counted(2, "image")
    ('1 image', '2 images')
    """
    return f"{n} {thing}" if n == 1 else f"{n} {thing}s"


def printable(name: str) -> str:
    """A file name on one line, whatever it holds.

    >>> print(printable("two\\nlines.png"))
    'two\\nlines.png'
    """
    return name if name.isprintable() else ascii(name)


def print_json(value: Any) -> None:
    print(json.dumps(representable(value), indent=2))
