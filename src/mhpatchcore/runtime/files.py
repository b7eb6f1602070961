"""Outputs appear whole or not at all: written beside their place, then renamed.

They are flushed to the disk before the rename, and the folder after it: a power cut leaves the old file or the new one.
"""

from __future__ import annotations

import csv
import io
import os
import secrets
import shutil
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from mhpatchcore.errors import UserError
from mhpatchcore.runtime.urls import check_writable, url_of, write_url

NAME = 32
FORMULA = ("=", "+", "-", "@", "\t", "\r")  # what a spreadsheet takes for the beginning of one


@contextmanager
def atomic_path(target: str | Path) -> Iterator[Path]:
    """Give a temporary path in the target's folder; on success it becomes `target`, on failure it goes.

    A device or a pipe is refused: the rename would put a file in its place. What is to lie elsewhere, by a URL, is
    written on this machine and copied there.

    >>> import tempfile
    >>> folder = Path(tempfile.mkdtemp())
    >>> with atomic_path(folder / "a.txt") as path:
    ...     _ = path.write_text("whole")
    >>> (folder / "a.txt").read_text(), len(list(folder.iterdir()))
    ('whole', 1)
    """
    url = url_of(target)
    if url is not None:
        with _copied_to(url) as temporary:
            yield temporary
        return
    if Path(target).exists() and not (Path(target).is_file() or Path(target).is_dir()):
        raise UserError(f"cannot write {target}: it is not a file that can be replaced; choose another place")
    target = Path(os.path.realpath(target))  # a link stays, and what it points to is written
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        # a name of its own, short enough beside any other
        temporary = target.with_name(f".{target.name[:NAME]}.{secrets.token_hex(4)}{target.suffix}")
        temporary.touch(exist_ok=False)
    except OSError as error:
        raise UserError(f"cannot write {target}: {error.strerror}; choose another place") from error
    try:
        yield temporary
        _flush(temporary)
        temporary.replace(target)
        with suppress(OSError):  # not every file system flushes folders, and the file is in its place
            _flush(target.parent)
    except OSError as error:
        if error.filename not in (None, str(temporary)):  # it speaks of another file
            raise
        raise UserError(f"cannot write {target}: {error.strerror or error}; choose another place") from error
    finally:
        temporary.unlink(missing_ok=True)


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
        temporary.mkdir(parents=True)
    except OSError as error:
        raise UserError(f"cannot write {target}: {error.strerror}; choose another place") from error
    try:
        yield temporary
        for path in (*temporary.rglob("*"), temporary):
            _flush(path)
        temporary.replace(target)
        with suppress(OSError):
            _flush(target.parent)
    except OSError as error:
        concerned = [name for name in (error.filename, error.filename2) if name is not None]
        if concerned and not any(Path(name).is_relative_to(temporary) for name in concerned):
            raise  # it speaks of another file
        raise UserError(f"cannot write {target}: {error.strerror or error}; choose another place") from error
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


@contextmanager
def _copied_to(url: str) -> Iterator[Path]:
    check_writable(url)
    with tempfile.TemporaryDirectory(prefix="mhpatchcore-") as folder:
        temporary = Path(folder, Path(url).name[-NAME:])
        temporary.touch()
        yield temporary
        write_url(url, temporary)


def _flush(path: Path) -> None:
    """Wait until a file, or a folder's list of names, is on the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def write_text(target: str | Path, text: str) -> None:
    """Write a text file atomically. File names may hold bytes that are no text: they are written as \\udcff."""
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
    text = io.StringIO()
    writer = csv.DictWriter(text, columns, extrasaction="ignore", lineterminator="\n")
    if header:
        writer.writeheader()
    writer.writerows({name: _no_formula(value) for name, value in row.items()} for row in rows)
    return text.getvalue()


def _no_formula(value: Any) -> Any:
    return f"'{value}" if isinstance(value, str) and value.startswith(FORMULA) else value
