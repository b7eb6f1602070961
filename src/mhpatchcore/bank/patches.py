"""Patches on their way into a bank, and the stream they come in."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
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

    def merge(self, other: Self) -> Self:
        return self.concat([self, other])


@dataclass(frozen=True, eq=False)
class Stream:
    """Chunks of patches, which can be read again: those in memory, or what `read` gives of each.

    `earlier` are the banks of models that are to grow: rows which stand for patches that cannot be read any more.
    """

    chunks: Sequence[Any]
    workers: int = 1
    earlier: tuple[Patches, ...] = ()
    read: Callable[[Any], Patches] = lambda chunk: chunk

    def patches(self) -> Iterator[Patches]:
        """Those of every chunk, in order."""
        return ordered_map(self.read, self.chunks, self.workers)

    def nodes(
        self,
        fan_in: int,
        leaf: Callable[..., Patches],
        close: Callable[..., Patches],
        against: Patches | None = None,
    ) -> list[Patches]:
        """What remains of a tree of fixed shape over all chunks, the largest nodes first.

        `leaf(patches)`, or `leaf(patches, against)` where there is a bank to compare with, is a node, and every
        `fan_in` nodes that are joined and closed, `close(patches, workers=n)`, make one. Both are module-level
        functions, or partials of them with plain numbers.
        """
        bank = () if against is None else (against,)
        leaves = ordered_map(lambda chunk: leaf(self.read(chunk), *bank), self.chunks, self.workers)
        return tree_nodes(leaves, fan_in, Patches.merge, partial(close, workers=self.workers))

    def selected(self, chosen: int, size: int) -> None:
        """Hears how far a long selection is."""


def grid_origin(images: Sequence[int], grid: tuple[int, int], view: int = 0) -> Indices:
    """Origins (len(images)·h·w, 4) of all patches of one view of these images, in row-major order."""
    height, width = grid
    image, row, column = np.meshgrid(images, np.arange(height), np.arange(width), indexing="ij")
    columns = [image.ravel(), np.full(image.size, view), row.ravel(), column.ravel()]
    return np.stack(columns, axis=1).astype(np.int32)
