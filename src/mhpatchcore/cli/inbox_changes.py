"""`mhpatchcore inbox preview|learn|recalibrate|versions|undo`: what labelled parts do to a model, and the way back."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import typer

from mhpatchcore.cli.console import (
    JsonFlag,
    QuietFlag,
    WorkersOption,
    counted,
    print_json,
    progress_display,
    warn,
)
from mhpatchcore.cli.inbox_lines import by, print_preview, when
from mhpatchcore.cli.inbox_options import (
    InboxOption,
    ModelArgument,
    NoteOption,
    WhoOption,
    inbox_of,
    who_says,
)
from mhpatchcore.cli.settings import share_parser
from mhpatchcore.deploy.inbox_change import recover
from mhpatchcore.deploy.inbox_loop import Request, accept, propose
from mhpatchcore.deploy.inbox_preview import ACTIONS
from mhpatchcore.deploy.inbox_versions import versions
from mhpatchcore.errors import UserError
from mhpatchcore.fitting.execution import Execution
from mhpatchcore.runtime.parallel import available_cores

IdsOption = typer.Option(None, "--id", metavar="ID", help="A labelled part; can be given several times.")
RateOption = typer.Option(
    None,
    parser=share_parser("--false-alarm"),
    metavar="SHARE",
    help="Share of good parts that may be rejected, such as 1% (default: as the model has it).",
)
InsteadFlag = typer.Option(
    False,
    "--instead",
    help="Their scores take the place of those that the model has, instead of joining them.",
)
VERSION = "A version that `inbox versions` shows (default: one step back)."


def preview(
    action: str = typer.Argument(..., help="learn, recalibrate or undo."),
    model: Path = ModelArgument,
    ids: list[int] = IdsOption,
    false_alarm: float = RateOption,
    instead: bool = InsteadFlag,
    version: int = typer.Option(None, metavar="N", help=VERSION),
    inbox: Path = InboxOption,
    as_json: bool = JsonFlag,
    quiet: bool = QuietFlag,
    workers: int = WorkersOption,
) -> None:
    """Show what `learn`, `recalibrate` or `undo` would do to every labelled part. Nothing is written.

    Example: mhpatchcore inbox preview learn part.mhpc
    """
    if action not in ACTIONS:
        raise UserError(f"an action is {' or '.join(ACTIONS)}, not '{action}'")
    request = Request(action, _chosen(ids), false_alarm, instead, version)
    _changed(model, request, inbox, as_json, quiet, workers, write=False)


def learn(
    model: Path = ModelArgument,
    ids: list[int] = IdsOption,
    who: str = WhoOption,
    note: str = NoteOption,
    inbox: Path = InboxOption,
    as_json: bool = JsonFlag,
    quiet: bool = QuietFlag,
    workers: int = WorkersOption,
) -> None:
    """Learn good parts of the inbox: all that are new to the model, or those named. The former model is kept.

    Example: mhpatchcore inbox learn part.mhpc --id 3 --id 7
    """
    request = Request("learn", _chosen(ids), who=who_says(who), note=note)
    _changed(model, request, inbox, as_json, quiet, workers, write=True)


def recalibrate(
    model: Path = ModelArgument,
    ids: list[int] = IdsOption,
    false_alarm: float = RateOption,
    instead: bool = InsteadFlag,
    who: str = WhoOption,
    note: str = NoteOption,
    inbox: Path = InboxOption,
    as_json: bool = JsonFlag,
    quiet: bool = QuietFlag,
    workers: int = WorkersOption,
) -> None:
    """Set the threshold at another rate, or with the scores of good parts of the inbox. The former model is kept.

    Example: mhpatchcore inbox recalibrate part.mhpc --false-alarm 0.5%
    """
    request = Request("recalibrate", _chosen(ids), false_alarm, instead, who=who_says(who), note=note)
    _changed(model, request, inbox, as_json, quiet, workers, write=True)


def versions_(model: Path = ModelArgument, inbox: Path = InboxOption, as_json: bool = JsonFlag) -> None:
    """Show the model in use, the earlier ones, and who changed it when."""
    journal = inbox_of(model, inbox).journal
    recover(journal, model)
    found, changes = versions(journal, model), journal.changes(model.stem)
    if as_json:
        told = {"versions": [one.to_json() for one in found], "changes": [one.to_json() for one in changes]}
        print_json(told)
        return
    for one in found:
        mark = "in use" if one.in_use else f"until {when(one.until)}" if one.until else ""
        print(
            f"{one.version:5}  {mark:22}  {counted(one.images, 'image')}, rate {one.false_alarm:.2%}, "
            f"{one.what} {when(one.when)}{by(one.who, one.note)}"
        )
    for change in changes:
        which = f"{change.sha256_before[:12]} → {change.sha256_after[:12]}"
        state = "" if change.state == "done" else f", {change.state}"
        print(f"  {when(change.at)}  {change.what}: {which}{state}{by(change.who, change.note)}")


def undo(
    model: Path = ModelArgument,
    version: int = typer.Argument(None, help=VERSION),
    who: str = WhoOption,
    note: str = NoteOption,
    inbox: Path = InboxOption,
    as_json: bool = JsonFlag,
) -> None:
    """Go back to an earlier model, byte for byte. The present one is kept.

    Without a version it is one step: to the model that the present one was made from.
    """
    box = inbox_of(model, inbox)
    proposal = propose(
        box, model, Request("undo", version=version, who=who_says(who), note=note), scored=False
    )
    accept(box, proposal)
    chosen = next(one for one in versions(box.journal, model) if one.in_use)
    if as_json:
        print_json(chosen.to_json() | {"model": str(model)})
        return
    print(
        f"{model} is version {chosen.version} again: {counted(chosen.images, 'image')}, {chosen.what} "
        f"{when(chosen.when)}"
    )


def _changed(
    model: Path,
    request: Request,
    inbox: Path | None,
    as_json: bool,
    quiet: bool,
    workers: int | None,
    write: bool,
) -> None:
    """Propose a change, show it, and put it into use if that was asked for."""
    box = inbox_of(model, inbox)
    with progress_display(quiet) as progress:
        execution = Execution(workers=workers or available_cores(), progress=progress)
        proposal = propose(box, model, request, execution)
    shown = proposal.preview
    for message in shown.warnings:
        warn(message)
    sha256 = accept(box, proposal) if write else None
    if as_json:
        print_json(shown.to_json() | {"model": str(model), "written": write, "sha256": sha256})
        return
    print_preview(shown)
    if write:
        print(f"{model} is written; `mhpatchcore inbox undo {model}` takes it back")
    else:
        print(f"not written; `mhpatchcore inbox {request.action} {model}` does it")


def _chosen(ids: Sequence[int] | None) -> tuple[int, ...] | None:
    return tuple(ids) if ids else None
