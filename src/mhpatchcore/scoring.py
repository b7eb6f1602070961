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
from mhpatchcore.bank.reach import reach_weights
from mhpatchcore.bank.search import nearest_rows, neighbour_table
from mhpatchcore.config import Config
from mhpatchcore.maps import view_map


@dataclass(frozen=True, eq=False)
class PatchScores:
    """One image: patch scores a (h, w), the image score, and the peak of the smoothed map."""

    a: Floats
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
        nearest, distances = nearest_rows(z, self.bank, among, self.weights)
        return self.summarise(distances, z, nearest)

    def summarise(
        self, distances: Floats, z: Floats | None = None, nearest: Indices | None = None
    ) -> PatchScores:
        """From distances (h·w,) to scores; only the reweighted rule asks for patches and their nearest rows."""
        a, config = distances.reshape(self.grid), self.config
        peak = float(view_map(a, config.size, config.size, config.sigma).max())
        if config.score == "map-max":
            return PatchScores(a, peak, peak)
        if config.score == "max":
            return PatchScores(a, float(a.max()), peak)
        assert z is not None
        u = int(distances.argmax())
        row = nearest_rows(z[u : u + 1], self.bank)[0][0] if nearest is None else nearest[u]
        return PatchScores(a, reweighted(z[u], distances[u], self.bank[self.neighbours[row]]), peak)

    @cached_property
    def weights(self) -> Floats:
        """How far each bank row speaks (K,)."""
        return reach_weights(self.bank, self.config.reach)

    @cached_property
    def neighbours(self) -> Indices:
        """N_b of every bank row (K, b)."""
        return neighbour_table(self.bank, self.config.neighbours)


def reweighted(z: Floats, a: float, neighbours: Floats) -> float:
    """w(x)·a(u*) for the patch z (k,) with the largest score a, and the rows (b, k) of N_b(m*), m* first.

    τ = max δ(u*, m) keeps the exponentials finite; it cancels.
    """
    distances = ((z.astype(np.float64) - neighbours) ** 2).sum(axis=1)
    tau = distances.max()
    weight = 1 - np.exp(distances[0] - tau) / np.exp(distances - tau).sum()
    return float(weight * a)
