"""What `watch` remembers, in one SQLite file: which files were judged, and which messages still have to go out.

A verdict and its messages are written in one transaction. That moment counts: before it a file has not been judged, and
after a kill or a power cut it is judged then; after it nothing is judged again, and what was not finished (a JSON file,
a line of the CSV file, a move) is done again from the journal, which changes nothing where it had been done.

Names of files are kept as bytes: not all of them are text.
"""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from mhpatchcore.errors import UserError

SCHEMA = """
CREATE TABLE IF NOT EXISTS judged (
    id INTEGER PRIMARY KEY, name BLOB NOT NULL, size INTEGER NOT NULL, changed INTEGER NOT NULL, place BLOB NOT NULL,
    answer TEXT, UNIQUE (name, size, changed)
);
CREATE INDEX IF NOT EXISTS unfinished ON judged (id) WHERE answer IS NOT NULL;
CREATE TABLE IF NOT EXISTS messages (
    id INTEGER PRIMARY KEY, target TEXT NOT NULL, content TEXT NOT NULL, refused TEXT
);
"""


class Arrived(NamedTuple):
    """A file of the inbox: its name there, and what tells it from a later one of that name."""

    name: str
    size: int
    changed: int


@dataclass(frozen=True)
class Judged:
    """A file with its answer, which is not finished; `place` is its name among the results, without a suffix."""

    id: int
    file: Arrived
    place: str
    answer: dict[str, Any]


class Journal:
    """One connection to the file; each thread has its own."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            self._db = sqlite3.connect(path, timeout=30, isolation_level=None)
            self._db.execute("PRAGMA journal_mode=WAL")
            # a verdict that was told is not forgotten by a power cut
            self._db.execute("PRAGMA synchronous=FULL")
            self._db.executescript(SCHEMA)
        except sqlite3.Error as error:
            raise UserError(f"cannot use the journal {path}: {error}; move it away") from error

    def check(self) -> None:
        """Refuse to go on where the file is gone: SQLite would go on writing to what nobody can read again."""
        if not self.path.exists():
            raise UserError(f"the journal {self.path} is gone: bring its folder back, or start again")

    def knows(self, file: Arrived) -> bool:
        found = self._db.execute("SELECT 1 FROM judged WHERE name=? AND size=? AND changed=?", _row(file))
        return found.fetchone() is not None

    def add(self, file: Arrived, place: str, answer: dict[str, Any], targets: Iterable[str]) -> Judged:
        """A verdict, and a message of it for each target: both or none."""
        content = json.dumps(answer)
        with self._writing() as db:
            added = db.execute(
                "INSERT INTO judged (name, size, changed, place, answer) VALUES (?, ?, ?, ?, ?)",
                (*_row(file), os.fsencode(place), content),
            )
            rows = [(target, content) for target in targets]
            db.executemany("INSERT INTO messages (target, content) VALUES (?, ?)", rows)
        return Judged(added.lastrowid or 0, file, place, answer)

    def unfinished(self) -> list[Judged]:
        """What was judged when an earlier run was stopped, in the order of the verdicts."""
        rows = self._db.execute(
            "SELECT id, name, size, changed, place, answer FROM judged WHERE answer IS NOT NULL ORDER BY id"
        )
        return [
            Judged(id_, Arrived(os.fsdecode(name), *file), os.fsdecode(place), json.loads(answer))
            for id_, name, *file, place, answer in rows.fetchall()
        ]

    def finish(self, judged: Judged) -> None:
        """All files of it are written."""
        self._db.execute("UPDATE judged SET answer=NULL WHERE id=?", (judged.id,))

    def forget_gone(self, names: set[str]) -> None:
        """Let go of finished files that are no longer in the inbox; `names` are those that are."""
        rows = self._db.execute("SELECT id, name FROM judged WHERE answer IS NULL").fetchall()
        gone = [(id_,) for id_, name in rows if os.fsdecode(name) not in names]
        with self._writing() as db:
            db.executemany("DELETE FROM judged WHERE id=?", gone)

    def next_message(self, target: str) -> tuple[int, str] | None:
        """The number and content of the oldest one; those that were refused stay where they are."""
        found: tuple[int, str] | None = self._db.execute(
            "SELECT id, content FROM messages WHERE target=? AND refused IS NULL ORDER BY id LIMIT 1",
            (target,),
        ).fetchone()
        return found

    def sent(self, id: int) -> None:
        self._db.execute("DELETE FROM messages WHERE id=?", (id,))

    def refused(self, id: int, why: str) -> None:
        """The other side does not want this very message: the next ones need not wait for it."""
        self._db.execute("UPDATE messages SET refused=? WHERE id=?", (why, id))

    def waiting(self, targets: Sequence[str]) -> int:
        """How many messages have to go out."""
        marks = ",".join("?" * len(targets))
        query = f"SELECT COUNT(*) FROM messages WHERE refused IS NULL AND target IN ({marks})"
        return int(self._db.execute(query, targets).fetchone()[0])

    def close(self) -> None:
        self._db.close()

    @contextmanager
    def _writing(self) -> Iterator[sqlite3.Connection]:
        with self._db as db:
            db.execute("BEGIN IMMEDIATE")
            yield db


def _row(file: Arrived) -> tuple[bytes, int, int]:
    return os.fsencode(file.name), file.size, file.changed
