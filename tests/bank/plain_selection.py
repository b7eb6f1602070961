"""Made-up patches whose float32 distances are exact, and plain transcriptions of how they are selected."""

from __future__ import annotations

import numpy as np

from mhpatchcore.bank.patches import Patches, grid_origin


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


def select(z: np.ndarray, k: int, covered: np.ndarray | None = None) -> np.ndarray:
    """Farthest-first, naive: rows of z in the order of their choice."""
    chosen = [z[0]] if covered is None else []
    known = chosen if covered is None else list(covered)
    nearest = np.min([((z - row) ** 2).sum(axis=1) for row in known], axis=0)
    while len(chosen) < k and nearest.max() > 0:
        chosen.append(z[nearest.argmax()])
        nearest = np.minimum(nearest, ((z - chosen[-1]) ** 2).sum(axis=1))
    return np.array(chosen[:k]).reshape(-1, z.shape[1])


def plain_tree(parts: list[np.ndarray], m_c: int) -> list[np.ndarray]:
    """What is left of the pairwise merging: one perfect tree for each one-bit of the number of chunks."""

    def perfect(parts: list[np.ndarray]) -> np.ndarray:
        half = len(parts) // 2
        both = parts[0] if half == 0 else np.concatenate([perfect(parts[:half]), perfect(parts[half:])])
        return select(both, m_c)

    nodes = []
    for bit in reversed(range(len(parts).bit_length())):
        if len(parts) & (1 << bit):
            nodes.append(perfect(parts[: 1 << bit]))
            parts = parts[1 << bit :]
    return nodes  # the oldest first


def distinct(z: np.ndarray) -> int:
    return len(np.unique(z, axis=0))


def pool_of(made: list[Patches]) -> np.ndarray:
    return np.concatenate([chunk.z for chunk in made])
