"""Made-up patches whose float32 distances are exact, so that what is selected has to be the same to the bit."""

from __future__ import annotations

import numpy as np

from mhpatchcore.bank.constructors import Patches, grid_origin
from mhpatchcore.bank.farthest_first import Start

FARTHEST = Start("farthest")  # as the reference starts


def chunks(
    n_chunks: int, dim: int = 3, high: int = 30, grid: tuple[int, int] = (4, 5), seed: int = 0
) -> list[Patches]:
    """Chunks of two images each, with whole numbers from 0 to `high` − 1."""
    rng = np.random.default_rng(seed)
    made = []
    for chunk in range(n_chunks):
        origin = grid_origin([2 * chunk, 2 * chunk + 1], grid)
        made.append(Patches(rng.integers(0, high, (len(origin), dim)).astype(np.float32), origin))
    return made


def distinct(z: np.ndarray) -> int:
    return len(np.unique(z, axis=0))


def doubles(made: list[Patches]) -> list[np.ndarray]:
    return [chunk.z.astype(np.float64) for chunk in made]


def pool_of(made: list[Patches]) -> np.ndarray:
    return np.concatenate([chunk.z for chunk in made])
