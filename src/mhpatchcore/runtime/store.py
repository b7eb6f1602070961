"""The store: named entries of arrays on disk, so that the network runs once per image and work can be found again.

An entry is one file, named by a key made from all that decides its content, in the layout of safetensors: a header of
names, types, shapes, places and checksums, then the raw numbers. It is written beside its place and renamed, so it is
there whole or not at all. It is read rather than mapped: pages of a memory map would count as this process's memory.

`fitting/storekeeping.py` opens stores and keeps them small.
"""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
import zlib
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from mhpatchcore.errors import UserError
from mhpatchcore.runtime.arrays import Array

SUFFIX = ".entry"
VERSION = 3  # of what is computed: entries of another one are not found


class DamagedEntryError(UserError):
    """An entry is not what was written."""


@dataclass(frozen=True)
class Store:
    """Entries in a folder, which any process may read and write; it pickles.

    One that is `kept` outlives the work: what was found out on the way is then worth an entry too.
    """

    folder: Path
    kept: bool = True

    def put(self, key: str, arrays: Mapping[str, Array]) -> int:
        """Write an entry; how many bytes it takes. One that is there already is replaced."""
        header: dict[str, Any] = {}
        contents = {name: np.ascontiguousarray(array) for name, array in arrays.items()}
        at = 0
        for name, content in contents.items():
            entry = {"dtype": content.dtype.str, "shape": list(content.shape)}
            crc32 = _checksum(name, entry, content.data)
            header[name] = entry | {"data_offsets": [at, at + content.nbytes], "crc32": crc32}
            at += content.nbytes
        text = json.dumps(header).encode()
        target = self.path(key)
        try:
            if not target.parent.is_dir():
                # the store's own folder is not made again: somebody has taken it away
                target.parent.parent.mkdir(exist_ok=True)
                target.parent.mkdir(exist_ok=True)
            handle, name = tempfile.mkstemp(prefix=".", dir=target.parent)
            try:
                with os.fdopen(handle, "wb") as file:
                    file.write(len(text).to_bytes(8, "little"))
                    file.write(text)
                    for content in contents.values():
                        file.write(content.data)
                Path(name).replace(target)
            finally:
                Path(name).unlink(missing_ok=True)
        except OSError as error:
            raise UserError(
                f"the store in {self.folder} cannot be written: {error.strerror}; make room, or name another "
                "folder (`store=FOLDER`); what it holds is found again"
            ) from error
        return 8 + len(text) + at

    def put_by_content(self, kind: str, arrays: Mapping[str, Array]) -> str:
        """Keep what many tasks need, so that it does not travel with every one of them; its key."""
        digest = hashlib.sha256()
        for name, array in arrays.items():
            digest.update(f"{name} {array.dtype.str} {array.shape} ".encode())
            digest.update(np.ascontiguousarray(array).data)
        key = entry_key(kind, digest.hexdigest())
        self.put(key, arrays)
        return key

    def found(self, key: str) -> dict[str, Array] | None:
        """An entry that is there, undamaged, and counts as used from now on; otherwise None."""
        try:
            entry = self.get(key)
        except DamagedEntryError:
            return None
        with suppress(OSError):  # of somebody else, or gone by now
            os.utime(self.path(key))
        return entry

    def get(self, key: str, names: Sequence[str] | None = None) -> dict[str, Array]:
        """Some arrays of an entry, or all of them, each checked against its checksum."""
        try:
            with self.path(key).open("rb") as file:
                length, size = int.from_bytes(file.read(8), "little"), os.fstat(file.fileno()).st_size
                if 8 + length > size:
                    raise ValueError("it is too short")
                header = json.loads(file.read(length))
                return {one: _read(file, 8 + length, size, one, header[one]) for one in names or header}
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise DamagedEntryError(
                f"the entry {key[:24]} of the store in {self.folder} is damaged ({error}); run the command again"
            ) from error

    def path(self, key: str) -> Path:
        """Where an entry is: few files to a folder, however many images there are."""
        kind, _, name = key.rpartition("/")
        return self.folder / kind / name[:2] / f"{name}{SUFFIX}"


def entry_key(kind: str, *parts: object) -> str:
    """A key of whatever decides the content of an entry of some kind; parts are told by their JSON.

    >>> entry_key("moments", 8) == entry_key("moments", 8), entry_key("moments", 8).partition("/")[0]
    (True, 'moments')
    """
    return f"{kind}/{hashlib.sha256(json.dumps([VERSION, parts], default=str).encode()).hexdigest()}"


def _read(file: BinaryIO, start: int, size: int, name: str, entry: Mapping[str, Any]) -> Array:
    first, stop = entry["data_offsets"]
    if not 0 <= first <= stop <= size - start:
        raise ValueError("it is too short")
    data = bytearray(stop - first)
    file.seek(start + first)
    if file.readinto(data) != len(data) or _checksum(name, entry, data) != entry["crc32"]:  # type: ignore[attr-defined]
        raise ValueError("it is not what was written")
    return np.frombuffer(data, np.dtype(entry["dtype"])).reshape(entry["shape"])


def _checksum(name: str, entry: Mapping[str, Any], data: Any) -> int:
    """Of an array's name, type, shape and numbers."""
    return zlib.crc32(data, zlib.crc32(f"{name} {entry['dtype']} {entry['shape']}".encode()))
