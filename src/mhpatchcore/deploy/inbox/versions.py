"""Earlier models, kept beside the present one and numbered; and how a model takes the place of another.

    line/part.mhpc                          the model in use
    line/versions/part/3-1f0c5a9d2b7e.mhpc  an earlier one: its number, and the first digits of its hash

Numbers say which came after which, whatever the clocks said. A model that comes back has the number that it had.

A change is intent → file → done. It happens as a whole or not at all, and is recorded.

1. The intent is written into the journal: who, why, hashes and thresholds before and after.
2. The present file is kept among the versions. The new one is written beside its place; one rename puts it there.
3. The journal says: done.

A process that is killed leaves the old model in use or the new one, and at most an intent. Whoever comes next sees from
the model's file what became of it. What fails before the rename has not happened; after it nothing counts as failed.
"""

from __future__ import annotations

import hashlib
import logging
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from mhpatchcore.deploy.inbox.journal import Change, InboxError, Journal
from mhpatchcore.errors import ModelFileError, UserError, in_one_line
from mhpatchcore.model.file import document_of, from_bytes, read_file
from mhpatchcore.model.history import OtherProductError, differ
from mhpatchcore.runtime.files import atomic_path, make_folder, remove_abandoned
from mhpatchcore.runtime.system import give_to_owner_of
from mhpatchcore.runtime.system import lock as lock_file

FOLDER, LEARNT = "versions", "learnt"
UNDO = "undo"
SHORT = 12  # digits of a hash that tell versions apart
NAME = re.compile(rf"(\d+)-([0-9a-f]{{{SHORT}}})\.mhpc")
MOST_KEPT = 20  # beside the first, which is what the line began with
log = logging.getLogger("mhpatchcore")


@dataclass(frozen=True)
class Version:
    """A model file: its number, its hash, when it was in use until, and what its history says was done to it last."""

    version: int
    sha256: str
    until: str
    product: str
    images: int
    false_alarm: float
    what: str
    who: str
    when: str
    note: str
    in_use: bool


def folder_of(path: Path) -> Path:
    """Where the earlier versions of a model are."""
    return path.parent / FOLDER / path.stem


def learnt_of(path: Path) -> Path:
    """Where evidence finds what a model has learnt from the inbox."""
    return path.parent / LEARNT / path.stem


def sha256_of(path: Path) -> str:
    """The hash of a model file; one that has not changed since is not read again."""
    try:
        facts = path.stat()
        return _digest(path, facts.st_mtime_ns, facts.st_size, facts.st_ino)
    except OSError as error:
        raise ModelFileError(f"cannot read {path}: {error.strerror}; check the path") from error


@lru_cache(maxsize=1024)
def _digest(path: Path, *_: int) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def versions(journal: Journal, path: Path) -> list[Version]:
    """The model in use and the earlier ones, the highest number first. What cannot be read cannot come back."""
    until: dict[str, str] = {}
    with suppress(InboxError):  # whoever has just gone back is not told that it failed
        until = {one.sha256_before: one.at for one in journal.changes(path.stem)[::-1] if one.state == "done"}
    present = sha256_of(path)
    found = [_version(path, _number(path, present), present)]
    for number, file in _kept(path).values():
        with suppress(ModelFileError):
            sha256 = sha256_of(file)
            if sha256 != present:
                found.append(_version(file, number, sha256, until.get(sha256, ""), in_use=False))
    return sorted(found, key=lambda one: one.version, reverse=True)


def _version(path: Path, number: int, sha256: str, until: str = "", in_use: bool = True) -> Version:
    document = document_of(path)
    last = document["history"][-1] if document["history"] else {}
    what, who, when, note = (str(last.get(name, "")) for name in ("what", "who", "when", "note"))
    facts = (document["product"], document["n_learnt"], float(document["calibration"]["false_alarm"]))
    return Version(number, sha256, until, *facts, what, who, when, note, in_use)


def earlier_version(journal: Journal, path: Path, version: int | None = None) -> tuple[int, bytes]:
    """The number and the file of this version; or one step back, of that which the one in use was made from."""
    every = versions(journal, path)
    present = next(one for one in every if one.in_use)
    if version is None:
        earlier = [one for one in every if one.version < present.version]
        made_from = {
            one.sha256_before
            for one in journal.changes(path.stem)
            if one.state == "done" and one.what != UNDO and one.sha256_after == present.sha256
        }
        wanted = [one for one in earlier if one.sha256 in made_from] or earlier
    else:
        wanted = [one for one in every if one.version == version and not one.in_use]
    if not wanted:
        which = "earlier version" if version is None else f"version {version}"
        in_use = f"version {present.version} is in use"
        raise UserError(
            f"there is no {which} of {path} to go back to: {in_use}; `inbox versions` lists the others"
        )
    chosen = wanted[0]
    kept = _kept(path).items()
    short, file = next((short, file) for short, (number, file) in kept if number == chosen.version)
    content, name = read_file(file)
    if not hashlib.sha256(content).hexdigest().startswith(short):
        raise ModelFileError(f"{name} is damaged: choose another version")
    return chosen.version, content


def is_kept(path: Path, sha256: str) -> bool:
    return sha256[:SHORT] in _kept(path)


def keep(path: Path, content: bytes, sha256: str) -> None:
    """Keep a model that is about to go, unless it is kept already."""
    file = folder_of(path) / f"{_number(path, sha256)}-{sha256[:SHORT]}.mhpc"
    if not file.exists() or sha256_of(file) != sha256:
        with atomic_path(file) as temporary:
            temporary.write_bytes(content)


def prune(path: Path) -> None:
    """Delete the oldest versions, but the first and the one in use, until only so many are left."""
    in_use = sha256_of(path)[:SHORT]
    for short, (_, file) in [*_kept(path).items()][1:-MOST_KEPT]:
        if short != in_use:
            file.unlink(missing_ok=True)


def _kept(path: Path) -> dict[str, tuple[int, Path]]:
    """Numbers and files of versions by the first digits of their hash, the lowest number first."""
    folder = folder_of(path)
    named = [(NAME.fullmatch(file.name), file) for file in (folder.iterdir() if folder.is_dir() else ())]
    found = sorted((int(match[1]), match[2], file) for match, file in named if match)
    return {short: (number, file) for number, short, file in found}


def _number(path: Path, sha256: str) -> int:
    """The number of a model: the one that it was kept under, or the next."""
    kept = _kept(path)
    after = max((number for number, _ in kept.values()), default=0) + 1
    return kept.get(sha256[:SHORT], (after, path))[0]


class ModelChangedError(UserError):
    """The model in use is no longer the one that a change was made from."""


class NotWrittenError(UserError):
    """A change did not happen, because a file could not be written."""


def changed(
    journal: Journal,
    path: Path,
    content: bytes,
    what: str,
    *,
    instead_of: str,
    who: str = "",
    note: str = "",
    first: Callable[[], None] = lambda: None,
) -> str:
    """Put a model in the place of another, which is kept; the new file's hash.

    `instead_of` is the hash that the file must still have: another change in between is not overwritten. `first` writes
    what the new model needs.
    """
    new, after = from_bytes(content, str(path)), hashlib.sha256(content).hexdigest()
    with locked(path):
        settle(journal, path)
        old, _ = read_file(path)
        before = hashlib.sha256(old).hexdigest()
        if before != instead_of:
            raise ModelChangedError(f"{path.name} has changed meanwhile: look at a new preview")
        if before == after:
            return after
        present = from_bytes(old, str(path))
        if what != UNDO:
            check_product(path, journal.product(path.stem), present.product)
        thresholds = present.calibration.threshold, new.calibration.threshold
        journal.found(path.stem, before, thresholds[0], present.product)
        values = (before, after, *thresholds, new.product)
        intent = journal.intend(Change(path.stem, what, who, note, *values))
        try:
            first()
            keep(path, old, before)
            with atomic_path(path) as temporary:
                temporary.write_bytes(content)
        except (OSError, UserError) as error:
            if sha256_of(path) != after:
                with suppress(InboxError):  # the next one will find out
                    journal.end(intent, "not done")
                raise NotWrittenError(str(error)) from error
        try:
            journal.end(intent, "done")
            prune(path)
        except (InboxError, OSError) as error:
            log.warning("%s: %s; what was intended is done, and the next change says so", path.stem, error)
    return after


def settle(journal: Journal, path: Path) -> None:
    """Say what became of a change that was only intended when its process was killed, and remove what that has left.

    The caller holds the lock, so nobody else is changing the model.
    """
    for one in journal.changes(path.stem):
        if one.state == "intended":
            outcomes = {one.sha256_after: "done", one.sha256_before: "not done"}
            journal.end(one.id, outcomes.get(sha256_of(path), "unknown"))
    for folder in (path.parent, folder_of(path), learnt_of(path)):
        remove_abandoned(folder)


def recover(journal: Journal, path: Path) -> None:
    """`settle`, where there is anything to settle."""
    if any(one.state == "intended" for one in journal.changes(path.stem)):
        with locked(path):
            settle(journal, path)
    remove_abandoned(path.parent)


def check_product(path: Path, known: str, product: str) -> None:
    """Refuse a model of another product than the one that was in its place."""
    if differ(known, product):
        raise OtherProductError(
            f"{path} is a model of {in_one_line(product)}, and was one of {in_one_line(known)}: `inbox undo` puts an "
            "earlier one back; if it is meant, start `serve` or `watch` with --other-product"
        )


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """One change of a model at a time, of all processes."""
    folder = folder_of(path)
    try:
        make_folder(folder)
        file = (folder / ".lock").open("a")
        give_to_owner_of(folder, folder / ".lock")
    except OSError as error:
        raise NotWrittenError(f"cannot write {folder}: {error.strerror}; check its owner and mode") from error
    with file:
        lock_file(file.fileno())
        yield
