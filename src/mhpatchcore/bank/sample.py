"""A uniform random sample of all patches: the control that every clever constructor has to beat."""

from __future__ import annotations

import numpy as np

from mhpatchcore.arrays import Floats
from mhpatchcore.bank.patches import Patches, Stream


def random_sample(stream: Stream, K: int, seed: int = 0) -> Patches:
    """K patches, each subset equally likely: the K smallest of one random number per patch."""

    def lottery(chunk: Patches) -> tuple[Floats, Patches]:
        # drawn per chunk, by its first image, so that threads and order of arrival do not matter
        draws = np.random.default_rng([seed, int(chunk.origin[0, 0])]).random(len(chunk))
        kept = np.sort(np.argsort(draws, kind="stable")[:K])
        return draws[kept], chunk.take(kept)

    draws, pool = np.empty(0), None
    for new_draws, patches in stream.map(lottery):
        pool = patches if pool is None else Patches.concat([pool, patches])
        draws = np.concatenate([draws, new_draws])
        kept = np.sort(np.argsort(draws, kind="stable")[:K])
        draws, pool = draws[kept], pool.take(kept)
    assert pool is not None
    return pool
