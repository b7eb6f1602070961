"""A folder into which a camera writes: files are judged as they arrive, once each, whatever happens meanwhile."""

from __future__ import annotations

import json
import os
import shutil
import uuid
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from threading import Event
from time import gmtime, monotonic, strftime
from typing import Any

from mhpatchcore.deploy.watch.journal import Arrived, Journal, Judged
from mhpatchcore.deploy.watch.services import Judge, UnavailableError
from mhpatchcore.deploy.watch.status import Status
from mhpatchcore.errors import ImageError, UserError
from mhpatchcore.inputs.places import SUFFIXES
from mhpatchcore.runtime.files import atomic_path, csv_text, write_text
from mhpatchcore.runtime.parallel import ordered_map
from mhpatchcore.runtime.system import lock as lock_file

JOURNAL, LOCK = "watch.sqlite", ".watch.lock"
ENDINGS = tuple(SUFFIXES)
FOLDERS = {"passed": "passed", "rejected": "rejected", "no threshold": "unjudged"}
BROKEN = "broken"  # the folder of files that could not be read, which are rejected too
COLUMNS = (
    *("at", "image", "score", "threshold", "verdict"),
    *("is_rejected", "p_value", "defect", "regions", "reason", "id"),
)
PATIENCE = 5.0  # times `settle`: what cannot be read may still be on its way
AT_A_TIME = 64
LOOK = 0.5  # seconds between two looks at the inbox
TAIL = 2**16  # bytes of a table in which the last lines are looked for
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
        if self.outbox.resolve().is_relative_to(self.inbox.resolve()):
            raise UserError(
                f"results in {self.outbox} would stand among the images: give --out another folder"
            )


def _facts(path: Path) -> tuple[int, int]:
    """What tells a file from a later one of its name."""
    facts = path.stat()
    return facts.st_size, facts.st_mtime_ns


@dataclass
class Watch:
    """Judges the files of a line until `stop` is set or, with `once`, until all are judged."""

    line: Line
    journal: Journal
    judge: Judge
    status: Status
    workers: int = 1
    once: bool = False
    stop: Event = field(default_factory=Event)

    def __post_init__(self) -> None:
        self._known: set[Arrived] = set()  # files that were judged, and are still there
        self._since: dict[Arrived, float] = {}  # from when on each new file has been as it is
        self._numbers: dict[Path, int] = {}  # the last one of a name that comes again and again

    def finish_earlier(self) -> int:
        """Do what an earlier run has judged but not finished; how many files that were."""
        left = self.journal.unfinished()
        for judged in left:
            self._finish(judged)
        return len(left)

    def answers(self, each: Callable[[], None] = lambda: None) -> Iterator[dict[str, Any]]:
        """The answer for each file, once it is in its place; `each` is called before every look at the inbox."""
        judged = 0
        while not self.stop.is_set():
            each()
            self.journal.check()
            before = judged
            for answer in self._judged():
                judged += 1
                self.status.judged(answer["verdict"])
                yield answer
            if judged // FORGET > before // FORGET:
                with suppress(OSError):  # the inbox is out of reach: another time
                    self.journal.forget_gone({file.name for file in self._files()})
            if judged == before:
                if self.once and (self.line.done or all(map(self._is_old, self._since))):
                    return  # what is there and has not been judged will not change by waiting
                self.stop.wait(min(LOOK, self.line.settle / 2) or LOOK / 10)

    def _judged(self) -> Iterator[dict[str, Any]]:
        """Judge what is complete, several files at a time; nothing while the inbox is out of reach."""
        self.status.looked()
        try:
            files = self.complete()[:AT_A_TIME]
        except OSError as error:
            why = f"cannot look into {self.line.inbox} ({error.strerror}): it goes on once the folder is back"
            self.status.set_problem("inbox", why)
            return
        self.status.set_problem("inbox")
        for file, outcome in zip(files, ordered_map(self._outcome, files, self.workers), strict=True):
            if isinstance(outcome, UnavailableError) or not self._is_still(file):
                continue
            if isinstance(outcome, ImageError) and not (self.line.done or self._is_old(file)):
                continue
            answer = self._answer(file, outcome)
            judged = self.journal.add(file, self._place(file, answer), answer, self.line.targets)
            self._finish(judged)
            yield answer

    def complete(self, at: float | None = None) -> list[Arrived]:
        """Files that can be judged now, the oldest first; `at` is the time by a clock that never goes back."""
        at = monotonic() if at is None else at
        files = set(self._files())
        self._known = {file for file in files if file in self._known or self.journal.knows(file)}
        here = files - self._known
        self._since = {file: self._since.get(file, at) for file in here}
        if self.line.done:
            ready = [file for file in here if (self.line.inbox / f"{file.name}{self.line.done}").exists()]
        else:
            ready = [file for file, since in self._since.items() if at - since >= self.line.settle]
        return sorted(ready, key=lambda file: (file.changed, file.name))

    def _is_old(self, file: Arrived) -> bool:
        """Whether it has been as it is for so long that nobody writes it any more."""
        return monotonic() - self._since.get(file, -1e9) >= PATIENCE * self.line.settle

    def _files(self, place: str = "") -> Iterator[Arrived]:
        """The images in the inbox, or in a folder of it; one that is inside may go, or be somebody else's."""
        try:
            entries = [*os.scandir(self.line.inbox / place)]
        except (FileNotFoundError, PermissionError):
            if place:
                return
            raise
        for entry in entries:
            name = entry.name.lower()
            if entry.is_dir(follow_symlinks=False):
                if not name.startswith("."):
                    yield from self._files(f"{place}{entry.name}/")
            elif name.endswith(ENDINGS) and not name.startswith((".", "~")):
                with suppress(OSError):  # it is gone again
                    facts = entry.stat()
                    yield Arrived(f"{place}{entry.name}", facts.st_size, facts.st_mtime_ns)

    def _outcome(self, file: Arrived) -> dict[str, Any] | ImageError | UnavailableError:
        """What the judge says of a file; one that is away is asked again until it answers."""
        while not self.stop.is_set():
            try:
                outcome = self.judge(self.line.inbox / file.name, Path(file.name).stem)
            except ImageError as error:
                return error
            except UnavailableError as error:
                self.status.set_problem("judge", str(error))
                if self.once or self.stop.wait(error.seconds):
                    return error
            else:
                self.status.set_problem("judge")
                return outcome
        return UnavailableError("stopped")

    def _is_still(self, file: Arrived) -> bool:
        """Whether the file in the inbox is the one that was looked at."""
        with suppress(OSError):
            return _facts(self.line.inbox / file.name) == (file.size, file.changed)
        return False

    def _answer(self, file: Arrived, outcome: dict[str, Any] | Exception) -> dict[str, Any]:
        """What is written and sent about a file."""
        at = strftime("%Y-%m-%dT%H:%M:%SZ", gmtime())
        known = {"id": uuid.uuid4().hex, "at": at, "image": file.name}
        if isinstance(outcome, Exception):
            why = str(outcome).replace(str(self.line.inbox / file.name), file.name)
            return known | {"verdict": "rejected", "is_rejected": True, "reason": why}
        return known | outcome

    def _place(self, file: Arrived, answer: dict[str, Any]) -> str:
        """The name of the results of a file, without a suffix: its own, or with a number where that is taken."""
        own = Path(file.name)
        folder = BROKEN if "reason" in answer else FOLDERS[answer["verdict"]]
        base = own.with_suffix("") if not self.line.sort else folder / own.with_suffix("")
        for number in count(self._numbers.get(base, 0)):
            place = base.with_name(f"{base.name}-{number}" if number else base.name).as_posix()
            files = (self.line.outbox / f"{place}{suffix}" for suffix in (".json", own.suffix))
            if not any(one.exists() for one in files):
                break
        if number:
            self._numbers[base] = number
        return place

    def _finish(self, judged: Judged) -> None:
        """Write what was decided: doing it twice leaves the same files as doing it once."""
        line, name = self.line, judged.file.name
        write_text(line.outbox / f"{judged.place}.json", json.dumps(judged.answer, indent=2) + "\n")
        if line.table is not None:
            _add_row(line.table, judged.answer)
        if line.sort:
            _move(line.inbox / name, line.outbox / f"{judged.place}{Path(name).suffix}", judged.file)
            if line.done:
                (line.inbox / f"{name}{line.done}").unlink(missing_ok=True)
        self.journal.finish(judged)


def _move(source: Path, target: Path, file: Arrived) -> None:
    """Move a file, unless it was moved before a kill, or another one has come under its name: that will be judged."""
    try:
        if _facts(source) != (file.size, file.changed):
            return
    except FileNotFoundError:
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        source.replace(target)
    except OSError:  # another disk
        with atomic_path(target) as temporary:
            shutil.copy2(source, temporary)
        source.unlink()


def _add_row(table: Path, answer: dict[str, Any]) -> None:
    """Add a line to the CSV file, once: a kill may have left it there, or the beginning of it, which goes."""
    row = answer | ({"regions": len(answer["regions"])} if "regions" in answer else {})
    # a file's name may hold bytes that are not text
    line = csv_text(COLUMNS, [row], header=False).encode(errors="backslashreplace")
    if not table.exists() or not table.stat().st_size:
        write_text(table, csv_text(COLUMNS, []))
    with table.open("a+b") as file:
        end = file.seek(0, os.SEEK_END)
        file.seek(max(0, end - TAIL))
        tail = b"\n" + file.read()
        if b"\n" + line in tail:
            return
        begun = next((n for n in range(len(line), 0, -1) if tail.endswith(b"\n" + line[:n])), 0)
        if begun:
            file.truncate(end - begun)
        file.write(line)
        file.flush()
        os.fsync(file.fileno())


@contextmanager
def outbox_for_one(folder: Path) -> Iterator[Journal]:
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
        with closing(Journal(folder / JOURNAL)) as journal:
            yield journal
