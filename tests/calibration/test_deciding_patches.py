"""The patches that decided a score: around the peaks of both maps, as many for every image."""

from __future__ import annotations

import numpy as np
import pytest

from mhpatchcore.calibration.deciding_patches import (
    NOT_LEARNT,
    PER_MAP,
    DecidingPatches,
    deciding_cells,
    stacked,
    unstacked,
)
from mhpatchcore.scoring.maps import surroundings


def bump(h: int, w: int, row: int, column: int) -> np.ndarray:
    """A map that falls with the distance from a cell."""
    y, x = np.mgrid[0:h, 0:w]
    return (100 - np.hypot(y - row, x - column)).astype(np.float32)


@pytest.mark.parametrize(("row", "column"), [(0, 0), (5, 7), (11, 15)])
def test_they_lie_around_both_peaks(row: int, column: int) -> None:
    cells = deciding_cells(
        surroundings(bump(12, 16, row, column)), surroundings(bump(12, 16, 11 - row, 15 - column))
    )
    assert len(cells) == len(set(cells.tolist())) == 2 * PER_MAP
    assert (np.diff(cells) > 0).all() and cells.dtype == np.int32
    for peak in ((row, column), (11 - row, 15 - column)):
        rows, columns = np.divmod(cells, 16)
        distance = np.hypot(rows - peak[0], columns - peak[1])
        assert (distance == 0).any() and (distance <= 2).sum() >= 6


def test_one_map_twice_gives_as_many() -> None:
    a = np.random.default_rng(0).random((12, 16)).astype(np.float32)
    assert len(deciding_cells(a, a)) == len(deciding_cells(a, -a)) == 2 * PER_MAP


@pytest.mark.parametrize("grid", [(1, 1), (5, 6), (7, 8)])
def test_a_small_grid_gives_all_it_has(grid: tuple[int, int]) -> None:
    a = np.random.default_rng(0).random(grid).astype(np.float32)
    assert deciding_cells(a, a).tolist() == list(range(grid[0] * grid[1]))


@pytest.mark.parametrize("n", [1, 20, 40, 100])
def test_only_cells_inside_decide(n: int) -> None:
    rng = np.random.default_rng(0)
    judged, nearest = rng.random((2, 12, 16)).astype(np.float32)
    inside = np.zeros(192, bool)
    inside[rng.permutation(192)[:n]] = True
    cells = deciding_cells(judged, nearest, inside.reshape(12, 16))
    assert len(cells) == 2 * PER_MAP and inside[cells].all() and (np.diff(cells) >= 0).all()
    assert len(set(cells.tolist())) == min(n, 2 * PER_MAP)


def test_files_keep_them_scale_by_scale() -> None:
    rng = np.random.default_rng(0)
    images = [
        DecidingPatches(
            image,
            (60, 80 + image),
            (rng.integers(0, 9, 4, np.int32), rng.integers(0, 9, 6, np.int32)),
            (rng.normal(size=(4, 3)).astype(np.float16), rng.normal(size=(6, 5)).astype(np.float16)),
        )
        for image in (2, NOT_LEARNT, 7)
    ]
    (cells, rows), (other_cells, other_rows) = stacked(images, 0, 3), stacked(images, 1, 5)
    assert (cells.shape, rows.shape, other_cells.shape, other_rows.shape) == (
        (3, 4),
        (3, 4, 3),
        (3, 6),
        (3, 6, 5),
    )
    numbers = np.array([2, NOT_LEARNT, 7], np.int32)
    sizes = np.array([one.size for one in images], np.int32)
    again = unstacked(numbers, sizes, [cells, other_cells], [rows, other_rows])
    for one, other in zip(images, again, strict=True):
        assert (one.image, one.size) == (other.image, other.size)
        for ours, theirs in zip((*one.cells, *one.rows), (*other.cells, *other.rows), strict=True):
            assert np.array_equal(ours, theirs)
    assert stacked([], 0, 3)[1].shape == (0, 0, 3)
