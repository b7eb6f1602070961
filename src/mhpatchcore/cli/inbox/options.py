"""What the commands of `inbox` share: their options, the inbox of a model, and who speaks."""

from __future__ import annotations

import getpass
import os
from pathlib import Path
from typing import Annotated

import typer

from mhpatchcore.deploy.inbox.parts import Inbox
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
