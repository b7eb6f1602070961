"""The models that are served: loaded and warmed up aside, then put in place of the old ones at once.

Who scores holds a reference to a `Served`, so a swap drops no request: what has begun ends with the model that it began
with.
"""

from __future__ import annotations

import hashlib
import logging
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from threading import Lock

from mhpatchcore.deploy.inbox_versions import replaced
from mhpatchcore.deploy.serve.refusals import unknown
from mhpatchcore.detector import Detector
from mhpatchcore.errors import ModelFileError, UserError
from mhpatchcore.model.file import check_file
from mhpatchcore.runtime.memory import give_back
from mhpatchcore.runtime.texts import without_paths

SUFFIX = ".mhpc"
log = logging.getLogger("mhpatchcore")
GONE = "its file is gone; the model is served from memory"
Stamp = tuple[int, int, int]


@dataclass(frozen=True, eq=False)
class Served:
    """A model in service; `stamp` tells whether its file is still the one that was loaded."""

    name: str
    path: Path
    detector: Detector
    sha256: str
    stamp: Stamp
    loaded_at: str


class Registry:
    """Models by name, the stem of their file. Folders are looked through again at every `refresh`."""

    def __init__(self, places: Iterable[str | Path]) -> None:
        self._places = tuple(Path(place) for place in places)
        self._lock = Lock()  # one loads at a time; reading needs none
        self._served: Mapping[str, Served] = {}
        self._problems: Mapping[str, str] = {}
        self._failed: dict[str, Stamp] = {}
        self.swapped: Callable[[Served], None] = lambda served: None
        for name, path in self._files().items():
            self._served = {**self._served, name: load_served(name, path)}
        if not self._served:
            raise UserError(
                f"there is no model in {', '.join(map(str, self._places))}: fit one, FILE{SUFFIX}"
            )

    @property
    def served(self) -> tuple[Served, ...]:
        return tuple(self._served.values())

    def problem(self, name: str) -> str | None:
        """Why a model's file as it is now is not served; None where it is."""
        return self._problems.get(name)

    def __getitem__(self, name: str) -> Served:
        try:
            return self._served[name]
        except KeyError:
            raise unknown("such model") from None

    def refresh(self) -> None:
        """Look at all files: new and changed ones are loaded. One that cannot be leaves the old model in its place."""
        with self._lock:
            try:
                files = self._files()
            except UserError as error:
                log.warning("%s", error)
                return
            problems = {name: GONE for name in self._served if name not in files}
            for name, path in files.items():
                told = self._refreshed(name, path)
                if told is not None:
                    problems[name] = told
            self._problems = problems

    def install(self, name: str, detector: Detector) -> Served:
        """Write a model into its file, whose former content is kept among the versions, and serve it."""
        with self._lock:
            path = self[name].path
            replaced(path, detector)
            return self._put(load_served(name, path))

    def _refreshed(self, name: str, path: Path) -> str | None:
        """Load the file if it has changed; what is wrong with it."""
        try:
            stamp = _stamp(path)
        except OSError:
            return GONE
        if name in self._served and self._served[name].stamp == stamp:
            return None
        if self._failed.get(name) == stamp:
            return self._problems.get(name)
        try:
            self._put(load_served(name, path))
            return None
        except UserError as error:
            self._failed[name] = stamp
            told = in_its_place(error, path)
            log.warning("%s: %s", name, told)
            return told

    def _put(self, served: Served) -> Served:
        self._served = {**self._served, served.name: served}
        self._failed.pop(served.name, None)
        log.info("%s: model %s is served", served.name, served.sha256[:12])
        self.swapped(served)
        give_back()  # loading leaves much behind
        return served

    def _files(self) -> dict[str, Path]:
        found: dict[str, Path] = {}
        for place in self._places:
            inside = sorted(path for path in place.glob(f"*{SUFFIX}") if not path.name.startswith("."))
            for path in inside if place.is_dir() else [place]:
                if found.setdefault(path.stem, path) != path:
                    raise UserError(f"{found[path.stem]} and {path} have the same name: rename one of them")
        return found


def load_served(name: str, path: Path) -> Served:
    """Load a model file, ready to score; what is hashed and what is loaded is one file, also if it is replaced now."""
    check_file(path)
    try:
        with path.open("rb") as file:
            opened = Path(f"/proc/self/fd/{file.fileno()}")
            stamp, sha256 = _stamp(opened), hashlib.file_digest(file, "sha256").hexdigest()
            detector = Detector.load(opened)
    except UserError as error:
        raise type(error)(str(error).replace(str(opened), str(path))) from error
    except OSError as error:
        raise ModelFileError(f"cannot read {path}: {error.strerror}; check its permissions") from error
    now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    return Served(name, path, detector, sha256, stamp, now)


def in_its_place(error: UserError, path: Path) -> str:
    """A message about a file, without its path."""
    return str(without_paths(str(error).replace(str(path), path.name)))


def _stamp(path: Path) -> Stamp:
    facts = path.stat()
    return facts.st_mtime_ns, facts.st_size, facts.st_ino
