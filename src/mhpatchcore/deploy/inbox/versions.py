"""Earlier models, kept beside the present one and numbered, and the way back to any of them.

    line/part.mhpc                          the model in use
    line/versions/part/3-1f0c5a9d2b7e.mhpc  an earlier one: its number, and the first digits of its hash

Numbers say which came after which, whatever the clocks said. A model that comes back has the number that it had.
"""

from __future__ import annotations

import hashlib
import re
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from mhpatchcore.deploy.inbox.journal import Journal
from mhpatchcore.errors import ModelFileError, UserError
from mhpatchcore.model.file import document_of, read_file
from mhpatchcore.runtime.files import atomic_path

FOLDER, LEARNT = "versions", "learnt"
UNDO = "undo"
SHORT = 12  # digits of a hash that tell versions apart
NAME = re.compile(rf"(\d+)-([0-9a-f]{{{SHORT}}})\.mhpc")
MOST_KEPT = 20  # beside the first, which is what the line began with


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
    until = {one.sha256_before: one.at for one in reversed(journal.changes(path.stem)) if one.state == "done"}
    present = sha256_of(path)
    found = [_version(path, _number(path, present), present, "", in_use=True)]
    for number, file in _kept(path):
        with suppress(ModelFileError):
            sha256 = sha256_of(file)
            if sha256 != present:
                found.append(_version(file, number, sha256, until.get(sha256, ""), in_use=False))
    return sorted(found, key=lambda one: one.version, reverse=True)


def earlier_version(journal: Journal, path: Path, version: int | None = None) -> Version:
    """The version of this number; or one step back, the version that the one in use was made from."""
    every = versions(journal, path)
    present = next(one for one in every if one.in_use)
    if version is not None:
        chosen = next((one for one in every if one.version == version), None)
        if chosen is None:
            raise UserError(f"there is no version {version} of {path}; `inbox versions` lists them")
        if chosen.in_use:
            raise UserError(f"version {version} of {path} is in use: choose another one")
        return chosen
    earlier = [one for one in every if one.version < present.version]
    if not earlier:
        raise UserError(f"there is no earlier version of {path}: version {present.version} is the first")
    made_from = {
        one.sha256_before
        for one in journal.changes(path.stem)
        if one.state == "done" and one.what != UNDO and one.sha256_after == present.sha256
    }
    return next((one for one in earlier if one.sha256 in made_from), earlier[0])


def content_of(path: Path, version: Version) -> bytes:
    """The file of an earlier version, as it was."""
    file = next(file for number, file in _kept(path) if number == version.version)
    content, _ = read_file(file)
    if hashlib.sha256(content).hexdigest() != version.sha256:
        raise ModelFileError(f"{file} is damaged: choose another version")
    return content


def is_kept(path: Path, sha256: str) -> bool:
    return any(file.stem.endswith(f"-{sha256[:SHORT]}") for _, file in _kept(path))


def keep(path: Path, content: bytes, sha256: str) -> None:
    """Keep a model that is about to go, unless it is kept already."""
    file = folder_of(path) / f"{_number(path, sha256)}-{sha256[:SHORT]}.mhpc"
    if not file.exists() or sha256_of(file) != sha256:
        with atomic_path(file) as temporary:
            temporary.write_bytes(content)


def prune(path: Path) -> None:
    """Delete the oldest versions, but the first and the one in use, until only so many are left."""
    in_use = sha256_of(path)[:SHORT]
    for _, file in _kept(path)[1:-MOST_KEPT]:
        if not file.stem.endswith(in_use):
            file.unlink(missing_ok=True)


def _kept(path: Path) -> list[tuple[int, Path]]:
    """Files by their number, the lowest first."""
    folder = folder_of(path)
    named = [(NAME.fullmatch(file.name), file) for file in (folder.iterdir() if folder.is_dir() else ())]
    return sorted((int(match[1]), file) for match, file in named if match)


def _number(path: Path, sha256: str) -> int:
    """The number of a model: the one that it was kept under, or the next."""
    kept = _kept(path)
    known = [number for number, file in kept if file.stem.endswith(f"-{sha256[:SHORT]}")]
    return known[0] if known else max((number for number, _ in kept), default=0) + 1


def _version(path: Path, number: int, sha256: str, until: str, in_use: bool) -> Version:
    document = document_of(path)
    last = document["history"][-1] if document["history"] else {}
    what, who, when, note = (str(last.get(name, "")) for name in ("what", "who", "when", "note"))
    rate = float(document["calibration"]["false_alarm"])
    facts = (document["product"], document["n_learnt"], rate)
    return Version(number, sha256, until, *facts, what, who, when, note, in_use)
