"""Patches on their way into a bank, and the stream they come in."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

import numpy as np

from mhpatchcore.runtime.arrays import Array, Floats, Indices
from mhpatchcore.runtime.parallel import ordered_map

Out = TypeVar("Out")
CENTROID = -1  # in place of the image, where a row is no single patch


@dataclass(frozen=True, eq=False)
class Patches:
    """n patches: whitened rows z (n, k) and origin (n, 4) = image, view, row, column."""

    z: Floats
    origin: Indices

    def __len__(self) -> int:
        return len(self.z)

    def take(self, rows: Array) -> Patches:
        return Patches(self.z[rows], self.origin[rows])

    @staticmethod
    def concat(parts: Sequence[Patches]) -> Patches:
        if len(parts) == 1:
            return parts[0]
        return Patches(
            np.concatenate([part.z for part in parts]), np.concatenate([part.origin for part in parts])
        )


@dataclass(frozen=True, eq=False)
class Stream:
    """A stream of patches that can be read again, chunk by chunk.

    `read` gives the patches of a chunk and `chunks` are what it takes; both are picklable where `mapped` leaves the
    process. `map` applies a pure function to every chunk and gives the results in order. `earlier` are the banks of
    models that are to grow: rows which stand for patches that cannot be read any more.
    """

    read: Callable[[Any], Patches]
    chunks: Sequence[Any]
    earlier: tuple[Patches, ...] = ()
    workers: int = 1
    mapped: Callable[[Callable[[Any], Any], Sequence[Any]], Iterator[Any]] | None = None
    progress: Callable[[str, int, int], None] = lambda phase, done, total: None

    def map(self, function: Callable[[Patches], Out]) -> Iterator[Out]:
        """`function` of every chunk, in order."""
        task = partial(_of_chunk, self.read, function)
        work = self.mapped(task, self.chunks) if self.mapped else ordered_map(task, self.chunks, self.workers)
        for done, result in enumerate(work, start=1):
            yield result
            self.progress("bank", done, len(self.chunks))

    def select_progress(self, done: int, total: int) -> None:
        self.progress("select", done, total)

    @staticmethod
    def of(chunks: Sequence[Patches], workers: int = 1, earlier: tuple[Patches, ...] = ()) -> Stream:
        """A stream over chunks held in memory."""
        return Stream(itself, chunks, earlier, workers)


def grid_origin(images: Sequence[int], grid: tuple[int, int], view: int = 0) -> Indices:
    """Origins (len(images)·h·w, 4) of all patches of one view of these images, in row-major order."""
    height, width = grid
    image, row, column = np.meshgrid(images, np.arange(height), np.arange(width), indexing="ij")
    columns = [image.ravel(), np.full(image.size, view), row.ravel(), column.ravel()]
    return np.stack(columns, axis=1).astype(np.int32)


def _of_chunk(read: Callable[[Any], Patches], function: Callable[[Patches], Out], chunk: Any) -> Out:
    return function(read(chunk))


def itself(chunk: Patches) -> Patches:
    return chunk
