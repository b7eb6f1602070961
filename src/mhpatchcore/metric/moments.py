"""Count, mean and scatter of patch descriptors, exact in one pass, in any order, over any split.

With batch summary (n_b, μ_b, M2_b) and δ = μ_b − μ (Chan et al. 1979; the paper's appendix on Welford):

    μ ← μ + n_b/(n+n_b)·δ        M2 ← M2 + M2_b + n·n_b/(n+n_b)·δδᵀ        n ← n + n_b        Σ̂ = M2/(n−1)
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from mhpatchcore.runtime.arrays import Array, Doubles, as_float32


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
        """Moments of the rows of u (n, d), taken around the first row so that a large offset costs no digits."""
        if len(u) == 0:
            return Moments.empty(u.shape[1])
        around = np.array(u[0], np.float64)
        v = as_float32(u).astype(np.float64) if u.dtype == np.float16 else np.array(u, np.float64)
        v -= around
        shift = v.mean(axis=0)
        mean, rest = _exact_sum(around, shift)
        return Moments(len(u), mean, v.T @ v - len(u) * np.outer(shift, shift), rest)

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
        # what the sum loses would cost M2 digits where offsets exceed the spread
        mean, lost = _exact_sum(self.mean, delta * (other.n / n))
        scatter = self.M2 + other.M2
        scatter += np.outer(delta * (self.n * other.n / n), delta)
        return Moments(n, mean, scatter, self.rest + lost)

    def leading(self, d: int) -> Moments:
        """Those of the first d columns."""
        rest = self.rest if isinstance(self.rest, float) else self.rest[:d]
        return Moments(self.n, self.mean[:d], self.M2[:d, :d], rest)

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


def _exact_sum(a: Doubles, b: Doubles) -> tuple[Doubles, Doubles]:
    """a + b rounded, and what rounding took from it (Knuth's two-sum)."""
    total = a + b
    moved = total - a
    return total, (a - (total - moved)) + (b - moved)
