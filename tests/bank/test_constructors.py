"""What holds for all constructors: rows are patches, and neither workers nor executors change a bit."""

from __future__ import annotations

import numpy as np
import pytest
from plain_selection import chunks

from mhpatchcore.bank.constructors import Patches, Stream, build_bank, grid_origin
from mhpatchcore.config import CHOICES, Config
from mhpatchcore.runtime.parallel import one_blas_thread


def recipe(constructor: str, **changes: int) -> Config:
    return Config(constructor=constructor, calibration="none").with_changes(**changes)


@pytest.mark.parametrize("constructor", [name for name in CHOICES["constructor"] if name != "kmeans"])
def test_rows_stay_with_their_origin(constructor: str) -> None:
    made = chunks(9)
    bank = build_bank(Stream(made), recipe(constructor, K=60, m_c=16), 360)
    known = {
        tuple(origin): z for chunk in made for origin, z in zip(chunk.origin.tolist(), chunk.z, strict=True)
    }
    assert 0 < len(bank) <= 60
    assert all(np.array_equal(known[tuple(o)], z) for o, z in zip(bank.origin.tolist(), bank.z, strict=True))


@pytest.mark.parametrize("constructor", CHOICES["constructor"])
def test_workers_change_nothing(constructor: str) -> None:
    rng = np.random.default_rng(0)
    made = chunks(13, dim=6, grid=(10, 10))
    for chunk in made:
        chunk.z[:] = rng.normal(size=chunk.z.shape)
    config = recipe(constructor, K=150, m_c=40)
    with one_blas_thread():
        alone, together = (build_bank(Stream(made, workers), config, 2600) for workers in (1, 4))
    for name in ("z", "origin"):
        assert np.array_equal(getattr(alone, name), getattr(together, name))


def test_a_fraction_in_the_recipe_is_not_overruled_by_the_default_k() -> None:
    config = Config(constructor="offline-greedy", fraction=0.1)
    assert len(build_bank(Stream(chunks(5, high=1000)), config, 200)) == 20


def test_origins_count_images_rows_and_columns() -> None:
    assert grid_origin([7, 2], (2, 1), view=3).tolist() == [
        [7, 3, 0, 0],
        [7, 3, 1, 0],
        [2, 3, 0, 0],
        [2, 3, 1, 0],
    ]


def test_patches_are_taken_and_joined_with_their_origin() -> None:
    one, other = chunks(2)
    both = Patches.concat([one, other])
    assert len(both) == 80 and np.array_equal(both.origin, np.concatenate([one.origin, other.origin]))
    some = both.take(np.array([79, 0]))
    assert np.array_equal(some.z, both.z[[79, 0]]) and np.array_equal(some.origin, both.origin[[79, 0]])
