"""`mhpatchcore verdicts FOLDER --out verdicts.csv`"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

import typer

from mhpatchcore.cli.command import Answer, command
from mhpatchcore.cli.console import counted
from mhpatchcore.errors import UserError


@command()
def verdicts(
    place: Path = typer.Argument(
        ..., metavar="FOLDER | FILE", help="The folder of the models that are served, or the record itself."
    ),
    out: Path = typer.Option(
        ..., "--out", "-o", metavar="FILE", help="A table (.csv, .parquet) or lines of JSON (.jsonl)."
    ),
    since: str = typer.Option(
        None,
        metavar="TIME",
        help="From this time on: 2026-11-18, 2026-11-18T06:00+01:00; UTC without an offset.",
    ),
    until: str = typer.Option(None, metavar="TIME", help="Before this time."),
    model: str = typer.Option(None, metavar="NAME", help="Of this model alone."),
    verdict: str = typer.Option(None, metavar="VERDICT", help="Only passed, rejected, or 'no threshold'."),
) -> Answer:
    """Write what `serve` has recorded: every verdict with its part, time, model, score and regions.

    The service may go on meanwhile. It answers the same at /v1/verdicts.

    Example: mhpatchcore verdicts /var/lib/mhpatchcore --since 2026-11-18 --out today.csv
    """
    from mhpatchcore.deploy import record
    from mhpatchcore.runtime.files import atomic_path

    export = record.EXPORTS.get(out.suffix[1:])
    if export is None:
        raise UserError(f"cannot write {out}: name a file that ends in .{', .'.join(record.EXPORTS)}")
    query = (_time("--since", since), _time("--until", until), model, verdict)
    file = record.beside(place) if place.is_dir() else place
    written = 0

    def found() -> Iterator[record.Answer]:
        nonlocal written
        for written, answer in enumerate(record.verdicts(file, *query), 1):  # noqa: B007 (it is counted)
            yield answer

    with atomic_path(out) as path, path.open("wb") as opened:
        opened.writelines(export(found()))
    return Answer({"file": str(out), "verdicts": written}, [f"{out}: {counted(written, 'verdict')}"])


def _time(option: str, text: str | None) -> datetime | None:
    try:
        return None if text is None else datetime.fromisoformat(text)
    except ValueError:
        raise UserError(
            f"{option} {text} is not a time: write it like 2026-11-18 or 2026-11-18T06:00Z"
        ) from None
