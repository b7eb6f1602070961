"""Offline greedy coreset, the original PatchCore: the whole pool in memory, then farthest-first over all of it."""

from __future__ import annotations

import numpy as np

from mhpatchcore.bank.farthest_first import FIRST, Start, farthest_first
from mhpatchcore.bank.patches import Patches, Stream
from mhpatchcore.runtime.arrays import Floats


def offline_greedy(
    stream: Stream,
    K: int | None = None,
    fraction: float | None = 0.1,
    projection: int | None = None,
    start: Start = FIRST,
    patches: int | None = None,
) -> Patches:
    """K rows, or a `fraction` of all `patches` (those of the stream, where not given), chosen over the full pool.

    The original takes two shortcuts: it chooses in 128 random directions (`projection`), and starts at `random`.
    """
    pool = Patches.concat([*stream.earlier, *stream.patches()])
    size = K if K is not None else max(1, int((patches or len(pool)) * (fraction or 0.1)))
    z = pool.z if projection is None else pool.z @ random_directions(pool.z.shape[1], projection, start.seed)
    return pool.take(farthest_first(z, size, start.of(z), None, stream.workers, stream.select_progress))


def random_directions(dim: int, size: int, seed: int) -> Floats:
    """A Gaussian matrix (dim, size) that keeps squared distances on average."""
    matrix: Floats = np.random.default_rng(seed).normal(size=(dim, size)) / np.sqrt(size)
    return matrix.astype(np.float32)
