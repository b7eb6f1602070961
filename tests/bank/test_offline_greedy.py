"""The original PatchCore coreset: farthest-first over the whole pool."""

from __future__ import annotations

import numpy as np
import pytest
from plain_selection import FARTHEST, chunks, pool_of

from mhpatchcore import reference
from mhpatchcore.bank.constructors import Stream, offline_greedy, random_directions
from mhpatchcore.bank.farthest_first import Start, farthest_first


@pytest.mark.parametrize("K", [1, 25, 1000])
def test_it_is_farthest_first_over_the_pool(K: int) -> None:
    made = chunks(5)
    bank = offline_greedy(Stream(made), K, start=FARTHEST)
    assert np.array_equal(bank.z, reference.farthest_first(pool_of(made).astype(float), K))


def test_by_fraction() -> None:
    made = chunks(5, high=1000)
    assert len(offline_greedy(Stream(made), fraction=0.1)) == 20
    assert len(offline_greedy(Stream(made), fraction=1.0)) == 200
    assert len(offline_greedy(Stream(made), K=7, fraction=0.1)) == 7
    assert len(offline_greedy(Stream(made), fraction=1e-9)) == 1


def original_patchcore(z: np.ndarray, k: int, anchors: np.ndarray) -> np.ndarray:
    """The original's loop: distances begin as the mean of those to the anchors, none of which is chosen."""

    def to(row: np.ndarray) -> np.ndarray:
        return np.sqrt(((z - row) ** 2).sum(axis=1))

    chosen, nearest = [], np.mean([to(row) for row in anchors], axis=0)
    for _ in range(k):
        chosen.append(int(nearest.argmax()))
        nearest = np.minimum(nearest, to(z[chosen[-1]]))
    return z[chosen]


@pytest.mark.parametrize("seed", [0, 1])
def test_a_random_start_is_the_original_s(seed: int) -> None:
    made = chunks(5, high=1000)
    z = pool_of(made).astype(float)
    anchors = z[np.random.default_rng(seed).choice(len(z), 10, replace=False)]
    bank = offline_greedy(Stream(made), 20, start=Start("random", seed))
    assert np.array_equal(bank.z, original_patchcore(z, 20, anchors))


def test_it_chooses_by_its_projection() -> None:
    made = chunks(5, dim=12)
    z = pool_of(made)
    rows = farthest_first(z @ random_directions(12, 2, seed=3), 15)
    bank = offline_greedy(Stream(made), 15, projection=2, start=Start(seed=3))
    assert np.array_equal(bank.z, z[rows])
    assert not np.array_equal(bank.z, offline_greedy(Stream(made), 15).z)


def test_random_directions_keep_squared_length_on_average() -> None:
    x = np.random.default_rng(0).normal(size=(200, 30))
    ratio = ((x @ random_directions(30, 2000, seed=0)) ** 2).sum(axis=1) / (x**2).sum(axis=1)
    assert ratio.mean() == pytest.approx(1, abs=0.05)


def test_a_fraction_is_of_all_patches_that_were_ever_seen() -> None:
    old = chunks(1, high=1000)[0]
    stream = Stream(chunks(2, high=1000, seed=1), earlier=(old.take(np.arange(10)),))
    assert len(offline_greedy(stream, fraction=0.1, patches=300)) == 30
