"""A model takes the place of another: intent → file → done. It happens as a whole or not at all, and is recorded.

1. The intent is written into the journal: who, why, hashes and thresholds before and after.
2. The present file is kept among the versions. The new one is written beside its place; one rename puts it there.
3. The journal says: done.

A process that is killed leaves the old model in use or the new one, and at most an intent. Whoever comes next sees from
the model's file what became of it. What fails before the rename has not happened; after it nothing counts as failed.
"""

from __future__ import annotations

import hashlib
import logging
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from mhpatchcore.deploy.inbox.file import InboxError
from mhpatchcore.deploy.inbox.journal import Change, Journal
from mhpatchcore.deploy.inbox.versions import UNDO, folder_of, keep, learnt_of, prune, sha256_of
from mhpatchcore.errors import UserError, in_one_line
from mhpatchcore.model.file import from_bytes, read_file
from mhpatchcore.model.product import OtherProductError, differ
from mhpatchcore.runtime.files import atomic_path, give_to_owner_of, make_folder, remove_abandoned
from mhpatchcore.runtime.system import lock as lock_file

log = logging.getLogger("mhpatchcore")


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
            if not _is_there(path, after):
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

    Who calls it holds the lock: nobody else is at it.
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
    lock = folder / ".lock"
    try:
        make_folder(folder)
        handle = os.open(lock, os.O_RDWR | os.O_CREAT, 0o666)
        give_to_owner_of(folder, lock)
    except OSError as error:
        raise NotWrittenError(f"cannot write {folder}: {error.strerror}; check its owner and mode") from error
    try:
        lock_file(handle)
        yield
    finally:
        os.close(handle)


def _is_there(path: Path, sha256: str) -> bool:
    with suppress(OSError):
        return hashlib.sha256(path.read_bytes()).hexdigest() == sha256
    return False
