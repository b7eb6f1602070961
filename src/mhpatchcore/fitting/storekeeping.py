"""Stores as folders: opened for as long as work needs them, measured, and kept within a size.

Everybody who works with a store holds a lock there, as old as their work. An entry that has been used or written since
the oldest of these locks may be needed by its owner: it stays. Of the others those go first that have not been used
for longest. What killed processes left behind goes as well.
"""

from __future__ import annotations

import os
import secrets
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from mhpatchcore.errors import UserError
from mhpatchcore.runtime.store import SUFFIX, Store
from mhpatchcore.runtime.system import HAS_LOCKS
from mhpatchcore.runtime.system import lock as lock_file
from mhpatchcore.runtime.texts import format_bytes

PREFIX = "mhpatchcore-store-"
LOCK = ".lock"
IN_USE = ".in-use-"
EARLIER = "earlier versions"  # the kind of entries whose kind is not known


@contextmanager
def opened_store(folder: str | Path | None, expected_bytes: int = 0) -> Iterator[Store]:
    """A store in a folder that stays, or in a temporary one that goes at the end."""
    with ExitStack() as ending:
        if folder is None:
            yield Store(ending.enter_context(temporary_folder(expected_bytes)), kept=False)
            return
        place = Path(folder)
        try:
            place.mkdir(parents=True, exist_ok=True)
            with _locked(place / LOCK):
                handle, name = tempfile.mkstemp(prefix=IN_USE, dir=place)
                ending.callback(os.close, handle)
                ending.callback(_delete, Path(name))
                lock_file(handle)
                _remove_left_behind(place)
        except OSError as error:
            raise UserError(f"the store cannot be kept in {place}: {error.strerror}; name another") from error
        _check_room(place, expected_bytes)
        yield Store(place)


@contextmanager
def temporary_folder(expected_bytes: int = 0) -> Iterator[Path]:
    """A folder that goes at the end; what killed processes left of theirs goes now."""
    top = Path(tempfile.gettempdir())
    _check_room(top, expected_bytes)
    for left in top.glob(f"{PREFIX}*"):
        with suppress(OSError):
            if _is_abandoned(left / LOCK):
                shutil.rmtree(left, ignore_errors=True)
    place = top / f"{PREFIX}{secrets.token_hex(4)}"
    hidden = place.with_name(f".{place.name}")
    with ExitStack() as ending:
        # named before it is made: a signal that ends the program between two lines leaves nothing behind
        for folder in (place, hidden):
            ending.callback(shutil.rmtree, folder, ignore_errors=True)
        try:
            hidden.mkdir(mode=0o700)
            ending.enter_context(_locked(hidden / LOCK))
            hidden.rename(place)  # others see it only now, and find it locked
        except OSError as error:
            raise UserError(
                f"the store cannot be kept in {top}: {error.strerror}; make room, or name another folder "
                "(`store=FOLDER`)"
            ) from error
        yield place


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """The lock of a file: who holds that of a store is the only one to begin work there, or to delete entries."""
    handle = os.open(path, os.O_CREAT | os.O_RDWR)
    try:
        lock_file(handle)
        yield
    finally:
        os.close(handle)


@dataclass(frozen=True)
class Entry:
    """An entry as a file: its kind, its bytes, and when it was used last."""

    path: Path
    kind: str
    size: int
    used: float


def entries_of(folder: Path) -> Iterator[Entry]:
    for path in [*folder.glob(f"*{SUFFIX}"), *folder.glob(f"*/*/*{SUFFIX}")]:
        with suppress(FileNotFoundError):  # somebody else cleans as well
            status = path.stat()
            kind = EARLIER if path.parent == folder else path.relative_to(folder).parts[0]
            yield Entry(path, kind, status.st_size, status.st_mtime)


def trimmed(folder: Path, limit: int | None = None, older: float | None = None) -> list[Entry]:
    """Delete entries that are not in use: those unused for longer than `older` seconds, then, until what is left takes
    at most `limit` bytes, those unused for longest. The deleted ones.
    """
    gone: list[Entry] = []
    with _locked(folder / LOCK):
        everything = sorted(entries_of(folder), key=lambda entry: entry.used)
        total, since, now = sum(entry.size for entry in everything), in_use_since(folder), time.time()
        for entry in everything:
            is_old = older is not None and now - entry.used > older
            if entry.used >= since or not (is_old or (limit is not None and total > limit)):
                break
            entry.path.unlink(missing_ok=True)
            gone.append(entry)
            total -= entry.size
    return gone


def keep_within(store: Store, limit: int | None, warn: Callable[[str], None]) -> None:
    """Bring a kept store within a limit, or warn where running work needs more."""
    if limit is None or not store.kept:
        return
    trimmed(store.folder, limit)
    size = sum(entry.size for entry in entries_of(store.folder))
    if size > limit:
        warn(
            f"the store in {store.folder} takes {format_bytes(size)}, more than its limit of {format_bytes(limit)}: "
            "all of it is in use"
        )


def in_use_since(folder: Path) -> float:
    """When the longest of the work that goes on with a store began; infinity if there is none."""
    since = float("inf")
    for path in folder.glob(f"{IN_USE}*"):
        with suppress(OSError):
            began = path.stat().st_mtime
            if _is_abandoned(path):
                path.unlink(missing_ok=True)
            else:
                since = min(since, began)
    return since


def _is_abandoned(lock: Path) -> bool:
    """Whether nobody holds a lock: its process has ended."""
    handle = os.open(lock, os.O_RDWR)
    try:
        lock_file(handle, wait=False)
        return HAS_LOCKS
    except BlockingIOError:
        return False
    finally:
        os.close(handle)


def _remove_left_behind(folder: Path) -> None:
    """Delete what processes were writing when they were killed: files without a name, older than all work there is."""
    since = in_use_since(folder)
    for path in folder.glob("*/*/.*"):
        with suppress(OSError):
            if path.stat().st_mtime < since:
                path.unlink()


def _delete(lock: Path) -> None:
    with suppress(OSError):  # what stays is abandoned, and goes with the next work
        lock.unlink(missing_ok=True)


def _check_room(folder: Path, needed: int) -> None:
    """Refuse work that cannot end; entries that are there already need no room."""
    free = shutil.disk_usage(folder).free
    if needed > free and needed - sum(entry.size for entry in entries_of(folder)) > free:
        raise UserError(
            f"the store needs {format_bytes(needed)} in {folder}, which has {format_bytes(free)} free: "
            "name another folder (`store=FOLDER`)"
        )
