"""The inbox: parts that somebody has called good or defective, in one SQLite file beside the models.

A row holds the image itself, what the model said of it then, and who said what about it when. So it is there for
learning and calibrating however long the line has gone on, and nothing else has to be kept.

An image is in it once for each model: a second label takes the place of the first. Whether a model has learnt from it
is not written down: the model knows, by the hash of the image, also after going back to an earlier one.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from math import isfinite
from pathlib import Path
from typing import Any, Literal, get_args

from mhpatchcore.deploy.inbox_file import opened
from mhpatchcore.errors import UserError

FILE = "inbox.sqlite"
Label = Literal["good", "defect"]
LABELS: tuple[Label, ...] = get_args(Label)
MOST_IMAGE = 64 * 2**20  # bytes of one image
MOST_BYTES = 16 * 2**30  # of all of them
MOST_TEXT = 2000  # letters of a note or a name


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
class Part:
    """A labelled part, without its image. `part` is what the line calls it, `name` the image's file."""

    id: int
    model: str
    label: Label
    part: str
    name: str
    sha256: str
    bytes: int
    score: float | None
    threshold: float | None
    p_value: float | None
    verdict: str
    model_sha256: str
    who: str
    at: str
    note: str

    @property
    def was_rejected(self) -> bool:
        """Whether the model rejected it when it was labelled."""
        return self.verdict == "rejected"

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True)
class Change:
    """A model was replaced: by whom, when, why, and the hashes of both files."""

    model: str
    what: str
    who: str
    at: str
    note: str
    sha256_before: str
    sha256_after: str

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


COLUMNS = ", ".join(field.name for field in fields(Part))
CHANGE_COLUMNS = ", ".join(field.name for field in fields(Change))


@dataclass(frozen=True)
class Inbox:
    """An inbox in a file, which is made when first written to. Threads and processes may share it."""

    path: Path

    @staticmethod
    def beside(model: Path) -> Inbox:
        """The inbox of the models in a folder."""
        return Inbox(model.parent / FILE)

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
        """Keep an image and its label; what was said of the same image before is replaced."""
        if not image:
            raise UserError("an image to be labelled has bytes: this one is empty")
        if len(image) > MOST_IMAGE:
            raise UserError(
                f"image {name} has {len(image) / 2**20:.0f} MB, more than the {MOST_IMAGE // 2**20} MB that the inbox "
                "keeps: save it smaller"
            )
        said = said or Said()
        row = {
            "model": model,
            "label": _checked_label(label),
            "part": _checked_text("part", part),
            "name": _checked_text("name", name),
            "sha256": hashlib.sha256(image).hexdigest(),
            "bytes": len(image),
            **{key: _finite(value) for key, value in asdict(said).items()},
            "who": _checked_text("who", who),
            "at": _now(),
            "note": _checked_text("note", note),
            "image": image,
        }
        names = ", ".join(row)
        kept = ", ".join(f"{key} = excluded.{key}" for key in row if key not in ("model", "sha256", "image"))
        with opened(self.path, write=True) as db:
            (total,) = db.execute("SELECT coalesce(sum(bytes), 0) FROM parts").fetchone()
            if total + len(image) > MOST_BYTES:
                raise UserError(
                    f"{self.path} holds {total / 2**30:.1f} GB, which is all it takes: `inbox export` and "
                    "`inbox remove` make room"
                )
            found = db.execute(
                f"INSERT INTO parts ({names}) VALUES ({', '.join(f':{key}' for key in row)}) "
                f"ON CONFLICT (model, sha256) DO UPDATE SET {kept} RETURNING {COLUMNS}",
                row,
            ).fetchone()
        return Part(*found)

    def parts(
        self, model: str | None = None, label: str | None = None, ids: Sequence[int] | None = None
    ) -> list[Part]:
        """Labelled parts, the newest first. An id that is not there is named."""
        wanted, values = ["1"], []
        for column, value in (("model", model), ("label", label and _checked_label(label))):
            if value is not None:
                wanted.append(f"{column} = ?")
                values.append(value)
        with opened(self.path) as db:
            rows = db.execute(
                f"SELECT {COLUMNS} FROM parts WHERE {' AND '.join(wanted)} ORDER BY id DESC", values
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
            row = db.execute("SELECT image FROM parts WHERE id = ?", [id]).fetchone()
        if row is None:
            raise NoSuchPartError(id)
        return bytes(row[0])

    def relabel(
        self, id: int, label: str | None = None, *, who: str | None = None, note: str | None = None
    ) -> Part:
        """Correct what was said of a part; what is not given stays."""
        given = {
            "label": label and _checked_label(label),
            "who": who if who is None else _checked_text("who", who),
            "note": note if note is None else _checked_text("note", note),
        }
        changes = {key: value for key, value in given.items() if value is not None} | {"at": _now()}
        self.part(id)
        with opened(self.path, write=True) as db:
            assignments = ", ".join(f"{key} = :{key}" for key in changes)
            db.execute(f"UPDATE parts SET {assignments} WHERE id = :id", {**changes, "id": id})
        return self.part(id)

    def remove(self, id: int) -> None:
        """Forget a part and its image."""
        self.part(id)
        with opened(self.path, write=True) as db:
            db.execute("DELETE FROM parts WHERE id = ?", [id])

    def record(self, change: Change) -> None:
        """Write down that a model was replaced."""
        values = list(asdict(change).values())
        with opened(self.path, write=True) as db:
            db.execute(
                f"INSERT INTO changes ({CHANGE_COLUMNS}) VALUES ({', '.join('?' * len(values))})", values
            )

    def changes(self, model: str) -> list[Change]:
        """How a model was replaced, the latest first."""
        with opened(self.path) as db:
            rows = db.execute(
                f"SELECT {CHANGE_COLUMNS} FROM changes WHERE model = ? ORDER BY id DESC", [model]
            )
            return [Change(*row) for row in rows]


def changed(model: str, what: str, who: str, note: str, before: str, after: str) -> Change:
    """A replacement that happens now."""
    return Change(model, what, _checked_text("who", who), _now(), _checked_text("note", note), before, after)


def _checked_label(label: str) -> Label:
    if label not in LABELS:
        raise UserError(f"a part is {' or '.join(LABELS)}, not '{label}'")
    return label


def _checked_text(name: str, text: str) -> str:
    if len(text) > MOST_TEXT:
        raise UserError(f"{name} has {len(text)} letters: {MOST_TEXT} are enough")
    return "".join(letter if letter.isprintable() else " " for letter in text).strip()


def _finite(value: Any) -> Any:
    """A number that is none (no threshold) is unknown."""
    return None if isinstance(value, float) and not isfinite(value) else value


def _now() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
