"""What was done to models, in the journal of an inbox: by whom, when, why, and what it was before and after.

    intended → done
            ↘ not done

A change is written down before it happens. What was only intended when a process was killed is settled by the next one,
which sees from the model's file whether it happened (`change.settle`).
"""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass, fields
from math import isfinite
from pathlib import Path
from typing import Any

from mhpatchcore.deploy.inbox.file import opened
from mhpatchcore.errors import UserError

MOST_TEXT = 2000  # letters of a note or a name
FOUND = "found"  # a file that somebody has put in a model's place by hand


@dataclass(frozen=True)
class Change:
    """A model took the place of another; hashes are those of the files, `product` is that of the new one."""

    model: str
    what: str
    who: str
    note: str
    sha256_before: str
    sha256_after: str
    threshold_before: float | None
    threshold_after: float | None
    product: str
    state: str = "intended"
    at: str = ""
    id: int = 0


COLUMNS = ", ".join(field.name for field in fields(Change))


@dataclass(frozen=True)
class Journal:
    """The journal in the file of an inbox."""

    path: Path

    def intend(self, change: Change) -> int:
        """Write down what is about to happen; its number."""
        with opened(self.path, write=True) as db:
            return int(db.execute(*_inserted(change)).lastrowid or 0)

    def end(self, id: int, state: str) -> None:
        """Say what became of an intent."""
        with opened(self.path, write=True) as db:
            db.execute("UPDATE journal SET state = ? WHERE id = ? AND state = 'intended'", [state, id])

    def found(self, model: str, sha256: str, threshold: float | None, product: str) -> bool:
        """Write down that a model is in use, unless the journal says so already; whether it did not.

        So a file that was put in its place by hand is recorded too.
        """
        with opened(self.path, write=True) as db:
            rows = db.execute(
                f"{_CHANGES} AND state IN ('done', 'intended') ORDER BY id DESC LIMIT 1", [model]
            )
            last = next((Change(*row) for row in rows), None)
            if last is not None and sha256 == last.sha256_after:
                return False
            if last is not None and sha256 == last.sha256_before and last.state == "intended":
                return False
            before, limit = (last.sha256_after, last.threshold_after) if last else ("", None)
            values = (before, sha256, limit, threshold, product)
            db.execute(*_inserted(Change(model, FOUND, "", "", *values, state="done")))
        return True

    def changes(self, model: str) -> list[Change]:
        """How a model was changed, the latest first."""
        with opened(self.path) as db:
            return [Change(*row) for row in db.execute(f"{_CHANGES} ORDER BY id DESC", [model])]

    def product(self, model: str) -> str:
        """What a model is known to inspect; empty where nobody has ever said so."""
        return next((one.product for one in self.changes(model) if one.state == "done" and one.product), "")

    def is_told(self, model: str, sha256: str) -> bool:
        """Whether somebody has put this very file in the model's place, and not by hand."""
        return any(
            one.sha256_after == sha256 and one.what != FOUND and one.state != "not done"
            for one in self.changes(model)
        )

    def entries(self, model: str) -> list[dict[str, Any]]:
        """Everything that was said and done, the latest first; what does not apply is left out."""
        with opened(self.path) as db:
            rows = db.execute("SELECT * FROM journal WHERE model = ? ORDER BY id DESC", [model])
            names = [column[0] for column in rows.description]
            return [
                {name: value for name, value in zip(names, row, strict=True) if value is not None}
                for row in rows
            ]


_CHANGES = f"SELECT {COLUMNS} FROM journal WHERE model = ? AND part_id IS NULL"


def _inserted(change: Change) -> tuple[str, dict[str, Any]]:
    row = {name: finite(value) for name, value in asdict(change).items() if name != "id"}
    row |= {"at": now(), "who": checked_text("who", change.who), "note": checked_text("note", change.note)}
    return f"INSERT INTO journal ({', '.join(row)}) VALUES ({', '.join(f':{name}' for name in row)})", row


def as_given(name: str, text: str) -> str:
    """A text of some length; bytes of a file's name that are no text are written as \\\\udcff."""
    if len(text) > MOST_TEXT:
        raise UserError(f"{name} has {len(text)} letters: {MOST_TEXT} are enough")
    return text.encode("utf-8", "backslashreplace").decode()


def checked_text(name: str, text: str) -> str:
    """The same on one line."""
    return "".join(one if one.isprintable() else " " for one in as_given(name, text)).strip()


def finite(value: Any) -> Any:
    """A number that is none (no threshold) is unknown."""
    return None if isinstance(value, float) and not isfinite(value) else value


def now() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
