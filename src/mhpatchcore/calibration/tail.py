"""The tail of normal scores: which score a further good part exceeds at a given rate.

Of n scores the k highest, a fifth of them, exceed the next one, u, by y_1 ≤ … ≤ y_k. These excesses are taken to follow
a generalised Pareto distribution (peaks over threshold), with shape and scale by probability-weighted moments (Hosking
& Wallis 1987):

    b0 = mean y,  b1 = mean (k − i)/(k − 1)·y_i         ξ̂ = 2 − b0/(b0 − 2·b1)
    ξ = ξ̂·k/(k + PRIOR),  σ = b0·(1 − ξ)                so few scores cannot tell the shape: it is drawn to ξ = 0
    ζ = ξ + 1/k                                          what σ leaves unknown makes the tail heavier
    P(score > x) = k/n·(1 + ζ·(x − u)/σ)^(−1/ζ)

The term 1/k is exact for ξ = 0, where b0 of k excesses predicts the next one: P(y > x) = (1 + x/(k·b0))^(−k). It lets
five images and five hundred keep the same promise.

An image that lies far beyond the tail of all others is *odd*: a lint fibre, a reflection. It takes no part in the tail,
which it would stretch for everyone, but it will come again: it counts in the rate.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from mhpatchcore.runtime.arrays import Doubles, Floats

SHARE, LEAST = 0.2, 10  # of the scores make the tail, and at least so many, but never more than half
PRIOR = 60.0  # excesses that the shape 0 counts for
MOST_XI = 0.5  # beyond it variances do not exist, and no data set measured had more
FEWEST = 4  # scores that have a tail
STRAIGHT = 1e-6  # a shape that is zero but for rounding
# an image is odd if the others' tail gives a score like its own to one of so many sets of as many images
ODD, FEWEST_FOR_ODD, MOST_ODD = 20, 20, 0.02


@dataclass(frozen=True)
class Tail:
    """A generalised Pareto tail above u, which a share of all scores exceed; `odd` of them, included, are left out."""

    u: float
    sigma: float
    zeta: float
    share: float
    odd: float = 0.0

    def threshold(self, rate: float) -> float:
        """The score that good parts exceed at a rate below `share`, odd ones included.

        Where odd images alone take more than half of the rate, the rest keep half of it, and the rate is exceeded.

        >>> round(Tail(10.0, 2.0, 0.0, 0.2).threshold(0.2 / np.e), 6)
        12.0
        """
        p = max(rate - self.odd, rate / 2) / self.share
        if abs(self.zeta) < STRAIGHT:
            return float(self.u - self.sigma * np.log(p))
        return float(self.u + self.sigma / self.zeta * (p**-self.zeta - 1))

    def rate(self, score: float) -> float:
        """The share of good parts that exceed a score above u."""
        above = (score - self.u) / max(self.sigma, 1e-300)
        straight = abs(self.zeta) < STRAIGHT
        p = np.exp(-above) if straight else max(1 + self.zeta * above, 0.0) ** (-1 / self.zeta)
        return float(self.odd + self.share * p)


def fit_tail(scores: Floats) -> Tail:
    """The tail of at least FEWEST scores (n,), without those that are odd."""
    x: Doubles = np.sort(np.asarray(scores, np.float64))
    n = len(x)
    odd = next((k for k in range(_most_odd(n), 0, -1) if _is_odd(x[n - k], x[: n - k], n)), 0)
    tail = _fit(x[: n - odd])
    return Tail(tail.u, tail.sigma, tail.zeta, tail.share * (n - odd) / n, odd / n)


def _most_odd(n: int) -> int:
    return max(1, int(MOST_ODD * n)) if n >= FEWEST_FOR_ODD else 0


def _is_odd(score: float, others: Doubles, n: int) -> bool:
    return bool(score > _fit(others).threshold(1 / (ODD * n)))


def _fit(x: Doubles) -> Tail:
    """The tail of rising scores (n,)."""
    n = len(x)
    k = min(max(LEAST, round(SHARE * n)), n // 2)
    u, y = float(x[n - k - 1]), x[n - k :] - x[n - k - 1]
    b0 = float(y.mean())
    b1 = float(((k - np.arange(1, k + 1)) / (k - 1) * y).mean())
    xi = 2 - b0 / (b0 - 2 * b1) if b0 > 2 * b1 else MOST_XI
    xi = float(np.clip(xi, -MOST_XI, MOST_XI)) * k / (k + PRIOR)
    return Tail(u, b0 * (1 - xi), xi + 1 / k, k / n)
