"""Count, mean and scatter of patch descriptors, exact in one pass, in any order, over any split.

With batch summary (n_b, μ_b, M2_b) and δ = μ_b − μ (Chan et al. 1979; the paper's appendix on Welford):

    μ ← μ + n_b/(n+n_b)·δ        M2 ← M2 + M2_b + n·n_b/(n+n_b)·δδᵀ        n ← n + n_b        Σ̂ = M2/(n−1)
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from mhpatchcore.arrays import Array, Doubles


@dataclass(frozen=True, eq=False)
class Moments:
    """n, mean (d,) and M2 (d, d) = Σ (u − mean)(u − mean)ᵀ, in float64. A value: updating gives a new one.

    >>> rng = np.random.default_rng(0)
    >>> u = rng.normal(size=(100, 3))
    >>> whole = Moments.of(u)
    >>> pieces = Moments.of(u[:10]).merge(Moments.of(u[10:60])).update(u[60:])
    >>> whole, bool(np.allclose(whole.covariance, pieces.covariance, rtol=1e-12))
    (Moments(n=100, d=3), True)
    >>> bool(np.allclose(whole.covariance, np.cov(u.T)))
    True
    """

    n: int
    mean: Doubles
    M2: Doubles
    rest: Doubles | float = 0.0  # what rounding takes from the mean, which is mean + rest

    @staticmethod
    def empty(d: int) -> Moments:
        return Moments(0, np.zeros(d), np.zeros((d, d)))

    @staticmethod
    def of(u: Array) -> Moments:
        """Moments of the rows of u (n, d), two passes over this batch."""
        if len(u) == 0:
            return Moments.empty(u.shape[1])
        u = np.asarray(u, np.float64)
        mean = u.mean(axis=0)
        centred = u - mean
        # the second correction removes what rounding of the mean leaves when offsets are large
        rest = centred.mean(axis=0)
        centred -= rest
        rounded = mean + rest
        return Moments(len(u), rounded, centred.T @ centred, (mean - rounded) + rest)

    @staticmethod
    def of_all(parts: Iterable[Moments], d: int) -> Moments:
        """Merge many summaries in their order."""
        total = Moments.empty(d)
        for part in parts:
            total = total.merge(part)
        return total

    def update(self, u: Array) -> Moments:
        return self.merge(Moments.of(u))

    def merge(self, other: Moments) -> Moments:
        if self.n == 0 or other.n == 0:
            return other if self.n == 0 else self
        n = self.n + other.n
        delta = (other.mean - self.mean) + (other.rest - self.rest)
        shift = delta * (other.n / n)
        mean = self.mean + shift
        # the exact error of that sum (Knuth): lost, it would cost M2 digits where offsets exceed the spread
        moved = mean - self.mean
        rest = self.rest + ((self.mean - (mean - moved)) + (shift - moved))
        scatter = self.M2 + other.M2
        scatter += np.outer(delta * (self.n * other.n / n), delta)
        return Moments(n, mean, scatter, rest)

    @property
    def d(self) -> int:
        return len(self.mean)

    @property
    def covariance(self) -> Doubles:
        """Unbiased Σ̂ = M2/(n−1); zero where a single row leaves it undefined."""
        covariance: Doubles = self.M2 / max(self.n - 1, 1)
        return covariance

    def __repr__(self) -> str:
        return f"Moments(n={self.n}, d={self.d})"
