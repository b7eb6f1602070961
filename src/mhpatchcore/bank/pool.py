"""Patches that gather until there are too many of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np

from mhpatchcore.bank.patches import Patches
from mhpatchcore.runtime.arrays import Array


def gathered(summaries: Iterable[Patches], limit: int, shrink: Callable[[Patches], Patches]) -> Patches:
    """All summaries in one pool, which `shrink` makes smaller whenever it has more rows than `limit`."""
    pool = Pool(2 * limit)
    for summary in summaries:
        pool.add(summary)
        if len(pool) > limit:
            pool.replace(shrink(pool.patches))
    return pool.patches


class Pool:
    """Patches one after the other in memory with room for `room` of them: concatenating would hold them all twice.

    Room that is not used yet takes no memory, only addresses.
    """

    def __init__(self, room: int) -> None:
        self._room, self._rows = room, 0
        self._columns: tuple[Array, Array, Array] | None = None

    def __len__(self) -> int:
        return self._rows

    @property
    def patches(self) -> Patches:
        """What is in the pool; a view, which what comes next may write over."""
        assert self._columns is not None, "nothing has been added"
        z, raw, origin = (column[: self._rows] for column in self._columns)
        return Patches(z, raw, origin)

    def add(self, patches: Patches) -> None:
        new = (patches.z, patches.raw, patches.origin)
        end = self._rows + len(patches)
        if self._columns is None or end > len(self._columns[0]):
            self._columns = self._larger(max(end, self._room), new)
        for column, rows in zip(self._columns, new, strict=True):
            column[self._rows : end] = rows
        self._rows = end

    def replace(self, patches: Patches) -> None:
        """These patches, instead of what is in the pool."""
        self._rows = 0
        self.add(patches)

    def _larger(self, room: int, like: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        z, raw, origin = (np.empty((room, rows.shape[1]), rows.dtype) for rows in like)
        if self._columns is not None:
            for column, old in zip((z, raw, origin), self._columns, strict=True):
                column[: self._rows] = old[: self._rows]
        return z, raw, origin
