"""A folder into which a camera writes: files are judged as they arrive, once each, whatever happens meanwhile."""

from __future__ import annotations

import json
import os
import shutil
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event
from typing import Any

from mhpatchcore.deploy.watch.journal import Arrived, Journal, Judged
from mhpatchcore.deploy.watch.judging import Judge, UnavailableError, now
from mhpatchcore.deploy.watch.status import Status
from mhpatchcore.errors import ImageError, UserError
from mhpatchcore.inputs.places import SUFFIXES
from mhpatchcore.runtime.files import atomic_path, csv_text, write_text
from mhpatchcore.runtime.parallel import ordered_map
from mhpatchcore.runtime.system import lock as lock_file

JOURNAL, LOCK = "watch.sqlite", ".watch.lock"
# how programs call files that they have not finished
TEMPORARY = (".tmp", ".temp", ".part", ".partial", ".crdownload", ".filepart", "~")
FOLDERS = {"passed": "passed", "rejected": "rejected", "no threshold": "unjudged"}
BROKEN = "broken"  # the folder of files that could not be read, which are rejected too
COLUMNS = (
    *("at", "image", "score", "threshold", "verdict"),
    *("is_rejected", "p_value", "defect", "regions", "reason", "id"),
)
PATIENCE = 5.0  # times `settle`: what cannot be read may still be on its way
AT_A_TIME = 64
LOOK = 0.5  # seconds between two looks at the inbox
FORGET = 1000  # files between two looks at what the journal can let go of


@dataclass(frozen=True)
class Line:
    """Where files come from and where results go. A file is complete once it has not changed for `settle` seconds or,
    with `done`, once there is a file beside it that has its name and this ending.
    """

    inbox: Path
    outbox: Path
    sort: bool = False
    table: Path | None = None
    settle: float = 1.0
    done: str = ""
    targets: tuple[str, ...] = ()

    def check(self) -> None:
        if not self.inbox.is_dir():
            raise UserError(f"there is no folder {self.inbox}; check the path")
        inner, outer = self.outbox.resolve(), self.inbox.resolve()
        if inner == outer or outer in inner.parents:
            raise UserError(
                f"results in {self.outbox} would stand among the images: give --out another folder"
            )


@dataclass
class Arrivals:
    """What is new and complete in the inbox; it remembers since when each file is as it is."""

    line: Line
    _since: dict[Arrived, float] = field(default_factory=dict)

    def complete(self, journal: Journal, at: float | None = None) -> list[Arrived]:
        """Files that can be judged now, the oldest first; `at` is the time by a clock that never goes back."""
        at = time.monotonic() if at is None else at
        here = {file for file in self._files() if not journal.knows(file)}
        self._since = {file: self._since.get(file, at) for file in here}
        ready = [file for file in here if self._is_complete(file, at)]
        return sorted(ready, key=lambda file: (file.changed, file.name))

    def is_old(self, file: Arrived) -> bool:
        """Whether it has been as it is for so long that nobody writes it any more."""
        return time.monotonic() - self._since.get(file, -1e9) >= PATIENCE * self.line.settle

    @property
    def settled(self) -> bool:
        """Whether nothing is on its way: what is there and has not been judged will not change by waiting."""
        return bool(self.line.done) or all(map(self.is_old, self._since))

    def names(self) -> set[str]:
        return {file.name for file in self._files()}

    def _is_complete(self, file: Arrived, at: float) -> bool:
        if self.line.done:
            return (self.line.inbox / f"{file.name}{self.line.done}").exists()
        return at - self._since[file] >= self.line.settle

    def _files(self) -> Iterator[Arrived]:
        for place, folders, names in os.walk(self.line.inbox, onerror=self._unreachable):
            folders[:] = [name for name in folders if not name.startswith(".")]
            for name in names:
                path = Path(place, name)
                if _is_image(path):
                    with suppress(OSError):  # it is gone again
                        facts = path.stat()
                        relative = path.relative_to(self.line.inbox).as_posix()
                        yield Arrived(relative, facts.st_size, facts.st_mtime_ns)

    def _unreachable(self, error: OSError) -> None:
        """A subfolder may go, or be somebody else's; what else fails concerns the whole inbox."""
        if Path(error.filename) == self.line.inbox or not isinstance(
            error, FileNotFoundError | PermissionError
        ):
            raise error


def _is_image(path: Path) -> bool:
    name = path.name.lower()
    return (
        path.suffix.lower() in SUFFIXES and not name.startswith((".", "~")) and not name.endswith(TEMPORARY)
    )


def finish_earlier(line: Line, journal: Journal) -> int:
    """Do what an earlier run has judged but not finished; how many files that were."""
    left = journal.unfinished()
    for judged in left:
        finish(line, journal, judged)
    return len(left)


def watched(
    line: Line,
    journal: Journal,
    judge: Judge,
    workers: int,
    stop: Event,
    once: bool,
    each: Callable[[], None],
    status: Status,
) -> Iterator[dict[str, Any]]:
    """The answer for each file, once it is in its place, until `stop` is set; with `once` until all are judged.

    `each` is called before every look at the inbox.
    """
    arrivals, judged = Arrivals(line), 0
    while not stop.is_set():
        each()
        journal.check()
        found = 0
        for answer in _judged(line, journal, arrivals, judge, workers, stop, status):
            found += 1
            status.judged(answer["verdict"])
            yield answer
        if (judged + found) // FORGET > judged // FORGET:
            with suppress(OSError):  # the inbox is out of reach: another time
                journal.forget_gone(arrivals.names())
        judged += found
        if found == 0:
            if once and arrivals.settled:
                return
            stop.wait(min(LOOK, line.settle / 2) or LOOK / 10)


def _judged(
    line: Line,
    journal: Journal,
    arrivals: Arrivals,
    judge: Judge,
    workers: int,
    stop: Event,
    status: Status,
) -> Iterator[dict[str, Any]]:
    """Judge what is complete, several files at a time."""
    files = _complete(arrivals, journal, status)[:AT_A_TIME]

    def one(file: Arrived) -> dict[str, Any] | Exception:
        if stop.is_set():
            return UnavailableError("stopped")
        try:
            return judge(line.inbox / file.name, Path(file.name).stem)
        except (ImageError, UnavailableError) as error:
            return error

    for file, outcome in zip(files, ordered_map(one, files, workers), strict=True):
        if isinstance(outcome, UnavailableError) or not _is_still(line, file):
            continue
        if isinstance(outcome, Exception) and not (line.done or arrivals.is_old(file)):
            continue
        answer = _described(line, file, outcome)
        folder = BROKEN if "reason" in answer else FOLDERS[answer["verdict"]]
        judged = journal.add(file, _place(line, journal, file, folder), answer, line.targets)
        finish(line, journal, judged)
        yield answer


def _complete(arrivals: Arrivals, journal: Journal, status: Status) -> list[Arrived]:
    """Files that can be judged now: none while the inbox is out of reach."""
    status.looked()
    try:
        files = arrivals.complete(journal)
    except OSError as error:
        why = f"cannot look into {arrivals.line.inbox} ({error.strerror}): it goes on once the folder is back"
        status.set_problem("inbox", why)
        return []
    status.set_problem("inbox")
    return files


def finish(line: Line, journal: Journal, judged: Judged) -> None:
    """Write what was decided: doing it twice leaves the same files as doing it once."""
    write_text(line.outbox / f"{judged.place}.json", json.dumps(judged.answer, indent=2) + "\n")
    lengths = {} if line.table is None else {str(line.table): _add_row(line.table, journal, judged.answer)}
    if line.sort:
        _move(
            line.inbox / judged.file.name,
            line.outbox / f"{judged.place}{Path(judged.file.name).suffix}",
            judged,
        )
        if line.done:
            (line.inbox / f"{judged.file.name}{line.done}").unlink(missing_ok=True)
    journal.finish(judged, lengths)


def _described(line: Line, file: Arrived, outcome: dict[str, Any] | Exception) -> dict[str, Any]:
    """What is written and sent about a file."""
    known = {"id": uuid.uuid4().hex, "at": now(), "image": file.name}
    if isinstance(outcome, Exception):
        why = str(outcome).replace(str(line.inbox / file.name), file.name)
        return known | {"verdict": "rejected", "is_rejected": True, "reason": why}
    return known | outcome


def _place(line: Line, journal: Journal, file: Arrived, folder: str) -> str:
    """The name of the results of a file, without a suffix: its own, or with a number where that is taken."""
    own = Path(file.name).with_suffix("")
    base = Path(folder) / own if line.sort else own
    for number in range(10**6):
        place = base.with_name(f"{base.name}-{number}" if number else base.name).as_posix()
        used = journal.place_is_taken(place) or any(
            (line.outbox / f"{place}{suffix}").exists() for suffix in (".json", Path(file.name).suffix)
        )
        if not used:
            return place
    raise UserError(f"there are too many results for {file.name} in {line.outbox}: empty it")


def _is_still(line: Line, file: Arrived) -> bool:
    """Whether the file in the inbox is the one that was looked at."""
    try:
        facts = (line.inbox / file.name).stat()
    except OSError:
        return False
    return (facts.st_size, facts.st_mtime_ns) == (file.size, file.changed)


def _move(source: Path, target: Path, judged: Judged) -> None:
    try:
        facts = source.stat()
    except FileNotFoundError:
        return  # it was moved before a kill
    if (facts.st_size, facts.st_mtime_ns) != (judged.file.size, judged.file.changed):
        return  # another file has come under its name, and will be judged
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        source.replace(target)
    except OSError:  # another disk
        with atomic_path(target) as temporary:
            shutil.copy2(source, temporary)
        source.unlink()


def _add_row(table: Path, journal: Journal, answer: dict[str, Any]) -> int:
    """Add a line to the CSV file, once; how long it is now.

    A kill may have left the line, or its beginning, beyond the length that the journal knows: that is written over.
    Anything else there is somebody else's, and stays.
    """
    row = answer | ({"regions": len(answer["regions"])} if "regions" in answer else {})
    head = csv_text(COLUMNS, []).encode()
    # a file name may hold bytes that are not text
    line = csv_text(COLUMNS, [row], header=False).encode(errors="backslashreplace")
    table.parent.mkdir(parents=True, exist_ok=True)
    with table.open("a+b") as file:
        end = file.seek(0, os.SEEK_END)
        known = journal.length(str(table))
        whole = line if known else head + line
        if known < end:
            file.seek(known)
            if whole.startswith(file.read()):
                file.truncate(known)
                end = known
        file.seek(0, os.SEEK_END)
        file.write(line if end else head + line)
        file.flush()
        os.fsync(file.fileno())
        return file.tell()


@contextmanager
def outbox_for_one(folder: Path) -> Iterator[Path]:
    """The journal of an outbox, which one process at a time has for itself."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = (folder / LOCK).open("w")
    except OSError as error:
        raise UserError(f"cannot write into {folder}: {error.strerror}; choose another place") from error
    with lock:
        try:
            lock_file(lock.fileno(), wait=False)
        except OSError:
            raise UserError(f"another `watch` writes into {folder}: give this one another folder") from None
        yield folder / JOURNAL
