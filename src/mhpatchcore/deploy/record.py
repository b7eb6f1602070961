"""A durable record of every verdict, in one SQLite file beside the models, and the way out as a table.

A thread of its own writes it, so no verdict waits for the disk. All that has come meanwhile is one transaction: a kill
or a power cut loses the last moment at most, and never half a row. What is older than it should be goes with the same
transactions. While the disk fails verdicts wait, up to a number; what is lost beyond that is counted and logged.

Times are in UTC. `sha256` is that of the model file, `image_sha256` that of the image.
"""

from __future__ import annotations

import json
import logging
import sqlite3
import tempfile
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import islice
from pathlib import Path
from typing import Any

from mhpatchcore.errors import UserError
from mhpatchcore.inputs.loading import MEASURES
from mhpatchcore.runtime.files import csv_text, import_parquet

log = logging.getLogger("mhpatchcore")
FILE = "verdicts.sqlite"
KIND, SCHEMA = 0x6D68_7076, 2  # what the file says it is: "mhpv"
MOST_WAITING = 10_000  # verdicts, and of them that many with their images:
IMAGES_WAITING = 50
AT_ONCE = 500  # rows of a transaction
GOING = 1000  # rows that go with a transaction, at most
AGAIN = 1.0  # seconds after which a write that failed is tried again
CLOSING = 10.0  # seconds for the last write
LOCKED = 20.0  # seconds for another process to finish its write
ROWS, GROUP = 500, 50_000  # of a piece of text, and of a group in Parquet
BYTES = 2**18  # of a piece of Parquet

COLUMNS = {
    "id": "TEXT NOT NULL",
    "at": "TEXT NOT NULL",
    "part": "TEXT",
    "name": "TEXT NOT NULL",
    "model": "TEXT NOT NULL",
    "sha256": "TEXT NOT NULL",
    "score": "REAL",
    "threshold": "REAL",
    "p_value": "REAL",
    "verdict": "TEXT NOT NULL",
    "reason": "TEXT",
    "defect": "TEXT",
    "is_like_known": "INTEGER",
    "trial": "INTEGER NOT NULL",
    "height": "INTEGER",
    "width": "INTEGER",
    "regions": "TEXT NOT NULL",
    "queue": "REAL NOT NULL",
    "decode": "REAL NOT NULL",
    "compute": "REAL NOT NULL",
    "image_sha256": "TEXT NOT NULL",
    **dict.fromkeys(MEASURES, "REAL"),
}
NAMES = ", ".join(COLUMNS)
PHASES = ("queue", "decode", "compute")
SAME = [name for name in COLUMNS if name not in ("height", "width", "regions", *PHASES, *MEASURES)]
TABLES = (
    "CREATE TABLE verdicts (n INTEGER PRIMARY KEY AUTOINCREMENT, "
    + ", ".join(f'"{name}" {kind}' for name, kind in COLUMNS.items())
    + ")",
    "CREATE INDEX times ON verdicts (at)",
    "CREATE TABLE images (n INTEGER PRIMARY KEY REFERENCES verdicts ON DELETE CASCADE, bytes INTEGER NOT NULL, "
    "image BLOB NOT NULL)",
    "CREATE INDEX sizes ON images (n, bytes)",
    f"PRAGMA application_id = {KIND}",
    f"PRAGMA user_version = {SCHEMA}",
)
Answer = dict[str, Any]  # a part, as the service tells it
Entry = tuple[Answer, bytes | None]  # with its image
IMAGES = ("none", "rejected", "all")
CONDITIONS = ("at >= ?", "at < ?", "model = ?", "verdict = ?")


@dataclass(frozen=True)
class Keeping:
    """What stays in a record: verdicts by their age and number, images by a rule and their bytes."""

    days: float = 365
    rows: int = 2_000_000
    images: str = "none"
    image_bytes: int = 2_000_000_000

    def __post_init__(self) -> None:
        if self.images not in IMAGES:
            raise UserError(f"images are kept by one of {', '.join(IMAGES)}, not {self.images!r}")

    def wants_image(self, answer: Answer) -> bool:
        return self.images == "all" or (self.images == "rejected" and answer["verdict"] == "rejected")


class Record:
    """The record of a running service: `add` never waits; `close` writes what is left."""

    def __init__(self, path: Path, keeping: Keeping | None = None) -> None:
        self.path, self._keeping = path, keeping or Keeping()
        self.lost, self.problem = 0, ""
        self._waiting: deque[Entry] = deque()
        self._some, self._ending = threading.Event(), threading.Event()
        _made(path).close()
        self._thread = threading.Thread(target=self._write, name="record", daemon=True)
        self._thread.start()

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    def add(self, answer: Answer, image: bytes | None) -> None:
        if self.waiting >= MOST_WAITING:
            self._lose(1)
            return
        keeps = self._keeping.wants_image(answer) and self.waiting < IMAGES_WAITING
        self._waiting.append((answer, image if keeps else None))
        self._some.set()

    def newest(self, most: int, most_bytes: int) -> list[Entry]:
        """The last parts, the oldest first, with their images where they were kept, up to so many bytes."""
        found: list[Entry] = []
        with _readable(self.path) as db:
            rows = db.execute(
                f"SELECT {NAMES}, bytes, image FROM verdicts LEFT JOIN images USING (n) ORDER BY n DESC LIMIT ?",
                (most,),
            )
            for *row, size, image in rows:
                most_bytes -= size or 0
                found.append((answer_of(row), image if most_bytes >= 0 else None))
        return found[::-1]

    def close(self) -> None:
        """Write what is left, and end."""
        self._ending.set()
        self._some.set()
        self._thread.join(CLOSING)
        self._lose(self.waiting)

    def _write(self) -> None:
        db: sqlite3.Connection | None = None
        while self.waiting or not self._ending.is_set():
            self._some.wait()
            self._some.clear()
            while self.waiting:
                batch = [self._waiting[i] for i in range(min(self.waiting, AT_ONCE))]
                try:
                    if db is None or not self.path.exists():
                        db = _made(self.path)
                    _add(db, batch, self._keeping)
                    self.problem = ""
                except (sqlite3.Error, UserError) as error:
                    if not self.problem:
                        log.error("verdicts cannot be recorded now, and wait: %s", error)
                    self.problem, db = str(error), None
                    if self._ending.is_set():
                        return
                    self._ending.wait(AGAIN)
                    continue
                except Exception:  # one batch must not end the record
                    log.exception("verdicts cannot be recorded")
                    self._lose(len(batch))
                for _ in batch:
                    self._waiting.popleft()
        if db is not None:
            db.close()

    def _lose(self, n: int) -> None:
        if n and not self.lost:
            log.error("verdicts are not recorded: %s", self.problem or "the record cannot keep up")
        self.lost += n


def beside(place: Path) -> Path:
    """The record of a folder of models, or of that in which a model lies."""
    return (place if place.is_dir() else place.parent) / FILE


def verdicts(
    path: Path,
    since: datetime | None = None,
    until: datetime | None = None,
    model: str | None = None,
    verdict: str | None = None,
    limit: int = -1,
) -> Iterator[Answer]:
    """The verdicts of a record, the oldest first: from a time on, before another, of a model, of a kind, so many."""
    given = (since and in_utc(since), until and in_utc(until), model, verdict)
    wanted = [(name, value) for name, value in zip(CONDITIONS, given, strict=True) if value is not None]
    where = " AND ".join(["TRUE", *(name for name, _ in wanted)])
    with _readable(path) as db:
        query = f"SELECT {NAMES} FROM verdicts WHERE {where} ORDER BY n LIMIT ?"
        yield from map(answer_of, db.execute(query, [*(value for _, value in wanted), limit]))


def row_of(answer: Answer) -> dict[str, Any]:
    """A part as the service tells it, as a flat row of plain values."""
    height, width = answer["size"] or (None, None)
    return {
        **{name: answer[name] for name in SAME},
        "height": height,
        "width": width,
        "regions": json.dumps(answer["regions"]),
        **{phase: answer["seconds"][phase] for phase in PHASES},
        **(answer["camera"] or dict.fromkeys(MEASURES)),
    }


def answer_of(row: Any) -> Answer:
    """The part that a row was made of."""
    facts = dict(zip(COLUMNS, row, strict=True))
    judged = facts["verdict"] != "no threshold"
    return {
        **{name: facts[name] for name in SAME},
        "is_rejected": facts["verdict"] == "rejected" if judged else None,
        "is_like_known": None if facts["is_like_known"] is None else bool(facts["is_like_known"]),
        "trial": bool(facts["trial"]),
        "size": None if facts["height"] is None else [facts["height"], facts["width"]],
        "regions": json.loads(facts["regions"]),
        "camera": None if facts["score"] is None else {name: facts[name] for name in MEASURES},
        "seconds": {phase: facts[phase] for phase in PHASES},
    }


def in_utc(time: datetime) -> str:
    """A time as it stands in a record; one without an offset is in UTC already.

    >>> in_utc(datetime.fromisoformat("2026-11-18T08:30:00+01:00"))
    '2026-11-18T07:30:00.000+00:00'
    """
    aware = time if time.tzinfo else time.replace(tzinfo=UTC)
    try:
        return aware.astimezone(UTC).isoformat(timespec="milliseconds")
    except OverflowError:
        raise UserError(f"{time} is out of range: give a time such as 2026-11-18T08:30:00Z") from None


def as_csv(answers: Iterable[Answer]) -> Iterator[bytes]:
    """A table with a header; regions are JSON."""
    yield csv_text(list(COLUMNS), []).encode()
    for some in _pieces(answers, ROWS):
        yield csv_text(list(COLUMNS), map(row_of, some), header=False).encode()


def as_json_lines(answers: Iterable[Answer]) -> Iterator[bytes]:
    """A line for each part, in the shape in which the service tells it."""
    for some in _pieces(answers, ROWS):
        yield "".join(f"{json.dumps(answer)}\n" for answer in some).encode()


def as_parquet(answers: Iterable[Answer]) -> Iterator[bytes]:
    """A table with typed columns; regions are a list of structures."""
    pyarrow, parquet = import_parquet()
    kinds = {"TEXT": pyarrow.string(), "REAL": pyarrow.float64(), "INTEGER": pyarrow.int64()}
    numbers = pyarrow.list_(pyarrow.int64())
    region = {"box": numbers, "area": pyarrow.int64(), "peak": pyarrow.float64(), "peak_at": numbers}
    own = {
        "at": pyarrow.timestamp("ms", "UTC"),
        "trial": pyarrow.bool_(),
        "is_like_known": pyarrow.bool_(),
        "regions": pyarrow.list_(pyarrow.struct(list(region.items()))),
    }
    schema = pyarrow.schema([(name, own.get(name, kinds[kind.split()[0]])) for name, kind in COLUMNS.items()])
    with tempfile.TemporaryFile() as file:
        with parquet.ParquetWriter(file, schema) as writer:
            for some in _pieces(answers, GROUP):
                rows = [
                    row_of(one) | {"regions": one["regions"], "at": datetime.fromisoformat(one["at"])}
                    for one in some
                ]
                writer.write_table(pyarrow.Table.from_pylist(rows, schema=schema))
        file.seek(0)
        while piece := file.read(BYTES):
            yield piece


def _pieces(answers: Iterable[Answer], size: int) -> Iterator[list[Answer]]:
    left = iter(answers)
    while piece := list(islice(left, size)):
        yield piece


EXPORTS: dict[str, Callable[[Iterable[Answer]], Iterator[bytes]]] = {
    "csv": as_csv,
    "jsonl": as_json_lines,
    "parquet": as_parquet,
}


def _add(db: sqlite3.Connection, batch: Sequence[Entry], keeping: Keeping) -> None:
    """Write a batch; what is too old or too much goes, some at a time."""
    marks = ", ".join(f":{name}" for name in COLUMNS)
    with db:
        db.execute("BEGIN IMMEDIATE")
        for answer, image in batch:
            added = db.execute(f"INSERT INTO verdicts ({NAMES}) VALUES ({marks})", row_of(answer))
            if image is not None:
                db.execute("INSERT INTO images VALUES (?, ?, ?)", (added.lastrowid, len(image), image))
        oldest = in_utc(datetime.now(UTC) - timedelta(days=keeping.days))
        (last,) = db.execute("SELECT coalesce(max(n), 0) FROM verdicts").fetchone()
        for condition, value in (("at < ?", oldest), ("n <= ?", last - keeping.rows)):
            found = f"SELECT n FROM verdicts WHERE {condition} LIMIT {GOING}"
            db.execute(f"DELETE FROM verdicts WHERE n IN ({found})", (value,))  # with their images
        _let_go_of_images(db, keeping.image_bytes)


def _let_go_of_images(db: sqlite3.Connection, most_bytes: int) -> None:
    """The oldest go while they are too much."""
    (too_much,) = db.execute("SELECT coalesce(sum(bytes), 0) - ? FROM images", (most_bytes,)).fetchone()
    while too_much > 0:
        n, size = db.execute("SELECT n, bytes FROM images ORDER BY n LIMIT 1").fetchone()
        db.execute("DELETE FROM images WHERE n = ?", (n,))
        too_much -= size


def _made(path: Path) -> sqlite3.Connection:
    """A connection that writes, to a record that is made where there is none."""
    try:
        db = sqlite3.connect(path, LOCKED, isolation_level=None)
        if not _is_new(db):
            _check(db, path)
        for setting in ("journal_mode = WAL", "synchronous = FULL", "foreign_keys = ON"):
            db.execute(f"PRAGMA {setting}")
        with db:
            db.execute("BEGIN IMMEDIATE")
            if _is_new(db):  # and no other process was faster
                for statement in TABLES:
                    db.execute(statement)
    except sqlite3.Error as error:
        raise UserError(
            f"cannot use the record {path}: {error}; check its folder and free space, or name another: --record FILE"
        ) from error
    return db


@contextmanager
def _readable(path: Path) -> Iterator[sqlite3.Connection]:
    """A connection that only reads; one thread after the other may use it."""
    try:
        if not path.is_file():
            raise UserError(f"there is no record {path}: `serve` writes {FILE} beside its models")
        address = f"{path.absolute().as_uri()}?mode=ro"
        with closing(sqlite3.connect(address, LOCKED, uri=True, check_same_thread=False)) as db:
            _check(db, path)
            yield db
    except sqlite3.Error as error:
        raise UserError(f"cannot read the record {path}: {error}; check that it is one") from error


def _is_new(db: sqlite3.Connection) -> bool:
    return bool(db.execute("SELECT count(*) = 0 FROM sqlite_schema").fetchone()[0])


def _check(db: sqlite3.Connection, path: Path) -> None:
    kind, schema = (db.execute(f"PRAGMA {name}").fetchone()[0] for name in ("application_id", "user_version"))
    if (kind, schema) != (KIND, SCHEMA):
        raise UserError(f"{path} is not a record of this version: move it away, or name another")
