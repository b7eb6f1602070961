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
from typing import Any, Literal, get_args

from mhpatchcore.deploy.inbox.journal import Journal, as_given, checked_text, finite, now, opened
from mhpatchcore.errors import UserError

FILE = "inbox.sqlite"
Label = Literal["good", "defect"]
LABELS: tuple[Label, ...] = get_args(Label)
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


@dataclass(frozen=True)
class Statement:
    """What somebody said of a part, and what the model had said of it; a label that is None took one back.

    `part` is what the line calls it, `name` the image's file.
    """

    id: int
    label: Label | None
    part: str
    name: str
    score: float | None
    threshold: float | None
    p_value: float | None
    verdict: str
    model_sha256: str
    who: str
    at: str
    note: str


@dataclass(frozen=True)
class Part(Statement):
    """A labelled part, without its image, as the newest statement has it; `id` is that of the part."""

    label: Label
    model: str
    sha256: str
    bytes: int

    @property
    def was_rejected(self) -> bool:
        """Whether the model rejected it when it was labelled."""
        return self.verdict == "rejected"


STATEMENT = ", ".join(field.name for field in fields(Statement))
OF_PARTS = ("id", "model", "sha256", "bytes")
PART = ", ".join(f"{'parts' if one.name in OF_PARTS else 'journal'}.{one.name}" for one in fields(Part))
NEWEST = "journal.id = (SELECT max(id) FROM journal WHERE part_id = parts.id)"


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
        if not image:
            raise UserError("an image to be labelled has bytes: this one is empty")
        if len(image) > MOST_IMAGE:
            raise UserError(
                f"image {name} has {len(image) / 2**20:.0f} MB, more than the {MOST_IMAGE // 2**20} MB that the inbox "
                "keeps: save it smaller"
            )
        sha256 = hashlib.sha256(image).hexdigest()
        statement = {
            "label": _checked_label(label),
            "part": as_given("part", part),
            "name": as_given("name", name),
            **{key: finite(value) for key, value in asdict(said or Said()).items()},
            "who": checked_text("who", who),
            "note": checked_text("note", note),
        }
        with opened(self.path, write=True) as db:
            self._make_room(db, len(image))
            (id_,) = db.execute(
                "INSERT INTO parts (model, sha256, bytes, image) VALUES (?, ?, ?, ?) "
                "ON CONFLICT (model, sha256) DO UPDATE SET image = excluded.image RETURNING id",
                [model, sha256, len(image), image],
            ).fetchone()
            return _said(db, id_, statement)

    def parts(
        self, model: str | None = None, label: str | None = None, ids: Sequence[int] | None = None
    ) -> list[Part]:
        """Labelled parts, the newest first. An id that is not there is named."""
        wanted, values = ["label IS NOT NULL"], []
        for column, value in (("parts.model", model), ("label", label and _checked_label(label))):
            if value is not None:
                wanted.append(f"{column} = ?")
                values.append(value)
        with opened(self.path) as db:
            rows = db.execute(
                f"SELECT {PART} FROM parts JOIN journal ON {NEWEST} WHERE {' AND '.join(wanted)} "
                "ORDER BY parts.id DESC",
                values,
            )
            found = [Part(*row) for row in rows]
        if ids is None:
            return found
        missing = set(ids) - {one.id for one in found}
        if missing:
            raise NoSuchPartError(min(missing))
        return [one for one in found if one.id in set(ids)]

    def part(self, id: int) -> Part:
        return self.parts(ids=[id])[0]

    def image(self, id: int) -> bytes:
        """The image's file, byte for byte."""
        with opened(self.path) as db:
            row = db.execute("SELECT image FROM parts WHERE id = ? AND image IS NOT NULL", [id]).fetchone()
        if row is None:
            raise NoSuchPartError(id)
        return bytes(row[0])

    def statements(self, id: int) -> list[Statement]:
        """All that was said of a part, the newest first."""
        with opened(self.path) as db:
            rows = db.execute(f"SELECT {STATEMENT} FROM journal WHERE part_id = ? ORDER BY id DESC", [id])
            found = [Statement(*row) for row in rows]
        if not found:
            raise NoSuchPartError(id)
        return found

    def relabel(self, id: int, label: str | None = None, *, who: str = "", note: str | None = None) -> Part:
        """Correct what was said of a part, or bring a withdrawn label back; a label or note that is not given stays."""
        given = {
            "label": label and _checked_label(label),
            "who": checked_text("who", who),
            "note": None if note is None else checked_text("note", note),
        }
        with opened(self.path, write=True) as db:
            before = _newest(db, id)
            if before is None or (before["label"] is None and label is None):
                raise NoSuchPartError(id)
            return _said(db, id, before | {key: value for key, value in given.items() if value is not None})

    def withdraw(self, id: int, *, who: str = "", note: str = "") -> None:
        """Take back what was said of a part: it counts no more."""
        given = {"label": None, "who": checked_text("who", who), "note": checked_text("note", note)}
        with opened(self.path, write=True) as db:
            before = _newest(db, id)
            if before is None or before["label"] is None:
                raise NoSuchPartError(id)
            _say(db, id, before | given)

    def _make_room(self, db: sqlite3.Connection, n: int) -> None:
        """Refuse more than all of it may take; images whose label was withdrawn go first."""
        for given_up in (False, True):
            if given_up:
                withdrawn = f"(SELECT label FROM journal WHERE {NEWEST}) IS NULL"
                db.execute(f"UPDATE parts SET image = NULL WHERE {withdrawn}")
            total = db.execute("SELECT sum(bytes) FROM parts WHERE image IS NOT NULL").fetchone()[0] or 0
            if total + n <= MOST_BYTES:
                return
        raise UserError(
            f"{self.path} holds {total / 2**30:.1f} GB, which is all it takes: `inbox export` and "
            "`inbox remove` make room"
        )


def _newest(db: sqlite3.Connection, id: int) -> dict[str, Any] | None:
    """What was last said of a part that has its image."""
    names = [one.name for one in fields(Statement) if one.name not in ("id", "at")]
    found = f"FROM parts JOIN journal ON {NEWEST} WHERE parts.id = ? AND image IS NOT NULL"
    row = db.execute(f"SELECT {', '.join(names)} {found}", [id]).fetchone()
    return None if row is None else dict(zip(names, row, strict=True))


def _said(db: sqlite3.Connection, id: int, statement: dict[str, Any]) -> Part:
    """The part after a statement; one that repeats the last is not written again."""
    if statement != _newest(db, id):
        _say(db, id, statement)
    return Part(
        *db.execute(f"SELECT {PART} FROM parts JOIN journal ON {NEWEST} WHERE parts.id = ?", [id]).fetchone()
    )


def _say(db: sqlite3.Connection, id: int, statement: dict[str, Any]) -> None:
    row = statement | {"at": now(), "what": "label" if statement["label"] else "withdraw", "state": "done"}
    names, values = ", ".join(row), ", ".join(f":{name}" for name in row)
    db.execute(
        f"INSERT INTO journal (part_id, model, {names}) SELECT id, model, {values} FROM parts WHERE id = :part_id",
        row | {"part_id": id},
    )


def _checked_label(label: str) -> Label:
    if label not in LABELS:
        raise UserError(f"a part is {' or '.join(LABELS)}, not '{label}'")
    return label
