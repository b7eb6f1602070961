"""The descriptors by their definitions, in numpy, with every patch unfolded."""

from __future__ import annotations

import numpy as np
from golden_cases import Floats
from plain_alignment import aligned


def unfolded(layer: Floats) -> Floats:
    """(N, C, h, w) → (N, C, 3, 3, h, w): the zero-padded 3×3 neighbourhood of every position."""
    n, channels, height, width = layer.shape
    padded = np.pad(layer.astype(np.float64), ((0, 0), (0, 0), (1, 1), (1, 1)))
    patches = np.empty((n, channels, 3, 3, height, width))
    for dy in range(3):
        for dx in range(3):
            patches[:, :, dy, dx] = padded[:, :, dy : dy + height, dx : dx + width]
    return patches


def pooled(rows: Floats, n_out: int) -> Floats:
    """(…, n_in) → (…, n_out): adaptive average pooling by its definition, window by window."""
    n_in = rows.shape[-1]
    windows = [(int(np.floor(i * n_in / n_out)), int(np.ceil((i + 1) * n_in / n_out))) for i in range(n_out)]
    return np.stack([rows[..., start:stop].mean(axis=-1) for start, stop in windows], axis=-1)


def literal_patchcore(maps: list[Floats]) -> Floats:
    """Unfold, align, pool to 1024, stack, pool to 1024, in PatchCore's own order."""
    n, (height, width) = len(maps[0]), maps[0].shape[2:]
    each = []
    for layer in maps:
        patches = aligned(unfolded(layer), height, width)
        rows = np.moveaxis(patches.reshape(n, -1, height, width), 1, -1)  # (N, h, w, C·9)
        each.append(pooled(rows, 1024))
    return pooled(np.concatenate(each, axis=-1), 1024)


def literal_concat(maps: list[Floats]) -> Floats:
    height, width = maps[0].shape[2:]
    means = [aligned(unfolded(layer).mean(axis=(2, 3)), height, width) for layer in maps]
    return np.moveaxis(np.concatenate(means, axis=1), 1, -1)
