"""What all benchmarks have in common: how options are read, a table that grows line by line, JSON on request,
and work in a process of its own."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from mhpatchcore.runtime.files import write_text

Row = dict[str, Any]


def parser_of(description: str | None) -> argparse.ArgumentParser:
    """A parser that explains itself by a module's docstring."""
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all figures there as well")
    return parser


def listed(text: str) -> list[str]:
    """
    >>> listed("bottle, pill")
    ['bottle', 'pill']
    """
    return [word.strip() for word in text.split(",") if word.strip()]


def integers(text: str) -> list[int]:
    return [int(word) for word in listed(text)]


def shares(text: str) -> list[float]:
    return [float(word) for word in listed(text)]


def shown(rows: Iterable[Row], columns: Mapping[str, str]) -> list[Row]:
    """Print a Markdown table, each line as soon as there is a row, and give back all rows.

    A column's format is that of `str.format` with the row's values by name.

    >>> shown([{"n": 2, "share": 0.5}], {"images": "{n}", "found": "{share:.0%}"})
    | images | found |
    |---|---|
    | 2 | 50% |
    [{'n': 2, 'share': 0.5}]
    """
    kept: list[Row] = []
    for row in rows:
        if not kept:
            print(f"| {' | '.join(columns)} |\n{'|---' * len(columns)}|")
        print(f"| {' | '.join(form.format(**row) for form in columns.values())} |", flush=True)
        kept.append(row)
    return kept


def answer_of(module: str, *arguments: str, order: Row | None = None) -> Row:
    """What the function `answer` of a benchmark prints as JSON in a process of its own.

    It finds the arguments in `sys.argv` and the order, as JSON, at its standard input.
    """
    command = [sys.executable, "-c", f"from {module} import answer; answer()", *arguments]
    done = subprocess.run(command, input=json.dumps(order), capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(done.stderr.strip().splitlines()[-1])
    return dict(json.loads(done.stdout))


def write_json(path: Path | None, found: Any) -> None:
    """Where a file was asked for."""
    if path is not None:
        write_text(path, json.dumps(found, indent=1) + "\n")
