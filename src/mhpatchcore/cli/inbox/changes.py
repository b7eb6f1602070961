"""`mhpatchcore inbox preview|learn|teach|recalibrate|versions|undo`: what labels do to a model, and the way back."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from mhpatchcore.cli.command import Answer, Run, command
from mhpatchcore.cli.console import counted, warn
from mhpatchcore.cli.inbox.lines import (
    Model,
    Note,
    Place,
    Who,
    inbox_of,
    preview_lines,
    version_lines,
    when,
    who_says,
)
from mhpatchcore.cli.options import FalseAlarm
from mhpatchcore.deploy.inbox.proposals import ACTIONS, Request, accept, propose
from mhpatchcore.deploy.inbox.versions import recover, versions
from mhpatchcore.errors import UserError

Ids = Annotated[
    list[int] | None, typer.Option("--id", metavar="ID", help="A labelled part; can be given several times.")
]
Instead = Annotated[
    bool,
    typer.Option(
        "--instead",
        help="Their scores take the place of those that the model has, instead of joining them.",
    ),
]
Name = Annotated[
    str, typer.Option(help="What taught defects are called (default: the notes of their labels).")
]
VERSION = "A version that `inbox versions` shows (default: one step back)."


@command("workers")
def preview(
    action: Annotated[str, typer.Argument(help="learn, teach, recalibrate or undo.")],
    model: Model,
    ids: Ids = None,
    false_alarm: FalseAlarm = None,
    instead: Instead = False,
    name: Name = "",
    version: int = typer.Option(None, metavar="N", help=VERSION),
    inbox: Place = None,
    *,
    run: Run,
) -> Answer:
    """Show what `learn`, `teach`, `recalibrate` or `undo` would do to every labelled part. Nothing is written.

    Example: mhpatchcore inbox preview learn part.mhpc
    """
    if action not in ACTIONS:
        raise UserError(f"an action is {' or '.join(ACTIONS)}, not '{action}'")
    request = Request(action, _chosen(ids), false_alarm, instead, version, name)
    return _changed(model, request, inbox, run, write=False)


@command("workers")
def learn(
    model: Model,
    ids: Ids = None,
    who: Who = None,
    note: Note = "",
    inbox: Place = None,
    *,
    run: Run,
) -> Answer:
    """Learn good parts of the inbox: all that are new to the model, or those named. The former model is kept.

    Example: mhpatchcore inbox learn part.mhpc --id 3 --id 7
    """
    request = Request("learn", _chosen(ids), who=who_says(who), note=note)
    return _changed(model, request, inbox, run, write=True)


@command("workers")
def teach(
    model: Model,
    ids: Ids = None,
    name: Name = "",
    who: Who = None,
    note: Note = "",
    inbox: Place = None,
    *,
    run: Run,
) -> Answer:
    """Teach defects of the inbox: all that are new to the model, or those named. The former model is kept.

    Example: mhpatchcore inbox teach part.mhpc --name scratch --id 4
    """
    request = Request("teach", _chosen(ids), name=name, who=who_says(who), note=note)
    return _changed(model, request, inbox, run, write=True)


@command("workers")
def recalibrate(
    model: Model,
    ids: Ids = None,
    false_alarm: FalseAlarm = None,
    instead: Instead = False,
    who: Who = None,
    note: Note = "",
    inbox: Place = None,
    *,
    run: Run,
) -> Answer:
    """Set the threshold at another rate, or with the scores of good parts of the inbox. The former model is kept.

    Example: mhpatchcore inbox recalibrate part.mhpc --false-alarm 0.5%
    """
    request = Request("recalibrate", _chosen(ids), false_alarm, instead, who=who_says(who), note=note)
    return _changed(model, request, inbox, run, write=True)


@command()
def versions_(model: Model, inbox: Place = None) -> Answer:
    """Show the model in use, the earlier ones, and who changed it when."""
    journal = inbox_of(model, inbox).journal
    recover(journal, model)
    found, changes = versions(journal, model), journal.changes(model.stem)
    facts = {"versions": [asdict(one) for one in found], "changes": [asdict(one) for one in changes]}
    return Answer(facts, version_lines(found, changes))


@command()
def undo(
    model: Model,
    version: int = typer.Argument(None, help=VERSION),
    who: Who = None,
    note: Note = "",
    inbox: Place = None,
) -> Answer:
    """Go back to an earlier model, byte for byte. The present one is kept.

    Without a version it is one step: to the model that the present one was made from.
    """
    box = inbox_of(model, inbox)
    proposal = propose(
        box, model, Request("undo", version=version, who=who_says(who), note=note), scored=False
    )
    accept(box, proposal)
    chosen = next(one for one in versions(box.journal, model) if one.in_use)
    line = (
        f"{model} is version {chosen.version} again: {counted(chosen.images, 'image')}, {chosen.what} "
        f"{when(chosen.when)}"
    )
    return Answer(asdict(chosen) | {"model": str(model)}, [line])


def _changed(model: Path, request: Request, inbox: Path | None, run: Run, write: bool) -> Answer:
    """Propose a change, show it, and put it into use if that was asked for."""
    box = inbox_of(model, inbox)
    proposal = propose(box, model, request, run.execution)
    for message in proposal.preview.warnings:
        warn(message)
    sha256 = accept(box, proposal) if write else None
    done = (
        f"{model} is written; `mhpatchcore inbox undo {model}` takes it back"
        if write
        else f"not written; `mhpatchcore inbox {request.action} {model}` does it"
    )
    facts = proposal.preview.to_json() | {"model": str(model), "written": write, "sha256": sha256}
    return Answer(facts, [*preview_lines(proposal.preview), done])


def _chosen(ids: Sequence[int] | None) -> tuple[int, ...] | None:
    return tuple(ids) if ids else None
