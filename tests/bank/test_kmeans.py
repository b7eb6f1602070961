"""Mini-batch k-means against the reference's Robbins–Monro loop."""

from __future__ import annotations

import numpy as np
import pytest
from plain_selection import doubles

from mhpatchcore import reference
from mhpatchcore.bank.constructors import CENTROID, Patches, Stream, grid_origin, mini_batch_kmeans

GRID = (5, 6)
CORNERS = 50 * np.array([[0, 0, 0], [1, 0, 0], [0, 1, 0], [0, 0, 1], [1, 1, 1]])


def chunks(n_chunks: int, seed: int = 0) -> list[Patches]:
    """Of every image six patches lie around each of five corners."""
    rng = np.random.default_rng(seed)
    return [
        Patches((np.repeat(CORNERS, 6, axis=0) + rng.normal(size=(30, 3))).astype(np.float32), origin)
        for origin in (grid_origin([image], GRID) for image in range(n_chunks))
    ]


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_centroids_are_moved_as_by_robbins_and_monro(seed: int) -> None:
    made = chunks(40)
    bank = mini_batch_kmeans(Stream(made), 5, seed)
    wanted = reference.kmeans(doubles(made), CORNERS.astype(float))
    order = reference.delta(wanted, bank.z.astype(float)).argmin(axis=1)
    assert sorted(order) == list(range(5))  # k-means++ finds a start at each corner
    assert np.allclose(bank.z[order], wanted, rtol=1e-4, atol=1e-4)


def test_centroids_have_no_origin() -> None:
    origin = mini_batch_kmeans(Stream(chunks(3)), 10).origin
    assert origin.shape == (10, 4) and np.all(origin == CENTROID)


def test_fewer_patches_than_centroids_are_all_kept() -> None:
    made = chunks(2)
    bank = mini_batch_kmeans(Stream(made), 1000)
    assert np.array_equal(bank.z, np.concatenate([chunk.z for chunk in made]))


def test_kmeans_depends_on_its_seed_alone() -> None:
    first, again, other = (mini_batch_kmeans(Stream(chunks(4)), 15, seed).z for seed in (1, 1, 2))
    assert np.array_equal(first, again) and not np.array_equal(first, other)
