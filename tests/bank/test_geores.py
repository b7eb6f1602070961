"""GeoReS against the reference."""

from __future__ import annotations

import numpy as np
import pytest
from plain_selection import FARTHEST, chunks, distinct, doubles

from mhpatchcore import reference
from mhpatchcore.bank.constructors import Stream, geores


@pytest.mark.parametrize(
    ("K", "m_c", "alpha", "q"),
    [(20, 10, 0.6, 15), (21, 10, 0.7, 15), (40, 12, 0.9, None), (30, 30, 0.3, 4), (2, 5, 0.99, 1)],
)
@pytest.mark.parametrize("high", [3, 12, 1000])
def test_geores_is_the_papers(K: int, m_c: int, alpha: float, q: int | None, high: int) -> None:
    made = chunks(7, high=high)
    bank = geores(Stream(made), K, m_c, alpha, q, FARTHEST)
    assert np.array_equal(bank.z, reference.geores(doubles(made), K, m_c, alpha, q or K))
    assert len(bank) == distinct(bank.z) <= K


def test_old_rows_are_candidates_for_both_parts() -> None:
    old, made = chunks(1, high=12, seed=9)[0], chunks(5, high=12)
    old.z[3] = 500  # which nothing else comes near to
    bank = geores(Stream(made, earlier=(old,)), 20, 10, 0.6)
    assert len(bank) == 20 and (bank.z == 500).all(axis=1).sum() == 1
    assert len(geores(Stream([], earlier=(old, made[0])), 20, 10, 0.6)) == 20
