"""The inbox: parts that somebody has called good or defective, in one SQLite file beside the models.

It holds the image itself, what the model said of it then, and who said what about it when. So it is there for learning
and calibrating however long the line has gone on, and nothing else has to be kept.

An image is in it once for each model. Every statement about it stays, and the newest counts; one that withdraws the
label leaves the image until its room is needed. Whether a model has learnt from it is not written down: the model
knows, by the hash of the image, also after going back to an earlier one.
"""

from __future__ import annotations

import hashlib
import sqlite3
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, Literal

from mhpatchcore.deploy.inbox.journal import Journal, cleaned, fetched, opened, write
from mhpatchcore.errors import UserError

FILE = "inbox.sqlite"
Label = Literal["good", "defect"]
MOST_IMAGE = 64 * 2**20  # bytes of one image
MOST_BYTES = 16 * 2**30  # of all of them


class NoSuchPartError(UserError):
    """There is no part of this number in the inbox."""

    def __init__(self, id: int) -> None:
        super().__init__(f"there is no part {id} in the inbox; `inbox list` shows them")


@dataclass(frozen=True)
class Said:
    """What a model said of an image: `model_sha256` is the hash of its file. A score that is unknown is None."""

    score: float | None = None
    threshold: float | None = None
    p_value: float | None = None
    verdict: str = "not scored"
    model_sha256: str = ""


@dataclass(frozen=True, kw_only=True)
class Statement(Said):
    """What somebody said of a part, and what the model had said of it; a label that is None took one back.

    `part` is what the line calls it, `name` the image's file.
    """

    id: int
    label: Label | None
    part: str
    name: str
    who: str
    at: str
    note: str


@dataclass(frozen=True, kw_only=True)
class Part(Statement):
    """A labelled part, without its image, as the newest statement has it; `id` is that of the part."""

    label: Label
    model: str
    sha256: str
    bytes: int


STATEMENT = ", ".join(field.name for field in fields(Statement))
OF_PARTS = ("id", "model", "sha256", "bytes")
COLUMNS = (f"{'parts' if one.name in OF_PARTS else 'journal'}.{one.name}" for one in fields(Part))
NEWEST = "journal.id = (SELECT max(id) FROM journal WHERE part_id = parts.id)"
PARTS = f"SELECT {', '.join(COLUMNS)} FROM parts JOIN journal ON {NEWEST}"


@dataclass(frozen=True)
class Inbox:
    """An inbox in a file, which is made when first written to. Threads and processes may share it."""

    path: Path

    @staticmethod
    def beside(model: Path) -> Inbox:
        """The inbox of the models in a folder."""
        return Inbox(model.parent / FILE)

    @property
    def journal(self) -> Journal:
        """What was done to the models."""
        return Journal(self.path)

    def add(
        self,
        model: str,
        label: str,
        image: bytes,
        name: str = "",
        *,
        part: str = "",
        said: Said | None = None,
        who: str = "",
        note: str = "",
    ) -> Part:
        """Keep an image and what is said of it now."""
        if not 0 < len(image) <= MOST_IMAGE:
            raise UserError(
                f"image {name} has {len(image) / 2**20:.3g} MB: the inbox keeps images that are not empty, of at most "
                f"{MOST_IMAGE // 2**20} MB; save it smaller"
            )
        given = {"model": model, "label": label, "part": part, "name": name}
        statement = cleaned(given | asdict(said or Said()) | {"who": who, "note": note})
        with opened(self.path, write=True) as db:
            self._make_room(db, len(image))
            (id_,) = db.execute(
                "INSERT INTO parts (model, sha256, bytes, image) VALUES (?, ?, ?, ?) "
                "ON CONFLICT (model, sha256) DO UPDATE SET image = excluded.image RETURNING id",
                [model, hashlib.sha256(image).hexdigest(), len(image), image],
            ).fetchone()
            return _say(db, id_, statement)

    def parts(
        self, model: str | None = None, label: str | None = None, ids: Sequence[int] | None = None
    ) -> list[Part]:
        """Labelled parts, the newest first. An id that is not there is named."""
        rows = fetched(
            self.path,
            f"{PARTS} WHERE label IS NOT NULL AND parts.model = coalesce(:model, parts.model) "
            "AND label = coalesce(:label, label) ORDER BY parts.id DESC",
            cleaned({"model": model, "label": label}),
        )
        found = [Part(**row) for row in rows if ids is None or row["id"] in ids]
        missing = set(ids or ()) - {one.id for one in found}
        if missing:
            raise NoSuchPartError(min(missing))
        return found

    def part(self, id: int) -> Part:
        return self.parts(ids=[id])[0]

    def image(self, id: int) -> bytes:
        """The image's file, byte for byte."""
        found = fetched(self.path, "SELECT image FROM parts WHERE id = ? AND image IS NOT NULL", [id])
        if not found:
            raise NoSuchPartError(id)
        return bytes(found[0]["image"])

    def statements(self, id: int) -> list[Statement]:
        """All that was said of a part, the newest first."""
        rows = fetched(self.path, f"SELECT {STATEMENT} FROM journal WHERE part_id = ? ORDER BY id DESC", [id])
        if not rows:
            raise NoSuchPartError(id)
        return [Statement(**row) for row in rows]

    def relabel(self, id: int, label: str | None = None, *, who: str = "", note: str | None = None) -> Part:
        """Correct what was said of a part, or bring a withdrawn label back; a label or note that is not given stays."""
        given = {"label": label, "who": who, "note": note}
        known = {name: value for name, value in given.items() if value is not None}
        return self._restate(id, known, is_back=label is not None)

    def withdraw(self, id: int, *, who: str = "", note: str = "") -> None:
        """Take back what was said of a part: it counts no more."""
        self._restate(id, {"label": None, "who": who, "note": note}, is_back=False)

    def _restate(self, id: int, given: dict[str, Any], is_back: bool) -> Part:
        """Say something else of a part, which must have a label unless it gets one back."""
        with opened(self.path, write=True) as db:
            before = _newest(db, id)
            if before is None or (before["label"] is None and not is_back):
                raise NoSuchPartError(id)
            return _say(db, id, before | cleaned(given))

    def _make_room(self, db: sqlite3.Connection, n: int) -> None:
        """Refuse more than all of it may take; images whose label was withdrawn go first."""
        size = "SELECT coalesce(sum(bytes), 0) FROM parts WHERE image IS NOT NULL"
        if db.execute(size).fetchone()[0] + n > MOST_BYTES:
            withdrawn = f"(SELECT label FROM journal WHERE {NEWEST}) IS NULL"
            db.execute(f"UPDATE parts SET image = NULL WHERE {withdrawn}")
        total = db.execute(size).fetchone()[0]
        if total + n > MOST_BYTES:
            raise UserError(
                f"{self.path} holds {total / 2**30:.1f} GB, which is all it takes: `inbox export` and "
                "`inbox remove` make room"
            )


def _newest(db: sqlite3.Connection, id: int) -> dict[str, Any] | None:
    """The newest statement about a part that has its image."""
    has_image = "parts.id = ? AND image IS NOT NULL"
    row = db.execute(
        f"SELECT journal.* FROM parts JOIN journal ON {NEWEST} WHERE {has_image}", [id]
    ).fetchone()
    return row and dict(row)


def _say(db: sqlite3.Connection, id: int, statement: dict[str, Any]) -> Part:
    """The part after a statement; one that repeats the last is not written again."""
    before = _newest(db, id)
    if before is None or not statement.items() <= before.items():
        what = "label" if statement["label"] else "withdraw"
        write(db, statement | {"part_id": id, "what": what, "state": "done"})
    return Part(**db.execute(f"{PARTS} WHERE parts.id = ?", [id]).fetchone())
