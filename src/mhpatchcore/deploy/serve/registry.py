"""The models that are served: loaded and warmed up aside, then put in place of the old ones at once.

Scoring holds a reference to a `Served`, so a swap drops no request: what has begun ends with the model that it began
with. A file of another product does not take a model's place unless somebody says so. A model whose file is overwritten
by hand is kept among its versions.
"""

from __future__ import annotations

import hashlib
import logging
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from threading import Lock

from mhpatchcore.deploy.inbox import Inbox
from mhpatchcore.deploy.inbox.journal import InboxError
from mhpatchcore.deploy.inbox.proposals import loaded
from mhpatchcore.deploy.inbox.versions import check_product, is_kept, keep, locked
from mhpatchcore.deploy.serve.refusals import Refused
from mhpatchcore.detector import Detector
from mhpatchcore.errors import UserError
from mhpatchcore.model.file import to_bytes
from mhpatchcore.runtime.system import give_back
from mhpatchcore.runtime.texts import without_paths

SUFFIX = ".mhpc"
log = logging.getLogger("mhpatchcore")
Stamp = tuple[int, int, int]
GONE = "its file is gone; the model is served from memory"


@dataclass(frozen=True)
class Swap:
    """What the last swap did to the verdicts on the last parts; a wild one may well be the wrong model."""

    parts: int
    changed: int
    is_wild: bool


@dataclass(frozen=True, eq=False)
class Served:
    """A model in service; `stamp` tells whether its file is still the one that was loaded, `swap` what that changed."""

    name: str
    path: Path
    detector: Detector
    sha256: str
    stamp: Stamp | None
    loaded_at: str
    swap: Swap | None = None


class Registry:
    """Models by name, the stem of their file. Folders are looked through again at every `refresh`.

    `compared` says what a model that is swapped in makes of the last parts; `swapped` is called with it.
    """

    def __init__(self, places: Iterable[str | Path], other_product: bool = False) -> None:
        self._places = tuple(Path(place) for place in places)
        self._lock = Lock()  # one loads at a time; reading needs none
        self._served: Mapping[str, Served] = {}
        self._problems: Mapping[str, str] = {}
        self._failed: dict[str, Stamp] = {}
        self._other_product = other_product
        self.compared: Callable[[Served], Swap | None] = lambda served: None
        self.swapped: Callable[[Served], None] = lambda served: None
        files = self._files()
        if not files:
            folders = ", ".join(map(str, self._places))
            raise UserError(f"there is no model in {folders}: fit one, FILE{SUFFIX}")
        self.inbox = Inbox.beside(next(iter(files.values())))
        for name, path in files.items():
            self._served = {**self._served, name: self._loaded(name, path)}

    @property
    def served(self) -> tuple[Served, ...]:
        return tuple(self._served.values())

    def problem(self, name: str) -> str | None:
        """Why a model's file as it is now is not served; None where it is."""
        return self._problems.get(name)

    def __getitem__(self, name: str) -> Served:
        if name not in self._served:
            raise Refused(404, "there is no such model")
        return self._served[name]

    def refresh(self) -> None:
        """Look at all files: new and changed ones are loaded. One that cannot be leaves the old model in its place."""
        with self._lock:
            try:
                files = self._files()
            except UserError as error:
                log.warning("%s", error)
                return
            gone = {name: GONE for name in self._served if name not in files}
            looked_at = {name: self._refreshed(name, path) for name, path in files.items()}
            self._problems = gone | {name: problem for name, problem in looked_at.items() if problem}

    def _refreshed(self, name: str, path: Path) -> str | None:
        """Load the file if it has changed; what is wrong with it."""
        stamp = _stamp(path)
        if stamp is None:
            return GONE
        if name in self._served and self._served[name].stamp == stamp:
            return None
        if self._failed.get(name) == stamp:
            return self._problems.get(name)
        try:
            self._keep(name)
            self._put(self._loaded(name, path))
            return None
        except UserError as error:
            self._failed[name] = stamp
            problem = str(without_paths(str(error).replace(str(path), path.name)))
            log.warning("%s: %s", name, problem)
            return problem

    def _put(self, served: Served) -> None:
        self._served = {**self._served, served.name: served}
        self._failed.pop(served.name, None)
        log.info("%s: model %s is served", served.name, served.sha256[:12])
        swap = self.compared(served)  # the line need not wait for that
        if swap is not None:
            served = replace(served, swap=swap)
            self._served = {**self._served, served.name: served}
            if swap.is_wild:
                told = "%s: model %s has another verdict on %d of the last %d parts: is it the right one?"
                log.warning(told, served.name, served.sha256[:12], swap.changed, swap.parts)
        self.swapped(served)
        give_back()  # loading leaves much behind

    def _loaded(self, name: str, path: Path) -> Served:
        """The model in a file, unless it is one of another product and nobody has said that it is meant."""
        stamp = _stamp(path)  # before it is read: what is replaced meanwhile is loaded again
        sha256, detector = loaded(path)
        detector.runtime.warm_up()
        loaded_at = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        served, journal = Served(name, path, detector, sha256, stamp, loaded_at), self.inbox.journal
        known = self._served[name].detector.model.product if name in self._served else ""
        is_meant = self._other_product
        with suppress(InboxError):  # verdicts do not depend on it
            known = known or journal.product(name)
            is_meant = is_meant or journal.was_accepted(name, served.sha256)
        if not is_meant:
            check_product(path, known, served.detector.model.product)
        return served

    def _keep(self, name: str) -> None:
        """Keep the model in service, whose file is no longer there."""
        served = self._served.get(name)
        if served is not None and not is_kept(served.path, served.sha256):
            content = to_bytes(served.detector.model)
            with suppress(UserError):
                if hashlib.sha256(content).hexdigest() == served.sha256:
                    with locked(served.path):
                        keep(served.path, content, served.sha256)

    def _files(self) -> dict[str, Path]:
        found: dict[str, Path] = {}
        for place in self._places:
            inside = sorted(path for path in place.glob(f"*{SUFFIX}") if not path.name.startswith("."))
            for path in inside if place.is_dir() else [place]:
                if found.setdefault(path.stem, path) != path:
                    raise UserError(f"{found[path.stem]} and {path} have the same name: rename one of them")
        return found


def _stamp(path: Path) -> Stamp | None:
    """None where it is gone."""
    with suppress(OSError):
        facts = path.stat()
        return facts.st_mtime_ns, facts.st_size, facts.st_ino
    return None
