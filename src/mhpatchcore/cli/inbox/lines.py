"""What the commands of `inbox` share: their options, who speaks, and the lines that they print."""

from __future__ import annotations

import getpass
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from mhpatchcore.cli.console import counted, printable
from mhpatchcore.deploy.inbox import Inbox, Part
from mhpatchcore.deploy.inbox.journal import Change
from mhpatchcore.deploy.inbox.proposals import Effect, Preview
from mhpatchcore.deploy.inbox.versions import Version
from mhpatchcore.model.file import check_file

Model = Annotated[Path, typer.Argument(help="A model file; the inbox lies beside it.")]
Label = Annotated[str, typer.Argument(help="good or defect.")]
Place = Annotated[
    Path | None,
    typer.Option("--inbox", metavar="FILE", help="The inbox (default: inbox.sqlite beside the model)."),
]
Who = Annotated[
    str | None, typer.Option(metavar="NAME", help="Who says so (default: the name of the account).")
]
Note = Annotated[str, typer.Option(metavar="TEXT", help="Why.")]


def inbox_of(model: Path, given: Path | None) -> Inbox:
    check_file(model)
    return Inbox(given) if given else Inbox.beside(model)


def who_says(given: str | None) -> str:
    """The name that was given, or that of the account."""
    try:
        return given if given is not None else getpass.getuser()
    except (KeyError, OSError):  # a container may run under a number without a name
        return str(os.getuid())


def preview_lines(preview: Preview) -> Iterator[str]:
    """What a change would do to every labelled part, and to the threshold."""
    for one in preview.effects:
        yield _effect_line(one)
    counts = preview.to_json()
    good, defects = counts["good"], counts["defects"]
    if preview.action == "learn":
        yield f"learns      {counted(preview.new_images, 'good part')}"
    if preview.version is not None:
        yield f"goes back   to version {preview.version}"
    yield (
        f"threshold   {preview.threshold_before:.4g} → {preview.threshold_after:.4g}, "
        f"about {preview.rate_before:.2%} → {preview.rate_after:.2%} of good parts exceed it"
    )
    yield f"good parts  {good['right_before']} → {good['right_after']} of {good['parts']} pass"
    yield (
        f"defects     {defects['right_before']} → {defects['right_after']} of {defects['parts']} are caught"
    )
    for one in preview.lost:
        yield f"            {printable(one.name)} ({one.id}) would no longer be caught"


def _effect_line(effect: Effect) -> str:
    moved = "" if effect.before.verdict == effect.after.verdict else "  *"
    learnt = ", learnt" if effect.learnt else ""
    return (
        f"{effect.id:5}  {effect.label:7} {effect.before.score:8.4g} {effect.before.verdict:10} → "
        f"{effect.after.score:8.4g} {effect.after.verdict}{learnt}{moved}  {printable(effect.name)}"
    )


def version_lines(found: Sequence[Version], changes: Sequence[Change]) -> Iterator[str]:
    """The model in use and the earlier ones, and who changed it when."""
    for one in found:
        mark = "in use" if one.in_use else f"until {when(one.until)}" if one.until else ""
        yield (
            f"{one.version:5}  {mark:22}  {counted(one.images, 'image')}, rate {one.false_alarm:.2%}, "
            f"{one.what} {when(one.when)}{by(one.who, one.note)}"
        )
    for change in changes:
        which = f"{change.sha256_before[:12]} → {change.sha256_after[:12]}"
        state = "" if change.state == "done" else f", {change.state}"
        yield f"  {when(change.at)}  {change.what}: {which}{state}{by(change.who, change.note)}"


def line(part: Part, learnt: bool = False) -> str:
    score = "" if part.score is None else f"{part.score:.4g}, "
    facts = f"{score}{part.verdict}{', learnt' if learnt else ''}"
    return f"{part.id:5}  {part.label:7} {printable(part.name)}  ({facts})  {when(part.at)}{by(part.who, part.note)}"


def journal_line(entry: dict[str, Any]) -> str:
    """An entry of the journal: a statement about a part, or a change of the model."""
    if "part_id" in entry:
        what = f"{entry.get('label', 'withdrawn'):9} part {entry['part_id']} {printable(entry['name'])}"
    else:
        what = f"{entry['what']:9} {entry['sha256_before'][:12] or 'nothing'} → {entry['sha256_after'][:12]}"
        limits = [entry.get(f"threshold_{side}") for side in ("before", "after")]
        what += ", threshold " + " → ".join("none" if one is None else f"{one:.4g}" for one in limits)
    state = "" if entry["state"] == "done" else f", {entry['state']}"
    return f"{entry['id']:5}  {when(entry['at'])}  {what}{state}{by(entry['who'], entry['note'])}"


def by(who: str, note: str) -> str:
    return (f", by {printable(who)}" if who else "") + (f": {printable(note)}" if note else "")


def when(at: str) -> str:
    return at.replace("T", " ")[:16]
