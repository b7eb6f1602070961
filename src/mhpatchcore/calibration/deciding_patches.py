"""The patches that decided a calibration image's scores, kept so that the scores can be taken again.

A stored score belongs to one metric and one bank. When a model grows, both change and the image is gone. But its score
came from the few patches around the peak of its map: those are kept in the model, and scored again with the rest
of the image as normal as a bank row. The new score misses a peak that appears elsewhere.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from mhpatchcore.runtime.arrays import Array, Floats, Indices, Mask

PER_MAP = 32  # a smoothed map's peak depends on some 5 × 5 cells
NOT_LEARNT = -1


@dataclass(frozen=True, eq=False)
class DecidingPatches:
    """For each scale the `cells` (t,) of the image's grid and their raw descriptors (t, d).

    Cells are counted row by row, those of one tile after those of another. `image` is its index in the model, or
    NOT_LEARNT, and `size` its height and width in pixels.
    """

    image: int
    size: tuple[int, int]
    cells: tuple[Indices, ...]
    rows: tuple[Array, ...]


def deciding_cells(judged: Floats, nearest: Floats, inside: Mask | None = None) -> Indices:
    """The cells (t,) that decide most, of how much all of them (…) do for each map: the image score's and the pixels'.

    Only cells that lie inside (…) count; where they are fewer than other images have, one of them is repeated.
    """
    first, second = _most_deciding(judged, inside), _most_deciding(nearest, inside)
    # the second map adds as many again, so that all images have the same number
    further = second[~np.isin(second, first[:PER_MAP])]
    cells = np.sort(np.concatenate([first[:PER_MAP], further[:PER_MAP]])).astype(np.int32)
    missing = min(2 * PER_MAP, judged.size) - len(cells)
    return np.concatenate([cells[:1].repeat(missing), cells])


def _most_deciding(a: Floats, inside: Mask | None) -> Indices:
    order: Indices = np.argsort(-a.ravel(), kind="stable")
    return order if inside is None else order[inside.ravel()[order]]


def stacked(deciding: Sequence[DecidingPatches], scale: int, dim: int) -> tuple[Indices, Array]:
    """Cells (n, t) and rows (n, t, d) of one scale, as a file keeps them."""
    if not deciding:
        return np.empty((0, 0), np.int32), np.empty((0, 0, dim), np.float16)
    cells, rows = zip(*((one.cells[scale], one.rows[scale]) for one in deciding), strict=True)
    return np.stack(cells), np.stack(rows)


def unstacked(
    images: Indices, sizes: Indices, cells: Sequence[Indices], rows: Sequence[Array]
) -> tuple[DecidingPatches, ...]:
    """The inverse: images (n,), their sizes (n, 2), and for each scale what `stacked` gave."""
    return tuple(
        DecidingPatches(
            int(image), (int(tall), int(wide)), tuple(c[i] for c in cells), tuple(r[i] for r in rows)
        )
        for i, (image, (tall, wide)) in enumerate(zip(images, sizes, strict=True))
    )
