"""The file of an inbox: what is in it, how it is made, and one transaction at a time."""

from __future__ import annotations

import secrets
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

from mhpatchcore.errors import UserError

KIND, SCHEMA = 0x6D68_7063, 1  # what the file says it is: "mhpc"
WAIT = 20  # seconds for another process to finish its write

TABLES = (
    """CREATE TABLE parts (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    model TEXT NOT NULL,
    label TEXT NOT NULL CHECK (label IN ('good', 'defect')),
    part TEXT NOT NULL,
    name TEXT NOT NULL,
    sha256 TEXT NOT NULL,
    bytes INTEGER NOT NULL,
    score REAL,
    threshold REAL,
    p_value REAL,
    verdict TEXT NOT NULL,
    model_sha256 TEXT NOT NULL,
    who TEXT NOT NULL,
    at TEXT NOT NULL,
    note TEXT NOT NULL,
    image BLOB NOT NULL,
    UNIQUE (model, sha256)
)""",
    """CREATE TABLE changes (
    id INTEGER PRIMARY KEY,
    model TEXT NOT NULL,
    what TEXT NOT NULL,
    who TEXT NOT NULL,
    at TEXT NOT NULL,
    note TEXT NOT NULL,
    sha256_before TEXT NOT NULL,
    sha256_after TEXT NOT NULL
)""",
)


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
                raise UserError(f"{path} is not an inbox of this version: name another file")
            with db:
                db.execute("BEGIN IMMEDIATE" if write else "BEGIN")
                yield db
    except (sqlite3.Error, OSError) as error:
        raise UserError(
            f"cannot use the inbox {path}: {error}; check that it is one, its folder and free space"
        ) from error


def _make(path: Path) -> None:
    """A new inbox, beside its place and then there, unless another process was faster.

    The journal is chosen while nobody else can have the file open, for which SQLite would not wait.
    """
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        with closing(_connection(temporary)) as db:
            _make_tables(db)
            db.execute("PRAGMA journal_mode = WAL")
        with suppress(FileExistsError):
            path.hardlink_to(temporary)
    finally:
        temporary.unlink(missing_ok=True)


def _make_tables(db: sqlite3.Connection) -> None:
    for statement in (*TABLES, f"PRAGMA application_id = {KIND}", f"PRAGMA user_version = {SCHEMA}"):
        db.execute(statement)


def _connection(path: str | Path) -> sqlite3.Connection:
    return sqlite3.connect(path, WAIT, isolation_level=None)


def _kind(db: sqlite3.Connection) -> tuple[int, int]:
    """What the file says it is."""
    kind, schema = (db.execute(f"PRAGMA {name}").fetchone()[0] for name in ("application_id", "user_version"))
    return kind, schema
