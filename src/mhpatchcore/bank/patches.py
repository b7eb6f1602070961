"""Patches on their way into a bank, the stream they come in, and the trees that grow over it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, fields
from functools import partial
from typing import Any, Self

import numpy as np

from mhpatchcore.runtime.arrays import Array, Floats, Indices
from mhpatchcore.runtime.parallel import ordered_map, tree_nodes

CENTROID = -1  # in place of the image, where a row is no single patch


@dataclass(frozen=True, eq=False)
class Patches:
    """n patches: whitened rows z (n, k) and origin (n, 4) = image, view, row, column."""

    z: Floats
    origin: Indices

    def __len__(self) -> int:
        return len(self.z)

    @property
    def arrays(self) -> dict[str, Array]:
        """All that is known of the patches, by name."""
        return {field.name: getattr(self, field.name) for field in fields(self)}

    def take(self, rows: Array) -> Self:
        return type(self)(**{name: array[rows] for name, array in self.arrays.items()})

    @classmethod
    def concat(cls, parts: Sequence[Self]) -> Self:
        if len(parts) == 1:
            return parts[0]
        columns = [part.arrays for part in parts]
        return type(parts[0])(**{name: np.concatenate([one[name] for one in columns]) for name in columns[0]})


@dataclass(frozen=True, eq=False)
class Growth:
    """A tree of fixed shape over a stream: `leaf` makes a node of a chunk's patches, and every `fan_in` nodes that are
    joined and closed make one.

    Both are module-level functions, or partials of them with plain numbers: `leaf(patches)`, or `leaf(patches,
    against)` where there is a bank to compare with, and `close(patches, workers=n)`.
    """

    fan_in: int
    leaf: Callable[..., Patches]
    close: Callable[..., Patches]
    against: Patches | None = None

    def summary(self, patches: Patches) -> Patches:
        return self.leaf(patches) if self.against is None else self.leaf(patches, self.against)


@dataclass(frozen=True, eq=False)
class Stream:
    """A stream of patches that can be read again, chunk by chunk.

    `read` gives the patches of a chunk and `chunks` are what it takes. `earlier` are the banks of models that are to
    grow: rows which stand for patches that cannot be read any more. `grown` may carry out trees elsewhere.
    """

    read: Callable[[Any], Patches]
    chunks: Sequence[Any]
    earlier: tuple[Patches, ...] = ()
    workers: int = 1
    progress: Callable[[str, int, int], None] = lambda phase, done, total: None
    grown: Callable[[Growth, Callable[[int], None]], list[Patches]] | None = None

    def patches(self) -> Iterator[Patches]:
        """The patches of every chunk, in order, here."""
        return self._told(ordered_map(self.read, self.chunks, self.workers))

    def nodes(self, growth: Growth) -> list[Patches]:
        """What remains of a tree over all chunks, the largest nodes first."""
        if self.grown is not None:
            return self.grown(growth, self._advance)
        summaries = ordered_map(partial(_summary, self.read, growth), self.chunks, self.workers)
        close = partial(growth.close, workers=self.workers)
        return tree_nodes(self._told(summaries), growth.fan_in, _joined, close)

    def select_progress(self, done: int, total: int) -> None:
        self.progress("select", done, total)

    def _told(self, results: Iterable[Patches]) -> Iterator[Patches]:
        for done, result in enumerate(results, start=1):
            yield result
            self._advance(done)

    def _advance(self, done: int) -> None:
        self.progress("bank", done, len(self.chunks))

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


def _summary(read: Callable[[Any], Patches], growth: Growth, chunk: Any) -> Patches:
    return growth.summary(read(chunk))


def _joined(one: Patches, other: Patches) -> Patches:
    return Patches.concat([one, other])


def itself(chunk: Patches) -> Patches:
    return chunk
