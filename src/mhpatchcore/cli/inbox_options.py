"""What the commands of `inbox` share: their options, the inbox of a model, and who speaks."""

from __future__ import annotations

import getpass
import os
from pathlib import Path

import typer

from mhpatchcore.deploy.inbox import Inbox
from mhpatchcore.model.file import check_file

ModelArgument = typer.Argument(..., help="A model file; the inbox lies beside it.")
InboxOption = typer.Option(
    None, "--inbox", metavar="FILE", help="The inbox (default: inbox.sqlite beside the model)."
)
WhoOption = typer.Option(None, metavar="NAME", help="Who says so (default: the name of the account).")
NoteOption = typer.Option("", metavar="TEXT", help="Why.")


def inbox_of(model: Path, given: Path | None) -> Inbox:
    check_file(model)
    return Inbox(given) if given else Inbox.beside(model)


def who_says(given: str | None) -> str:
    """The name that was given, or that of the account."""
    try:
        return given if given is not None else getpass.getuser()
    except (KeyError, OSError):  # a container may run under a number without a name
        return str(os.getuid())
