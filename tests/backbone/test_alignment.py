"""Alignment: the matrices against their definition, and that whoever needs a few rows gets the same ones."""

from __future__ import annotations

import numpy as np
import pytest
from plain_alignment import aligned

from mhpatchcore.backbone.session import aligned_rows
from mhpatchcore.runtime.arrays import resized, upsampling

GRIDS = [(9, 10), (5, 5), (3, 7), (1, 1)]


def layers(dtype: type = np.float16) -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    return [
        (10 + rng.normal(size=(c, *grid))).astype(dtype) for c, grid in zip((4, 3, 2, 5), GRIDS, strict=True)
    ]


@pytest.mark.parametrize("grid", [(9, 10), (5, 12), (2, 2), (1, 1)])
def test_resizing_is_bilinear_between_pixel_centres(grid: tuple[int, int]) -> None:
    for layer in layers():
        assert np.allclose(resized(layer, grid), aligned(layer.astype(np.float64), *grid), rtol=1e-6)


@pytest.mark.parametrize(("n_out", "n_in"), [(10, 5), (7, 3), (4, 4), (3, 9), (5, 1)])
def test_every_value_is_a_mean_of_its_neighbours(n_out: int, n_in: int) -> None:
    matrix = upsampling(n_out, n_in)
    assert matrix.shape == (n_out, n_in) and (matrix >= 0).all()
    assert np.allclose(matrix.sum(axis=1), 1, rtol=1e-15)


def test_rows_are_the_layers_side_by_side_on_the_finest_grid() -> None:
    rows, each = aligned_rows(layers()), [aligned(layer.astype(np.float64), 9, 10) for layer in layers()]
    assert rows.shape == (90, 14) and rows.dtype == np.float32
    assert np.allclose(rows, np.concatenate(each).reshape(14, 90).T, rtol=1e-6)
    assert np.array_equal(rows[:, :4], layers()[0].reshape(4, 90).T.astype(np.float32))
