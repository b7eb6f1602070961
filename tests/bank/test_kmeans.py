"""Mini-batch k-means against a literal Robbins–Monro loop."""

from __future__ import annotations

import numpy as np
import pytest

from mhpatchcore.bank.kmeans import Centroids, mini_batch_kmeans, moved
from mhpatchcore.bank.patches import CENTROID, Patches, Stream, grid_origin


def chunks(n_chunks: int, grid: tuple[int, int] = (5, 6), seed: int = 0) -> list[Patches]:
    rng = np.random.default_rng(seed)
    return [
        Patches(rng.normal(size=(grid[0] * grid[1], 3)).astype(np.float32), grid_origin([image], grid))
        for image in range(n_chunks)
    ]


def robbins_monro(centroids: np.ndarray, counts: np.ndarray, z: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Sculley's update: assign the batch, then move centroids by 1/count, sample by sample."""
    centroids, counts = centroids.copy(), counts.copy()
    assigned = [int(((centroids - row) ** 2).sum(axis=1).argmin()) for row in z.astype(np.float64)]
    for row, j in zip(z.astype(np.float64), assigned, strict=True):
        counts[j] += 1
        centroids[j] += (row - centroids[j]) / counts[j]
    return centroids, counts


def test_moving_is_robbins_monro() -> None:
    rng = np.random.default_rng(1)
    (chunk,) = chunks(1, grid=(20, 20))
    start = Centroids(rng.normal(size=(12, 3)), rng.integers(0, 9, 12))
    after = moved(start, chunk)
    wanted, counts = robbins_monro(start.z, start.counts, chunk.z)
    assert np.array_equal(after.counts, counts)
    assert np.allclose(after.z, wanted, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("K", [7, 30, 70])
def test_kmeans_is_robbins_monro_over_the_stream(K: int) -> None:
    made = chunks(9)
    # it waits for K patches, takes a sample of those and starts to count with them
    first = -(-K // 30)
    waiting = np.concatenate([chunk.z for chunk in made[:first]]).astype(np.float64)
    rows = np.sort(np.random.default_rng(5).permutation(len(waiting))[:K])
    z, counts = robbins_monro(waiting[rows], np.zeros(K, int), waiting)
    for chunk in made[first:]:
        z, counts = robbins_monro(z, counts, chunk.z)
    bank = mini_batch_kmeans(Stream.of(made), K, seed=5)
    assert np.allclose(bank.z, z, rtol=1e-5, atol=1e-6)
    assert counts.sum() == 9 * 30


def test_centroids_have_no_origin() -> None:
    origin = mini_batch_kmeans(Stream.of(chunks(3)), 10).origin
    assert origin.shape == (10, 4) and np.all(origin == CENTROID)


def test_fewer_patches_than_centroids_are_all_kept() -> None:
    made = chunks(2)
    bank = mini_batch_kmeans(Stream.of(made), 1000)
    assert np.array_equal(bank.z, np.concatenate([chunk.z for chunk in made]))


def test_kmeans_depends_on_its_seed_alone() -> None:
    first, again, other = (mini_batch_kmeans(Stream.of(chunks(4)), 15, seed).z for seed in (1, 1, 2))
    assert np.array_equal(first, again) and not np.array_equal(first, other)
