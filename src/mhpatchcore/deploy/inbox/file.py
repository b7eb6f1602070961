"""The file of an inbox: what is in it, how it is made, and one transaction at a time.

`parts` are images. `journal` is everything that was said or done, each by a row that stays: a statement about a part
(`part_id`, `label`; none withdraws it) or a change of a model (hashes and thresholds before and after). Of the
statements about a part the newest counts.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

from mhpatchcore.errors import UserError
from mhpatchcore.runtime.files import temporary_beside
from mhpatchcore.runtime.system import flush

KIND, SCHEMA = 0x6D68_7063, 2  # what the file says it is: "mhpc"
WAIT = 10  # seconds for another process to finish its write

TABLES = (
    """CREATE TABLE parts (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    model TEXT NOT NULL,
    sha256 TEXT NOT NULL,
    bytes INTEGER NOT NULL,
    image BLOB,
    UNIQUE (model, sha256)
)""",
    """CREATE TABLE journal (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    at TEXT NOT NULL,
    model TEXT NOT NULL,
    what TEXT NOT NULL,
    state TEXT NOT NULL CHECK (state IN ('intended', 'done', 'not done', 'unknown')),
    who TEXT NOT NULL,
    note TEXT NOT NULL,
    part_id INTEGER REFERENCES parts,
    label TEXT CHECK (label IN ('good', 'defect')),
    part TEXT,
    name TEXT,
    score REAL,
    threshold REAL,
    p_value REAL,
    verdict TEXT,
    model_sha256 TEXT,
    sha256_before TEXT,
    sha256_after TEXT,
    threshold_before REAL,
    threshold_after REAL,
    product TEXT
)""",
    "CREATE INDEX journal_of_a_part ON journal (part_id, id)",
    "CREATE INDEX journal_of_a_model ON journal (model, id)",
    """CREATE TRIGGER nothing_is_erased BEFORE DELETE ON journal
BEGIN SELECT RAISE(ABORT, 'the journal stays'); END""",
    """CREATE TRIGGER nothing_is_rewritten BEFORE UPDATE ON journal WHEN old.state != 'intended'
BEGIN SELECT RAISE(ABORT, 'the journal stays'); END""",
)


class InboxError(UserError):
    """The file of an inbox cannot be used now: it is locked, read-only, damaged, on a full disk."""


@contextmanager
def opened(path: Path, write: bool = False) -> Iterator[sqlite3.Connection]:
    """A connection for one transaction; reading an inbox that is not there yet finds nothing and makes no file."""
    try:
        if write and not path.exists():
            _make(path)
        there = path.exists()
        with closing(_connection(path if there else ":memory:")) as db:
            if not there:
                _make_tables(db)
            if _kind(db) != (KIND, SCHEMA):
                raise InboxError(f"{path} is not an inbox of this version: name another file")
            with db:
                db.execute("BEGIN IMMEDIATE" if write else "BEGIN")
                yield db
    except (sqlite3.Error, OSError) as error:
        raise InboxError(
            f"cannot use the inbox {path}: {error}; check who uses it, its owner and mode, and free space"
        ) from error


def _make(path: Path) -> None:
    """A new inbox, beside its place and then there, unless another process was faster.

    It is in WAL mode from its first byte: SQLite would not wait for others to change that.
    """
    with closing(_connection(":memory:")) as db:
        _make_tables(db)
        content = bytearray(db.serialize())
    content[18:20] = b"\2\2"  # the versions of WAL, by https://sqlite.org/fileformat2.html
    path.parent.stat()  # a folder that is not there is not made
    try:
        with temporary_beside(path) as temporary:
            temporary.write_bytes(content)
            flush(temporary)
            with suppress(FileExistsError):
                path.hardlink_to(temporary)
    except UserError as error:
        raise InboxError(str(error)) from error


def _make_tables(db: sqlite3.Connection) -> None:
    for statement in (*TABLES, f"PRAGMA application_id = {KIND}", f"PRAGMA user_version = {SCHEMA}"):
        db.execute(statement)


def _connection(path: str | Path) -> sqlite3.Connection:
    return sqlite3.connect(path, WAIT, isolation_level=None)


def _kind(db: sqlite3.Connection) -> tuple[int, int]:
    """What the file says it is."""
    kind, schema = (db.execute(f"PRAGMA {name}").fetchone()[0] for name in ("application_id", "user_version"))
    return kind, schema
