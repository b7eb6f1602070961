"""Earlier models, kept beside the present one, and the way back to any of them.

    line/part.mhpc                                                  the model in use
    line/versions/part/2026-11-17T08-30-00.123456Z-1f0c5a….mhpc     what it was until then

A model is replaced in three steps: the present file is copied into `versions`, the new one is written beside its
place, and one rename puts it there. A crash at any moment leaves the old model or the new one in use; at worst
`versions` then holds a copy of what is still in use.
"""

from __future__ import annotations

import fcntl
import hashlib
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from mhpatchcore.detector import Detector
from mhpatchcore.errors import ModelFileError, UserError
from mhpatchcore.model.file import MOST_HEADER, read_document, to_bytes
from mhpatchcore.runtime.files import atomic_path

FOLDER = "versions"
SHORT = 12  # digits of a hash that tell versions apart


class ModelChangedError(UserError):
    """The model in use is no longer the one that a change was made from."""


@dataclass(frozen=True)
class Version:
    """A model file: its hash, when it was in use until, and what its history says was done to it last.

    `version` names it to `undo`: the first digits of its hash. The one in use has no end.
    """

    version: str
    sha256: str
    until: str
    images: int
    false_alarm: float
    what: str
    who: str
    when: str
    note: str
    in_use: bool
    path: Path

    def to_json(self) -> dict[str, Any]:
        return {name: value for name, value in asdict(self).items() if name != "path"}


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


def replaced(path: Path, detector: Detector, instead_of: str | None = None) -> str:
    """Put a detector in the place of a model file, which is kept; the new file's hash.

    `instead_of` is the hash that the file must still have: another change in between is not overwritten.
    """
    return _put(path, to_bytes(detector.model), instead_of)


def undone(path: Path, version: str = "") -> Version:
    """Go back to an earlier model, byte for byte: the one named, or the one in use before. The present one is kept."""
    earlier = [one for one in versions(path) if not one.in_use]
    if not earlier:
        raise UserError(f"there is no earlier version of {path}: it has not been changed from the inbox")
    matching = [one for one in earlier if one.sha256.startswith(version.lower())]
    if not matching:
        raise UserError(f"there is no version {version} of {path}; `inbox versions` lists them")
    if version and len({one.sha256 for one in matching}) > 1:
        raise UserError(f"several versions of {path} begin with {version}: give more of its digits")
    chosen = matching[0]
    content = chosen.path.read_bytes()
    if hashlib.sha256(content).hexdigest() != chosen.sha256:
        raise ModelFileError(f"{chosen.path} is damaged: choose another version")
    _put(path, content, None)
    return chosen


def versions(path: Path) -> list[Version]:
    """The model in use, and the earlier ones, the latest first; each once. What cannot be read cannot come back."""
    found = {sha256_of(path): _version(path, "", in_use=True)}
    kept = _folder(path)
    for file in sorted(kept.glob("[!.]*.mhpc"), reverse=True) if kept.is_dir() else []:
        with suppress(ModelFileError):
            until, _, _ = file.stem.rpartition("-")
            found.setdefault(sha256_of(file), _version(file, _time(until), in_use=False))
    return list(found.values())


def _put(path: Path, content: bytes, instead_of: str | None) -> str:
    new = hashlib.sha256(content).hexdigest()
    with _locked(path):
        old = sha256_of(path)
        if instead_of is not None and old != instead_of:
            raise ModelChangedError(f"{path.name} has changed meanwhile: look at a new preview")
        if old != new:
            _keep(path, old)
            with atomic_path(path) as temporary:
                temporary.write_bytes(content)
    return new


def _keep(path: Path, sha256: str) -> None:
    """A copy of the present file among the versions, under the present time."""
    ns = time.time_ns()
    now = time.strftime("%Y-%m-%dT%H-%M-%S", time.gmtime(ns // 10**9))
    with atomic_path(_folder(path) / f"{now}.{ns // 1000 % 10**6:06}Z-{sha256[:SHORT]}.mhpc") as temporary:
        temporary.write_bytes(path.read_bytes())


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """One change at a time, of all processes."""
    folder = _folder(path)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = (folder / ".lock").open("w")
    except OSError as error:
        raise UserError(f"cannot write {folder}: {error.strerror}; check its permissions") from error
    with lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _folder(path: Path) -> Path:
    return path.parent / FOLDER / path.stem


def _version(path: Path, until: str, in_use: bool) -> Version:
    sha256 = sha256_of(path)
    with path.open("rb") as file:
        length = file.read(8)
        header = file.read(min(int.from_bytes(length, "little"), MOST_HEADER))
    document = read_document(length + header, str(path))
    last = document["history"][-1] if document["history"] else {}
    told = {name: str(last.get(name, "")) for name in ("what", "who", "when", "note")}
    rate = float(document["calibration"]["false_alarm"])
    return Version(
        sha256[:SHORT], sha256, until, document["n_learnt"], rate, in_use=in_use, path=path, **told
    )


def _time(stem: str) -> str:
    """
    >>> _time("2026-11-17T08-30-00.123456Z")
    '2026-11-17T08:30:00Z'
    """
    date, _, clock = stem.partition("T")
    return f"{date}T{clock.partition('.')[0].replace('-', ':')}Z"
