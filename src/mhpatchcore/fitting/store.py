"""The store: named entries of arrays on disk, so that the network runs once per image and work can be found again.

An entry is one file, named by a key made from all that decides its content, in the layout of safetensors: a header of
names, types, shapes and places, then the raw numbers. Every array has a checksum of all this in the header. Entries
are written beside their place and renamed, so one is there whole or not at all. They are read with positioned reads
rather than a memory map, whose pages would count as this process's memory. A store is known by its folder alone: it
pickles.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
import tempfile
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from mhpatchcore.errors import UserError
from mhpatchcore.runtime.arrays import Array

PREFIX = "mhpatchcore-store-"
LOCK = ".lock"
SUFFIX = ".entry"


class DamagedEntryError(UserError):
    """An entry is not what was written."""


@dataclass(frozen=True)
class Store:
    """Entries in a folder; any process may read and write them."""

    folder: Path

    def put(self, key: str, arrays: Mapping[str, Array]) -> int:
        """Write an entry; how many bytes it takes. One that is there already is replaced."""
        header: dict[str, Any] = {}
        at, pieces = 0, []
        for name, array in arrays.items():
            content = np.ascontiguousarray(array)
            entry = {"dtype": content.dtype.str, "shape": list(content.shape)}
            crc32 = _checksum(name, entry, content.data)
            header[name] = entry | {"data_offsets": [at, at + content.nbytes], "crc32": crc32}
            pieces.append(content.data)
            at += content.nbytes
        text = json.dumps(header).encode()
        try:
            handle, name = tempfile.mkstemp(prefix=f".{key[:16]}.", dir=self.folder)
            try:
                with os.fdopen(handle, "wb") as file:
                    file.write(len(text).to_bytes(8, "little"))
                    file.write(text)
                    for piece in pieces:
                        file.write(piece)
                Path(name).replace(self._path(key))
            finally:
                Path(name).unlink(missing_ok=True)
        except OSError as error:
            raise UserError(
                f"the store in {self.folder} cannot be written: {error.strerror}; "
                "make room, or name another folder with --store"
            ) from error
        return 8 + len(text) + at

    def has(self, key: str) -> bool:
        return self._path(key).is_file()

    def get(self, key: str, names: Sequence[str] | None = None) -> dict[str, Array]:
        """Some arrays of an entry, or all of them, each checked against its checksum."""
        try:
            with self._path(key).open("rb", buffering=0) as file:
                length, size = int.from_bytes(file.read(8), "little"), os.fstat(file.fileno()).st_size
                if 8 + length > size:
                    raise ValueError("it is too short")
                header = json.loads(file.read(length))
                return {one: _read(file.fileno(), 8 + length, one, header[one]) for one in names or header}
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise DamagedEntryError(
                f"the entry {key[:16]} of the store in {self.folder} is damaged ({error}); "
                "delete it and run the command again"
            ) from error

    def _path(self, key: str) -> Path:
        return self.folder / f"{key}{SUFFIX}"


def entry_key(*parts: object) -> str:
    """A key of whatever decides an entry's content; parts are told by their JSON."""
    return hashlib.sha256(json.dumps(parts, default=str).encode()).hexdigest()


@contextmanager
def opened_store(folder: str | Path | None, expected_bytes: int = 0) -> Iterator[Store]:
    """A store in a folder that stays, or in a temporary one that goes at the end."""
    if folder is not None:
        place = Path(folder)
        try:
            place.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UserError(f"the store cannot be kept in {place}: {error.strerror}; name another") from error
        _check_room(place, expected_bytes)
        yield Store(place)
        return
    top = Path(tempfile.gettempdir())
    _check_room(top, expected_bytes)
    _remove_abandoned(top)
    place, lock = _made_folder(top)
    try:
        yield Store(place)
    finally:
        os.close(lock)
        shutil.rmtree(place, ignore_errors=True)


def _made_folder(top: Path) -> tuple[Path, int]:
    """A new temporary folder, and the lock that says that somebody uses it."""
    try:
        hidden = Path(tempfile.mkdtemp(prefix=f".{PREFIX}", dir=top))
        try:
            lock = os.open(hidden / LOCK, os.O_CREAT | os.O_RDWR)
            fcntl.flock(lock, fcntl.LOCK_EX)
            # others see it only now, and find it locked
            return hidden.rename(hidden.with_name(hidden.name[1:])), lock
        except OSError:
            shutil.rmtree(hidden, ignore_errors=True)
            raise
    except OSError as error:
        raise UserError(
            f"the store cannot be kept in {top}: {error.strerror}; make room, or name another folder with --store"
        ) from error


def _read(file: int, start: int, name: str, entry: Mapping[str, Any]) -> Array:
    first, stop = entry["data_offsets"]
    if not 0 <= first <= stop <= os.fstat(file).st_size - start:
        raise ValueError("it is too short")
    data = bytearray(stop - first)
    if os.preadv(file, [data], start + first) != len(data) or _checksum(name, entry, data) != entry["crc32"]:
        raise ValueError("it is not what was written")
    return np.frombuffer(data, np.dtype(entry["dtype"])).reshape(entry["shape"])


def _checksum(name: str, entry: Mapping[str, Any], data: Any) -> int:
    """Of an array's name, type, shape and numbers."""
    return zlib.crc32(data, zlib.crc32(f"{name} {entry['dtype']} {entry['shape']}".encode()))


def _check_room(folder: Path, needed: int) -> None:
    free = shutil.disk_usage(folder).free
    if needed > free:
        raise UserError(
            f"the store needs {needed / 1e9:.1f} GB in {folder}, which has {free / 1e9:.1f} GB free: "
            "name another folder with --store"
        )


def _remove_abandoned(top: Path) -> None:
    """Delete temporary stores whose process was killed: nobody holds their lock."""
    for place in top.glob(f"{PREFIX}*"):
        with suppress(OSError):
            lock = os.open(place / LOCK, os.O_RDWR)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(place, ignore_errors=True)
            finally:
                os.close(lock)
