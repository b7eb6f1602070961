"""`mhpatchcore inbox COMMAND part.mhpc`: labelled parts, what can be learnt from them, and the way back."""

from __future__ import annotations

from collections.abc import Callable

from mhpatchcore.cli.inbox.changes import learn, preview, recalibrate, teach, undo, versions_
from mhpatchcore.cli.inbox.parts import add, export, journal, label, list_, remove

COMMANDS: dict[str, Callable[..., None]] = {
    "list": list_,
    "add": add,
    "label": label,
    "remove": remove,
    "preview": preview,
    "learn": learn,
    "teach": teach,
    "recalibrate": recalibrate,
    "versions": versions_,
    "undo": undo,
    "journal": journal,
    "export": export,
}
