"""Patches on their way into a bank, the stream they come in, and the trees that grow over it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, fields
from functools import partial
from typing import Any, Self

import numpy as np

from mhpatchcore.runtime.arrays import Array, Floats, Indices
from mhpatchcore.runtime.parallel import ordered_map, tree_nodes

CENTROID = -1  # in place of the image, where a row is not a single patch


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
    """So many chunks of patches, which can be read again.

    `patches()` gives those of every chunk, in order, and `nodes(growth)` what remains of a tree over all chunks, the
    largest nodes first. `earlier` are the banks of models that are to grow: rows which stand for patches that cannot be
    read any more. `select_progress(chosen, K)` hears of a long selection.
    """

    chunks: int
    patches: Callable[[], Iterable[Patches]]
    nodes: Callable[[Growth], list[Patches]]
    earlier: tuple[Patches, ...] = ()
    workers: int = 1
    select_progress: Callable[[int, int], None] | None = None

    @staticmethod
    def of(
        chunks: Sequence[Any],
        workers: int = 1,
        earlier: tuple[Patches, ...] = (),
        read: Callable[[Any], Patches] = lambda chunk: chunk,
    ) -> Stream:
        """A stream over chunks of which `read` gives the patches; without it they are patches in memory."""

        def nodes(growth: Growth) -> list[Patches]:
            summaries = ordered_map(lambda chunk: growth.summary(read(chunk)), chunks, workers)
            return tree_nodes(summaries, growth.fan_in, join, partial(growth.close, workers=workers))

        return Stream(len(chunks), lambda: ordered_map(read, chunks, workers), nodes, earlier, workers)


def join(one: Patches, other: Patches) -> Patches:
    """The patches of two nodes, one after the other."""
    return Patches.concat([one, other])


def grid_origin(images: Sequence[int], grid: tuple[int, int], view: int = 0) -> Indices:
    """Origins (len(images)·h·w, 4) of all patches of one view of these images, in row-major order."""
    height, width = grid
    image, row, column = np.meshgrid(images, np.arange(height), np.arange(width), indexing="ij")
    columns = [image.ravel(), np.full(image.size, view), row.ravel(), column.ravel()]
    return np.stack(columns, axis=1).astype(np.int32)
