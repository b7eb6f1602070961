"""`mhpatchcore store info DIR`, `mhpatchcore store clean DIR --to 20GB`"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

from mhpatchcore.cli import options
from mhpatchcore.cli.command import Answer, command
from mhpatchcore.cli.console import counted
from mhpatchcore.errors import UserError
from mhpatchcore.fitting.storekeeping import Entry, entries_of, in_use_since, trimmed
from mhpatchcore.runtime.texts import format_bytes, parse_size

SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 7 * 86400}
KINDS = {
    "image": "descriptors of images",
    "views": "descriptors of views",
    "moments": "sums over patches",
    "summary": "summaries of chunks",
    "node": "merged sums and summaries",
    "metric": "metrics",
    "network": "networks",
    "head": "graphs that score",
}


@command()
def store(
    action: str = options.argument("Show what is in a store, or delete some of it.", metavar="info|clean"),
    folder: Path = options.argument("The folder that was given as --store.", metavar="DIR"),
    older: str = options.option("clean: what has not been used for this long: 12h, 30d, 4w.", metavar="AGE"),
    to: str = options.option("clean: the least recently used, down to this size: 20GB.", metavar="SIZE"),
) -> Answer:
    """Show or clean what `fit --store` keeps.

    Example: mhpatchcore store clean descriptors/ --to 20GB

    Entries that a running command needs are never deleted.
    """
    if not folder.is_dir():
        raise UserError(f"there is no store in {folder}: give the folder that was given as --store")
    if action not in ("info", "clean") or (action == "clean") != bool(older or to):
        raise UserError("say `store info DIR`, or `store clean DIR --older 30d` (or `--to 20GB`)")
    facts: dict[str, Any] = {"folder": str(folder)}
    if action == "clean":
        gone = trimmed(folder, parse_size(to) if to else None, parse_age(older) if older else None)
        facts |= {"deleted": len(gone), "freed_bytes": sum(entry.size for entry in gone)}
    now, entries = time.time(), sorted(entries_of(folder), key=lambda entry: entry.kind)
    facts |= {
        "entries": len(entries),
        "bytes": sum(entry.size for entry in entries),
        "in_use": in_use_since(folder) <= now,
        "kinds": {kind: _totals([*some], now) for kind, some in groupby(entries, lambda entry: entry.kind)},
    }
    return Answer(facts, _lines(facts))


def _totals(entries: Sequence[Entry], now: float) -> dict[str, int]:
    """How many entries of a kind there are, their size, and for how long one of them has not been used."""
    unused = max(0, *(round(now - entry.used) for entry in entries))
    return {"entries": len(entries), "bytes": sum(entry.size for entry in entries), "unused_seconds": unused}


def parse_age(text: str) -> float:
    """The seconds in an age such as 12h.

    >>> parse_age("12h"), parse_age("1.5 d")
    (43200.0, 129600.0)
    """
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([smhdw])\s*", text)
    if match is None:
        raise UserError(f"'{text}' is not an age; write it like 12h, 30d or 4w")
    return float(match[1]) * SECONDS[match[2]]


def _lines(facts: dict[str, Any]) -> Iterator[str]:
    if "deleted" in facts:
        yield f"deleted {counted(facts['deleted'], 'file')}, {format_bytes(facts['freed_bytes'])}"
    in_use = ", in use" if facts["in_use"] else ""
    yield f"{facts['folder']}: {counted(facts['entries'], 'file')}, {format_bytes(facts['bytes'])}{in_use}"
    if not facts["kinds"] and "deleted" not in facts:
        yield "  nothing that `fit --store` has written"
    for kind, one in facts["kinds"].items():
        size, days = format_bytes(one["bytes"]), one["unused_seconds"] / SECONDS["d"]
        name = KINDS.get(kind, kind)
        yield f"  {name:24} {one['entries']:8,}  {size:>10}  unused for up to {days:.1f} days"
