"""Outputs appear whole or not at all: written beside their place, then renamed.

They are flushed to the disk before the rename, and the folder after it: a power cut leaves the old file or the new one.
"""

from __future__ import annotations

import csv
import io
import os
import re
import secrets
import shutil
import stat
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from mhpatchcore.errors import UserError
from mhpatchcore.runtime.system import HAS_LOCKS, flush, give_to_owner_of, lock
from mhpatchcore.runtime.urls import check_writable, url_of, write_url

NAME = 32
TEMPORARY = re.compile(r"\..+\.[0-9a-f]{8}(\.\w+)?")
FORMULA = ("=", "+", "-", "@", "\t", "\r")  # what a spreadsheet takes for the beginning of one


@contextmanager
def atomic_path(target: str | Path) -> Iterator[Path]:
    """Give a temporary path in the target's folder; on success it becomes `target`, on failure it goes.

    A device or a pipe is refused: the rename would put a file in its place. What is to lie elsewhere, by a URL, is
    written on this machine and copied there.
    """
    url = url_of(target)
    if url is not None:
        check_writable(url)
        with tempfile.TemporaryDirectory(prefix="mhpatchcore-") as folder:
            temporary = Path(folder, Path(url).name[-NAME:])
            temporary.touch()
            yield temporary
            write_url(url, temporary)
        return
    if Path(target).exists() and not (Path(target).is_file() or Path(target).is_dir()):
        raise UserError(f"cannot write {target}: it is not a file that can be replaced; choose another place")
    target = Path(os.path.realpath(target))  # a link stays, and what it points to is written
    with temporary_beside(target) as temporary, _moved(temporary, target):
        yield temporary


@contextmanager
def temporary_beside(target: Path) -> Iterator[Path]:
    """A new file in the target's folder, which goes at the end unless it was renamed.

    It is locked while it is written: one that nobody holds was left behind by a kill. It has the mode and the owner of
    the file that it is to replace, or the owner of the folder: the service that works there is not locked out.
    """
    try:
        make_folder(target.parent)
        # a name of its own, short enough beside any other
        temporary = target.with_name(f".{target.name[:NAME]}.{secrets.token_hex(4)}{target.suffix}")
        handle = _locked(temporary)
    except OSError as error:
        raise _cannot_write(target, error) from error
    try:
        with suppress(OSError):  # it may be the first
            temporary.chmod(stat.S_IMODE(target.stat().st_mode) | stat.S_IRUSR | stat.S_IWUSR)
        give_to_owner_of(target if target.exists() else target.parent, temporary)
        if not HAS_LOCKS:  # and there an open file cannot be renamed
            os.close(handle)
        yield temporary
    finally:
        temporary.unlink(missing_ok=True)
        if HAS_LOCKS:
            os.close(handle)


def remove_abandoned(folder: Path) -> None:
    """Delete temporary files whose process was killed: nobody holds their lock."""
    for path in folder.glob(".*") if HAS_LOCKS else ():
        if TEMPORARY.fullmatch(path.name):
            with suppress(OSError):
                handle = os.open(path, os.O_RDWR)
                try:
                    lock(handle, wait=False)
                    path.unlink()
                finally:
                    os.close(handle)


def make_folder(folder: Path) -> None:
    """Make a folder and those above it; one that root makes belongs to the owner of the one that it is in."""
    if not folder.is_dir():
        make_folder(folder.parent)
        folder.mkdir(exist_ok=True)
        give_to_owner_of(folder.parent, folder)


@contextmanager
def atomic_folder(target: str | Path) -> Iterator[Path]:
    """Give a temporary folder beside the target; on success it becomes `target`, on failure it goes.

    A folder that is there already and holds something is left as it is.
    """
    target = Path(target).absolute()
    if target.exists() and not (target.is_dir() and not any(target.iterdir())):
        raise UserError(f"{target} is there already: choose another name, or remove it")
    temporary = target.with_name(f".{target.name[:NAME]}.{secrets.token_hex(4)}")
    try:
        with _moved(temporary, target):
            temporary.mkdir(parents=True)
            yield temporary
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


@contextmanager
def _moved(temporary: Path, target: Path) -> Iterator[None]:
    """At the end of the block put a file or folder in its place, when all of it is on the disk."""
    try:
        yield
        for path in (*temporary.rglob("*"), temporary):
            flush(path)
        temporary.replace(target)
        with suppress(OSError):  # not every file system flushes folders, and what was written is in its place
            flush(target.parent)
    except OSError as error:
        concerned = [name for name in (error.filename, error.filename2) if name is not None]
        if concerned and not any(Path(name).is_relative_to(temporary) for name in concerned):
            raise  # it speaks of another file
        raise _cannot_write(target, error) from error


def _locked(path: Path) -> int:
    """A new file, locked. It is made again if `remove_abandoned` has deleted it before it was locked."""
    while True:
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o666)
        with suppress(OSError):  # where there are no locks, nothing is taken for abandoned
            lock(handle)
        if os.fstat(handle).st_nlink:
            return handle
        os.close(handle)


def _cannot_write(target: Path, error: OSError) -> UserError:
    return UserError(f"cannot write {target}: {error.strerror or error}; choose another place")


def write_text(target: str | Path, text: str) -> None:
    """Write a text file atomically. Bytes in file names that are not valid text are written as \\udcff."""
    with atomic_path(target) as path:
        path.write_text(text, encoding="utf-8", errors="backslashreplace")


def write_csv(target: str | Path, columns: Sequence[str], rows: Iterable[Mapping[str, Any]]) -> None:
    """Write a table with a header atomically; what is in no column is left out."""
    write_text(target, csv_text(columns, rows))


def csv_text(columns: Sequence[str], rows: Iterable[Mapping[str, Any]], header: bool = True) -> str:
    """Comma-separated lines; what is in no column is left out.

    A text that a spreadsheet would run as a formula gets an apostrophe, which spreadsheets take for "this is text".

    >>> print(csv_text(["image", "score"], [{"image": "=HYPERLINK(1)", "score": -1.5}]), end="")
    image,score
    '=HYPERLINK(1),-1.5
    """

    def safe(value: Any) -> Any:
        return f"'{value}" if isinstance(value, str) and value.startswith(FORMULA) else value

    text = io.StringIO()
    writer = csv.DictWriter(text, columns, extrasaction="ignore", lineterminator="\n")
    if header:
        writer.writeheader()
    writer.writerows({name: safe(value) for name, value in row.items()} for row in rows)
    return text.getvalue()


def import_parquet() -> tuple[Any, Any]:
    """The modules `pyarrow` and `pyarrow.parquet`, which are an extra."""
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError:
        raise UserError("a Parquet table takes pyarrow: pip install 'mhpatchcore[parquet]'") from None
    return pyarrow, parquet
