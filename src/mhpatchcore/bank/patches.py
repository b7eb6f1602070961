"""Patches on their way into a bank, and the stream they come in."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from mhpatchcore.runtime.arrays import Array, Floats, Indices
from mhpatchcore.runtime.parallel import ordered_map

Out = TypeVar("Out")


@dataclass(frozen=True, eq=False)
class Patches:
    """n patches: whitened rows z (n, k), raw descriptors (n, d), and origin (n, 3) = image, row, column.

    Selections are made on z; the raw descriptor and the origin travel along, so that a bank can be whitened
    anew and can say where its rows come from. A row that is no single patch (a centroid) has origin −1.
    """

    z: Floats
    raw: Array
    origin: Indices

    def __len__(self) -> int:
        return len(self.z)

    def take(self, rows: Array) -> Patches:
        return Patches(self.z[rows], self.raw[rows], self.origin[rows])

    @staticmethod
    def concat(parts: Sequence[Patches]) -> Patches:
        if len(parts) == 1:
            return parts[0]
        return Patches(
            np.concatenate([part.z for part in parts]),
            np.concatenate([part.raw for part in parts]),
            np.concatenate([part.origin for part in parts]),
        )


@dataclass(frozen=True, eq=False)
class Summary:
    """Rows that stand for `n` patches which cannot be read any more: the bank of a model that is to grow."""

    rows: Patches
    n: int


@dataclass(frozen=True)
class Stream:
    """A stream of patches that can be read again: chunk i of `n_chunks`, each a fixed number of images.

    `map` applies a pure function to every chunk, on `workers` threads, and gives the results in order. `past` are
    summaries of what came before and is gone.
    `progress(phase, done, total)` hears of every chunk and of long selections.
    """

    read: Callable[[int], Patches]
    n_chunks: int
    workers: int = 1
    progress: Callable[[str, int, int], None] = lambda phase, done, total: None
    past: tuple[Summary, ...] = ()

    def map(self, function: Callable[[Patches], Out]) -> Iterator[Out]:
        work = ordered_map(lambda chunk: function(self.read(chunk)), range(self.n_chunks), self.workers)
        for done, result in enumerate(work, start=1):
            yield result
            self.progress("bank", done, self.n_chunks)

    def select_progress(self, done: int, total: int) -> None:
        self.progress("select", done, total)

    @property
    def past_rows(self) -> list[Patches]:
        return [summary.rows for summary in self.past]

    @staticmethod
    def of(chunks: Sequence[Patches], workers: int = 1, past: tuple[Summary, ...] = ()) -> Stream:
        """A stream over chunks held in memory."""
        return Stream(chunks.__getitem__, len(chunks), workers, past=past)


def grid_origin(images: Sequence[int], grid: tuple[int, int]) -> Indices:
    """Origins (len(images)·h·w, 3) of all patches of these images, in row-major order."""
    height, width = grid
    image, row, column = np.meshgrid(images, np.arange(height), np.arange(width), indexing="ij")
    return np.stack([image.ravel(), row.ravel(), column.ravel()], axis=1).astype(np.int32)
