"""Mini-batch k-means against a literal Robbins–Monro loop; the random sample against chance."""

from __future__ import annotations

import numpy as np
import pytest

from mhpatchcore.bank.kmeans import Centroids, mini_batch_kmeans, moved
from mhpatchcore.bank.patches import Patches, Stream, grid_origin
from mhpatchcore.bank.sample import random_sample

# z = raw · B + c, as whitening is
B = np.random.default_rng(42).normal(size=(5, 3))
C = np.array([1.0, -2.0, 0.5])


def chunks(
    n_chunks: int, grid: tuple[int, int] = (5, 6), dtype: type = np.float32, seed: int = 0
) -> list[Patches]:
    rng = np.random.default_rng(seed)
    made = []
    for image in range(n_chunks):
        raw = rng.normal(size=(grid[0] * grid[1], 5)).astype(dtype)
        made.append(Patches((raw @ B + C).astype(np.float32), raw, grid_origin([image], grid)))
    return made


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
    start = Centroids(rng.normal(size=(12, 3)), rng.normal(size=(12, 5)), rng.integers(0, 9, 12))
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


@pytest.mark.parametrize(("dtype", "tolerance"), [(np.float32, 1e-5), (np.float16, 1e-2)])
def test_raw_centroids_whiten_to_z(dtype: type, tolerance: float) -> None:
    bank = mini_batch_kmeans(Stream.of(chunks(9, dtype=dtype)), 20)
    assert bank.raw.dtype == dtype
    assert np.allclose(bank.raw.astype(np.float64) @ B + C, bank.z, atol=tolerance)


def test_centroids_have_no_origin() -> None:
    assert np.all(mini_batch_kmeans(Stream.of(chunks(3)), 10).origin == -1)


def test_fewer_patches_than_centroids_are_all_kept() -> None:
    made = chunks(2)
    bank = mini_batch_kmeans(Stream.of(made), 1000)
    assert np.array_equal(bank.z, np.concatenate([chunk.z for chunk in made]))


def test_kmeans_depends_on_its_seed_alone() -> None:
    first, again, other = (mini_batch_kmeans(Stream.of(chunks(4)), 15, seed).z for seed in (1, 1, 2))
    assert np.array_equal(first, again) and not np.array_equal(first, other)


def test_sample_is_uniform_over_chunks_and_places() -> None:
    made, K, repeats = chunks(10, grid=(5, 4)), 40, 300
    taken = np.concatenate([random_sample(Stream.of(made), K, seed).origin for seed in range(repeats)])
    expected, sd = K * repeats / 10, np.sqrt(K * repeats * 0.1 * 0.9)
    by_chunk = np.bincount(taken[:, 0], minlength=10)
    by_row = np.bincount(taken[:, 1], minlength=5) / 2
    assert np.all(np.abs(by_chunk - expected) < 4 * sd)
    assert np.all(np.abs(by_row - expected) < 4 * sd)


def test_chunks_are_drawn_from_independently() -> None:
    image, row, column = random_sample(Stream.of(chunks(8)), 120).origin.T
    places = {frozenset(zip(row[image == i], column[image == i], strict=True)) for i in range(8)}
    assert len(places) == 8


def test_sample_is_without_repetition_and_in_order() -> None:
    origin = random_sample(Stream.of(chunks(10)), 50).origin.tolist()
    assert len({tuple(row) for row in origin}) == 50
    assert origin == sorted(origin)


def test_sample_depends_on_its_seed_alone() -> None:
    first, again, other = (random_sample(Stream.of(chunks(6)), 20, seed).z for seed in (1, 1, 2))
    assert np.array_equal(first, again) and not np.array_equal(first, other)


def test_sample_of_more_than_there_are_is_everything() -> None:
    made = chunks(3)
    assert np.array_equal(random_sample(Stream.of(made), 1000).z, np.concatenate([chunk.z for chunk in made]))
