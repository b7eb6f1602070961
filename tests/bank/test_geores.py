"""GeoReS against a plain transcription of the paper."""

from __future__ import annotations

import numpy as np
import pytest
from plain_selection import chunks, distinct, plain_tree, pool_of, select

from mhpatchcore.bank.geores import geores
from mhpatchcore.bank.patches import Stream


@pytest.mark.parametrize(
    ("K", "m_c", "alpha", "q"),
    [(20, 10, 0.6, 15), (21, 10, 0.7, 15), (40, 12, 0.9, None), (30, 30, 0.3, 4), (2, 5, 0.99, 1)],
)
@pytest.mark.parametrize("high", [3, 12, 1000])
def test_geores_is_the_papers(K: int, m_c: int, alpha: float, q: int | None, high: int) -> None:
    made = chunks(7, high=high)
    z = pool_of(made)
    K0 = min(K - 1, max(1, round(alpha * K)))
    coverage = np.concatenate(plain_tree([chunk.z for chunk in made], m_c))
    P, M0 = select(coverage, K), select(coverage, K0)
    residuals = ((z[:, None] - P[None]) ** 2).sum(axis=2).min(axis=1)
    T = z[np.sort(np.argsort(-residuals, kind="stable")[: q or 10 * (K - K0)])]
    both = np.concatenate([M0, select(T, K - K0, covered=M0)])
    wanted = np.concatenate([both, select(coverage, K - len(both), covered=both)])
    bank = geores(Stream.of(made), K, m_c, alpha, q)
    assert np.array_equal(bank.z, wanted)
    assert len(bank) == distinct(bank.z) <= K


def test_old_rows_are_candidates_for_both_parts() -> None:
    old, made = chunks(1, high=12, seed=9)[0], chunks(5, high=12)
    old.z[3] = 500  # which nothing else comes near to
    bank = geores(Stream.of(made, earlier=(old,)), 20, 10, 0.6)
    assert len(bank) == 20 and (bank.z == 500).all(axis=1).sum() == 1
    assert len(geores(Stream.of([], earlier=(old, made[0])), 20, 10, 0.6)) == 20
