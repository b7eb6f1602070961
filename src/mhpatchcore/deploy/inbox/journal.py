"""The file of an inbox, one transaction at a time, and the journal in it.

`parts` are images. `journal` is everything that was said or done, each by a row that stays: a statement about a part
(`part_id`, `label`; none withdraws it) or a change of a model (hashes and thresholds before and after). Of the
statements about a part the newest counts.

    intended → done
            ↘ not done

A change is written down before it happens. What was only intended when a process was killed is settled by the next one,
which sees from the model's file whether it happened (`versions.settle`).
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from mhpatchcore.errors import UserError
from mhpatchcore.runtime.files import temporary_beside
from mhpatchcore.runtime.system import flush
from mhpatchcore.runtime.texts import encodable, representable

KIND, SCHEMA = 0x6D68_7063, 2  # what the file says it is: "mhpc"
WAIT = 10  # seconds for another process to finish its write

TABLES = f"""
CREATE TABLE parts (
    id INTEGER PRIMARY KEY AUTOINCREMENT, model TEXT NOT NULL, sha256 TEXT NOT NULL, bytes INTEGER NOT NULL, image BLOB,
    UNIQUE (model, sha256)
);
CREATE TABLE journal (
    id INTEGER PRIMARY KEY AUTOINCREMENT, at TEXT NOT NULL, model TEXT NOT NULL, what TEXT NOT NULL,
    state TEXT NOT NULL CHECK (state IN ('intended', 'done', 'not done', 'unknown')),
    who TEXT NOT NULL, note TEXT NOT NULL,
    part_id INTEGER REFERENCES parts, label TEXT CHECK (label IN ('good', 'defect')), part TEXT, name TEXT,
    score REAL, threshold REAL, p_value REAL, verdict TEXT, model_sha256 TEXT,
    sha256_before TEXT, sha256_after TEXT, threshold_before REAL, threshold_after REAL, product TEXT
);
CREATE INDEX journal_of_a_part ON journal (part_id, id);
CREATE INDEX journal_of_a_model ON journal (model, id);
CREATE TRIGGER nothing_is_erased BEFORE DELETE ON journal
BEGIN SELECT RAISE(ABORT, 'the journal stays'); END;
CREATE TRIGGER nothing_is_rewritten BEFORE UPDATE ON journal WHEN old.state != 'intended'
BEGIN SELECT RAISE(ABORT, 'the journal stays'); END;
PRAGMA application_id = {KIND};
PRAGMA user_version = {SCHEMA};
"""
MOST_TEXT = 2000  # letters of a note or a name
LABELS = ("good", "defect")
FOUND = "found"  # a file that somebody has put in a model's place by hand


class InboxError(UserError):
    """The file of an inbox cannot be used now: it is locked, read-only, damaged, on a full disk."""


@contextmanager
def opened(path: Path, write: bool = False) -> Iterator[sqlite3.Connection]:
    """A connection for one transaction; reading an inbox that is not there yet finds nothing and makes no file."""
    try:
        if write and not path.exists():
            _make(path)
        there = path.exists()
        with closing(sqlite3.connect(path if there else ":memory:", WAIT, isolation_level=None)) as db:
            db.row_factory = sqlite3.Row
            if not there:
                db.executescript(TABLES)
            kind = [db.execute(f"PRAGMA {name}").fetchone()[0] for name in ("application_id", "user_version")]
            if kind != [KIND, SCHEMA]:
                raise InboxError(f"{path} is not an inbox of this version: name another file")
            with db:
                db.execute("BEGIN IMMEDIATE" if write else "BEGIN")
                yield db
    except (sqlite3.Error, OSError) as error:
        raise InboxError(
            f"cannot use the inbox {path}: {error}; check who uses it, its owner and mode, and free space"
        ) from error


def _make(path: Path) -> None:
    """A new inbox, written beside its place and then linked there, unless another process was faster.

    It is in WAL mode from its first byte: SQLite would not wait for others to change that.
    """
    with closing(sqlite3.connect(":memory:")) as db:
        db.executescript(TABLES)
        content = bytearray(db.serialize())
    content[18:20] = b"\2\2"  # the versions of WAL, by https://sqlite.org/fileformat2.html
    path.parent.stat()  # a folder that is not there is not made
    try:
        with temporary_beside(path) as temporary, suppress(FileExistsError):
            temporary.write_bytes(content)
            flush(temporary)
            path.hardlink_to(temporary)
    except UserError as error:
        raise InboxError(str(error)) from error


def fetched(path: Path, query: str, values: Sequence[Any] | dict[str, Any]) -> list[sqlite3.Row]:
    """What an inbox answers to one question."""
    with opened(path) as db:
        return db.execute(query, values).fetchall()


def write(db: sqlite3.Connection, row: dict[str, Any]) -> int:
    """Add a row to the journal, with a number and a time of its own; the number."""
    row = {name: value for name, value in cleaned(row).items() if name != "id"}
    row["at"] = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    names, values = ", ".join(row), ", ".join(f":{name}" for name in row)
    return int(db.execute(f"INSERT INTO journal ({names}) VALUES ({values})", row).lastrowid or 0)


def cleaned(row: dict[str, Any]) -> dict[str, Any]:
    r"""Values as the journal keeps them: known labels, texts of some length, who and why on one line, finite numbers.

    >>> cleaned({"who": " Ada\n", "name": "caf\udce9.png", "threshold": float("inf")})
    {'who': 'Ada', 'name': 'caf\\udce9.png', 'threshold': None}
    """
    row = {name: encodable(representable(value)) for name, value in row.items()}
    if row.get("label") not in (None, *LABELS):
        raise UserError(f"a part is {' or '.join(LABELS)}, not '{row['label']}'")
    for name, value in row.items():
        if isinstance(value, str) and len(value) > MOST_TEXT:
            raise UserError(f"{name} has {len(value)} letters: {MOST_TEXT} are enough")
        if name in ("who", "note"):
            row[name] = "".join(one if one.isprintable() else " " for one in value).strip()
    return row


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


CHANGES = (
    f"SELECT {', '.join(field.name for field in fields(Change))} FROM journal "
    "WHERE model = ? AND part_id IS NULL ORDER BY id DESC"
)


@dataclass(frozen=True)
class Journal:
    """The journal in the file of an inbox."""

    path: Path

    def intend(self, change: Change) -> int:
        """Write down what is about to happen; its number."""
        with opened(self.path, write=True) as db:
            return write(db, asdict(change))

    def end(self, id: int, state: str) -> None:
        """Say what became of an intent."""
        with opened(self.path, write=True) as db:
            db.execute("UPDATE journal SET state = ? WHERE id = ? AND state = 'intended'", [state, id])

    def found(self, model: str, sha256: str, threshold: float | None, product: str) -> None:
        """Write down that a model is in use, unless the journal says so already: it was put there by hand."""
        with opened(self.path, write=True) as db:
            changes = (Change(*row) for row in db.execute(CHANGES, [model]))
            last = next((one for one in changes if one.state in ("done", "intended")), None)
            before, limit = (last.sha256_after, last.threshold_after) if last else ("", None)
            is_under_way = last is not None and last.state == "intended" and sha256 == last.sha256_before
            if sha256 != before and not is_under_way:
                values = (before, sha256, limit, threshold, product)
                write(db, asdict(Change(model, FOUND, "", "", *values, state="done")))

    def changes(self, model: str) -> list[Change]:
        """How a model was changed, the latest first."""
        return [Change(*row) for row in fetched(self.path, CHANGES, [model])]

    def product(self, model: str) -> str:
        """What a model is known to inspect; empty where nobody has ever said so."""
        return next((one.product for one in self.changes(model) if one.state == "done" and one.product), "")

    def was_accepted(self, model: str, sha256: str) -> bool:
        """Whether somebody has put this very file in the model's place, and not by hand."""
        return any(
            one.sha256_after == sha256 and one.what != FOUND and one.state != "not done"
            for one in self.changes(model)
        )

    def entries(self, model: str) -> list[dict[str, Any]]:
        """Everything that was said and done, the latest first; what does not apply is left out."""
        rows = fetched(self.path, "SELECT * FROM journal WHERE model = ? ORDER BY id DESC", [model])
        return [{name: value for name, value in dict(row).items() if value is not None} for row in rows]
