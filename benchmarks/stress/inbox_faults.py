"""The commands of `inbox` under faults: a label, a preview that is accepted, a threshold, a step back.

Whatever fails, and wherever the process ends: the model in use is the old one or the new one, and the journal says
which. A command that reports a failure has changed nothing. What a label says is there with its image, or is not.
"""

from __future__ import annotations

import hashlib
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

from mhpatchcore.deploy.inbox import Inbox
from mhpatchcore.deploy.inbox.versions import recover

LINE = "line"  # what all of them begin with: a model, its inbox, and an earlier version
QUIET = ("-q", "--workers", "1")
Command = Callable[[Path, Path], list[str]]  # of the folder and the model's file

PREPARATION: tuple[Command, ...] = (
    lambda folder, model: ["inbox", "add", str(model), "good", str(folder / "fresh" / "0.png")],
    lambda folder, model: ["inbox", "recalibrate", str(model), "--false-alarm", "20%", *QUIET],
)
COMMANDS: dict[str, Command] = {
    "inbox add": lambda folder, model: ["inbox", "add", str(model), "good", str(folder / "fresh" / "1.png")],
    "inbox label": lambda folder, model: ["inbox", "label", str(model), "1", "defect"],
    "inbox remove": lambda folder, model: ["inbox", "remove", str(model), "1"],
    "inbox learn": lambda folder, model: ["inbox", "learn", str(model), *QUIET],
    "inbox recalibrate": lambda folder, model: [
        *("inbox", "recalibrate", str(model), "--false-alarm", "30%", *QUIET)
    ],
    "inbox undo": lambda folder, model: ["inbox", "undo", str(model)],
}
NEXT = {"inbox remove": "inbox add"}  # after a kill: what is removed cannot be removed again


def entries(model: Path) -> int:
    """How much was said and done, as the journal has it."""
    return sum(
        one["state"] == "done" and one["what"] != "found" for one in _inbox(model).journal.entries(model.stem)
    )


def problem(model: Path, kind: str, code: int, before: int, is_new: bool, changes_model: bool) -> str:
    """What is wrong with an inbox after a command that was to add one entry to the `before` that there were."""
    inbox = _inbox(model)
    with closing(sqlite3.connect(inbox.path)) as db:
        (sound,) = db.execute("PRAGMA integrity_check").fetchone()
    if sound != "ok":
        return f"a damaged inbox: {sound}"
    recover(inbox.journal, model)  # as the service does at its start
    changes = [one for one in inbox.journal.changes(model.stem) if one.state != "not done"]
    if (
        changes[0].state != "done"
        or changes[0].sha256_after != hashlib.sha256(model.read_bytes()).hexdigest()
    ):
        return f"the journal does not know the model in use: {changes[0]}"
    for part in inbox.parts():
        if hashlib.sha256(inbox.image(part.id)).hexdigest() != part.sha256:
            return f"another image of part {part.id}"
    new = entries(model) - before
    if changes_model and new != is_new:
        return f"{new} new entries, and the model is {'new' if is_new else 'old'}"
    if new not in (0, 1) or (kind != "k" and new != (code == 0)):
        return f"exit code {code}, and {new} new entries"
    return ""


def _inbox(model: Path) -> Inbox:
    return Inbox.beside(model)
