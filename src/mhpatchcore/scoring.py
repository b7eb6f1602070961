"""From whitened patches to an image score, in squared distances as in the paper.

a(u) = min_{m∈M} δ(u, m),  δ(u, m) = ‖z(u) − m‖²
max          s = max_u a(u)
reweighted   s = w·a(u*),  w = 1 − exp(a(u*)) / Σ_{m∈N_b(m*)} exp(δ(u*, m))
map-max      s = the maximum of the smoothed map
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from mhpatchcore.arrays import Floats, Indices, Mask
from mhpatchcore.bank.search import nearest_rows, neighbour_table
from mhpatchcore.config import Config
from mhpatchcore.maps import view_map


@dataclass(frozen=True, eq=False)
class PatchScores:
    """One image: patch scores a (h, w), each patch's nearest bank row (h, w), image score, peak of the map."""

    a: Floats
    nearest: Indices
    score: float
    peak: float


@dataclass(frozen=True, eq=False)
class Scorer:
    """Compares an image's whitened patches with the bank's whitened rows (K, k)."""

    bank: Floats
    grid: tuple[int, int]
    config: Config

    def __call__(self, z: Floats, among: Mask | None = None) -> PatchScores:
        """Score whitened patches z (h·w, k), against all bank rows or those marked in `among` (K,)."""
        nearest, distances = nearest_rows(z, self.bank, among)
        a, config = distances.reshape(self.grid), self.config
        peak = float(view_map(a, config.size, config.size, config.sigma).max())
        if config.score == "map-max":
            score = peak
        elif config.score == "reweighted":
            score = reweighted(z, distances, self.bank, self.neighbours[nearest[int(distances.argmax())]])
        else:
            score = float(a.max())
        return PatchScores(a, nearest.reshape(self.grid), score, peak)

    @cached_property
    def neighbours(self) -> Indices:
        """N_b of every bank row (K, b)."""
        return neighbour_table(self.bank, self.config.neighbours)


def reweighted(z: Floats, a: Floats, bank: Floats, neighbours: Indices) -> float:
    """w(x)·a(u*) for patches z (n, k) with scores a (n,), and N_b(m*) as rows of the bank.

    τ = max δ(u*, m) keeps the exponentials finite; it cancels.
    """
    u = int(a.argmax())
    distances = ((z[u].astype(np.float64) - bank[neighbours]) ** 2).sum(axis=1)
    tau = distances.max()
    weight = 1 - np.exp(distances[0] - tau) / np.exp(distances - tau).sum()
    return float(weight * a[u])
