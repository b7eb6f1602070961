"""What commands print: progress with an estimate on stderr, results on stdout, as text or JSON."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from mhpatchcore.runtime.texts import representable

SHOW_ALL = "mhpatchcore.show_all"  # in the meta of a context: rare options are on the help page
ARGUMENT = re.compile(r"`([a-z_]+)=([^`]*)`")


def progress_display(quiet: bool) -> AbstractContextManager[Callable[[str, int, int], None]]:
    if quiet:
        return nullcontext(lambda phase, done, total: None)
    from mhpatchcore.runtime.costs import progress_bars

    return progress_bars(only_for_people=True)


def warn(message: str) -> None:
    print(f"warning: {' '.join(with_flags(message).splitlines())}", file=sys.stderr)


def with_flags(message: str) -> str:
    """A message for the command line, in which Python arguments have become flags.

    >>> with_flags("pass `all_good=True`, or use `precision=fp32`")
    'pass --all-good, or use --precision fp32'
    """

    def flag(argument: re.Match[str]) -> str:
        name, value = argument.groups()
        return f"--{name.replace('_', '-')}" + (f" {value}" if value != "True" else "")

    return ARGUMENT.sub(flag, message)


def warn_and_keep(messages: list[str]) -> Callable[[str], None]:
    """A `warn` that also keeps its messages, for --json."""

    def both(message: str) -> None:
        warn(message)
        messages.append(with_flags(message))

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


def labelled(*facts: tuple[str, str | Sequence[str]]) -> Iterator[str]:
    """A line for each label and what it stands for, or several lines; where that is empty, none.

    >>> print(*labelled(("bank", "200 rows"), ("copies", ""), ("threshold", ["12", "set by hand"])), sep="\\n")
      bank       200 rows
      threshold  12
                 set by hand
    """
    width = max(len(label) for label, _ in facts)
    for label, told in facts:
        lines = [told] if isinstance(told, str) else told
        for i, line in enumerate(filter(None, lines)):
            name = label if i == 0 else ""
            yield printable(f"  {name:{width}}  {line}")  # it may hold what terminals obey


def print_json(value: Any) -> None:
    print(json.dumps(representable(value), indent=2))
