"""Descriptors on disk between the passes, so that the backbone runs once per image.

A spool is a temporary file without a name: it goes when it is closed, also after a crash. It is read with
positioned reads rather than a memory map, whose pages would count as this process's memory.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

import numpy as np

from mhpatchcore.errors import UserError
from mhpatchcore.runtime.arrays import Array


class Spool:
    """An append-only list of arrays (n, d) of one type; any of them can be read back, from any thread."""

    def __init__(
        self, dim: int, dtype: str, folder: str | Path | None = None, expected_rows: int = 0
    ) -> None:
        self.dim, self.dtype = dim, np.dtype(dtype)
        folder = Path(folder or tempfile.gettempdir())
        needed = expected_rows * dim * self.dtype.itemsize
        try:
            free = shutil.disk_usage(folder).free
            self._file = tempfile.TemporaryFile(prefix="mhpatchcore-spool-", dir=folder)  # noqa: SIM115 (closed by close)
        except OSError as error:
            raise UserError(
                f"the spool cannot be kept in {folder}: {error.strerror}; "
                "name another folder with --spool-dir, or use --spool none"
            ) from error
        if needed > free:
            self._file.close()
            raise UserError(
                f"the spool needs {needed / 1e9:.1f} GB in {folder}, which has {free / 1e9:.1f} GB free: "
                "name another folder with --spool-dir, or use --spool none"
            )
        self._starts = [0]

    def __len__(self) -> int:
        return len(self._starts) - 1

    @property
    def bytes(self) -> int:
        return self._starts[-1]

    def append(self, rows: Array, pieces: int = 1) -> None:
        """Add rows (n, d) as one array, or as `pieces` arrays of the same length, one after the other."""
        try:
            self._file.write(np.ascontiguousarray(rows, self.dtype).data)
            self._file.flush()
        except OSError as error:
            raise UserError(
                f"the spool cannot be written: {error.strerror}; name another folder with --spool-dir, "
                "or use --spool none"
            ) from error
        size = rows.size * self.dtype.itemsize // pieces
        self._starts += [self._starts[-1] + size * (i + 1) for i in range(pieces)]

    def read(self, *entries: int) -> Array:
        """Some of the arrays, one after the other."""
        places = [(self._starts[entry], self._starts[entry + 1]) for entry in entries]
        data = bytearray(sum(stop - start for start, stop in places))
        room, at = memoryview(data), 0
        for start, stop in places:
            if os.preadv(self._file.fileno(), [room[at : at + stop - start]], start) != stop - start:
                raise UserError(
                    "the spool has lost what was written to it; use another --spool-dir, or --spool none"
                )
            at += stop - start
        return np.frombuffer(data, self.dtype).reshape(-1, self.dim)

    def close(self) -> None:
        self._file.close()
