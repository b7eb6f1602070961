"""Offline greedy coreset, the original PatchCore: the whole pool in memory, then farthest-first over all of it."""

from __future__ import annotations

import numpy as np

from mhpatchcore.bank.farthest_first import farthest_first
from mhpatchcore.bank.patches import Patches, Stream
from mhpatchcore.metric.distances import squared_norms
from mhpatchcore.runtime.arrays import Floats


def offline_greedy(
    stream: Stream,
    K: int | None = None,
    fraction: float | None = 0.1,
    projection: int | None = None,
    start: str = "first",
    seed: int = 0,
    patches: int | None = None,
) -> Patches:
    """K rows, or a `fraction` of all `patches` (those of the stream, where not given), chosen over the full pool.

    `projection` chooses in that many random directions instead of all (the original's shortcut); `start` is
    the first patch, the one nearest the mean ("centre"), or a random one.
    """
    pool = Patches.concat([*stream.earlier, *stream.patches()])
    size = K if K is not None else max(1, int((patches or len(pool)) * (fraction or 0.1)))
    z = pool.z if projection is None else pool.z @ random_directions(pool.z.shape[1], projection, seed)
    rows = farthest_first(
        z, size, start=_start(z, start, seed), workers=stream.workers, progress=stream.select_progress
    )
    return pool.take(rows)


def random_directions(dim: int, size: int, seed: int) -> Floats:
    """A Gaussian matrix (dim, size) that keeps squared distances on average."""
    matrix: Floats = np.random.default_rng(seed).normal(size=(dim, size)) / np.sqrt(size)
    return matrix.astype(np.float32)


def _start(z: Floats, rule: str, seed: int) -> int:
    if rule == "centre":
        return int(squared_norms(z - z.mean(axis=0)).argmin())
    if rule == "random":
        return int(np.random.default_rng(seed).integers(len(z)))
    return 0
