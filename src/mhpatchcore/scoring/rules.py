"""From whitened patches to a map of patch scores and an image score, in squared distances as in the paper.

    a(u) = min_{m∈M} δ(u, m),  δ(u, m) = ‖z(u) − m‖²      where the image departs from normal: the map
    max          s = max_u a(u)
    reweighted   s = w·a(u*),  w = 1 − exp(a(u*)) / Σ_{m∈N_b(m*)} exp(δ(u*, m))
    map-max      s = the maximum of the smoothed map

Beyond the paper, the image's distances can be weighed by how far the bank rows reach (`bank/reach.py`) and taken to
what the nearest rows span (`bank/span.py`), and the map can be the mean over several parts of the bank of the distance
to the nearest row there. Where a defect is and whether there is one are two questions: the place is shown more steadily
if no single row decides and distances are plain, the image is judged better by what lies between the nearest rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from mhpatchcore.config import Config
from mhpatchcore.metric.distances import BankPart, bank_parts, nearest_rows, neighbour_table, part_distances
from mhpatchcore.runtime.arrays import Floats, Indices, Mask
from mhpatchcore.scoring.maps import view_map
from mhpatchcore.scoring.reach import mean_spacing, reach_weights
from mhpatchcore.scoring.span import rows_around, spanned


@dataclass(frozen=True, eq=False)
class PatchScores:
    """One image: patch scores (h, w), a for the map and `nearest` for the image; the image score; the map's peak."""

    a: Floats
    nearest: Floats
    score: float
    peak: float


@dataclass(frozen=True, eq=False)
class Scorer:
    """Compares an image's whitened patches with the bank's whitened rows (K, k)."""

    bank: Floats
    grid: tuple[int, int]
    config: Config

    def __post_init__(self) -> None:
        _ = self.parts  # made here, because threads would each make their own
        if self.config.score == "reweighted":
            _ = self.neighbours

    def __call__(self, z: Floats, among: Mask | None = None) -> PatchScores:
        """Score whitened patches z (h·w, k), against all bank rows or those marked in `among` (K,)."""
        for_image, for_map = part_distances(z, self.parts, among)
        nearest, typical = for_image.min(axis=0), for_map.mean(axis=0)
        if self.around > 1:
            nearest = spanned(nearest, z, self.bank, self.weights, self.parts, self.around, among)
        return self.summarise(nearest, typical, (self.map_peak(nearest), self.map_peak(typical)), z, among)

    def summarise(
        self,
        nearest: Floats,
        typical: Floats,
        peaks: tuple[float, float],
        z: Floats | None = None,
        among: Mask | None = None,
    ) -> PatchScores:
        """From distances (h·w,) and the peaks of their maps to scores.

        `nearest` are the distances to the nearest row of the bank, or to what the nearest rows span, `typical` their
        mean over its parts. Only the reweighted rule asks for z (h·w, k) and for the rows that count (K,).
        """
        if self.config.score == "map-max":
            score = peaks[0]
        elif self.config.score == "max":
            score = float(nearest.max())
        else:
            assert z is not None
            u = int(nearest.argmax())
            score = reweighted(z[u], float(nearest[u]), self._neighbourhood(z[u], among))
        return PatchScores(typical.reshape(self.grid), nearest.reshape(self.grid), score, peaks[1])

    def _neighbourhood(self, z: Floats, among: Mask | None) -> Floats:
        """N_b(m*) of the row m* nearest to a patch z (k,), m* first: the rows (b, k)."""
        rows: Floats = self.bank if among is None else self.bank[among]
        nearest = nearest_rows(z[None], rows)[0][0]
        if among is None:
            order = self.neighbours[nearest]
        else:
            order = np.argsort(((rows - rows[nearest]) ** 2).sum(axis=1), kind="stable")
        return np.asarray(rows[order[: self.config.neighbours]])

    def map_peak(self, distances: Floats) -> float:
        """The maximum of the smoothed map of distances (h·w,)."""
        size = self.config.size
        return float(view_map(distances.reshape(self.grid), size, size, self.config.sigma).max())

    @cached_property
    def weights(self) -> Floats:
        """How far each bank row speaks (K,), where the image is judged."""
        if self.config.reach == 0:
            return np.ones(len(self.bank), np.float32)
        return reach_weights(mean_spacing(self.bank), self.config.reach)

    @cached_property
    def parts(self) -> tuple[BankPart, ...]:
        return bank_parts(self.bank, self.weights, self.config.parts)

    @property
    def around(self) -> int:
        """How many bank rows around a patch span what counts as known, where the image is judged."""
        return rows_around(self.config.span, self.bank)

    @cached_property
    def neighbours(self) -> Indices:
        """N_b of every bank row (K, b)."""
        return neighbour_table(self.bank, self.config.neighbours)


def reweighted(z: Floats, a: float, neighbours: Floats) -> float:
    """w(x)·a(u*) for the patch z (k,) with the largest score a, and the rows (b, k) of N_b(m*), m* first.

    τ = max δ(u*, m) keeps the exponentials finite; it cancels. w comes from plain distances, also where a is weighed.
    """
    distances = ((z.astype(np.float64) - neighbours) ** 2).sum(axis=1)
    tau = distances.max()
    weight = 1 - np.exp(distances[0] - tau) / np.exp(distances - tau).sum()
    return float(weight * a)
