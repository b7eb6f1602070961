"""The tail of calibration scores: what lies beyond the largest of them.

Scores above a high one, u, are taken to follow a generalised Pareto distribution (peaks over threshold). With k of n
scores above u, shape ξ and scale σ by probability-weighted moments (Hosking & Wallis 1987) of the excesses y,

    b0 = mean y,  b1 = mean of (k − i)/(k − 1)·y_(i)        ξ = 2 − b0/(b0 − 2·b1),  σ = b0·(1 − ξ)
    x(α) = u + σ/ξ·((α·n/k)^(−ξ) − 1)

A rank needs 1/α − 1 scores to reach the rate α, and then it is the largest score that decides; a tail goes on beyond
it, and no single score decides. In return it is an assumption, and only a rank holds whatever the distribution.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from mhpatchcore.runtime.arrays import Doubles, Floats

SHARE, LEAST = 0.2, 20  # of the scores make the tail, and at least so many
XI = (-0.5, 0.5)  # beyond it moments do not exist, and so few scores cannot tell
RESAMPLES, CONFIDENCE = 200, 0.9


@dataclass(frozen=True)
class Tail:
    """A generalised Pareto tail above u, which `share` of all scores exceed."""

    u: float
    sigma: float
    xi: float
    share: float

    def quantile(self, rate: float) -> float:
        """The score that a share `rate` of normal images exceed.

        >>> round(Tail(10.0, 2.0, 0.0, 0.2).quantile(0.2 / np.e), 6)
        12.0
        """
        p = rate / self.share
        if abs(self.xi) < 1e-6:
            return self.u - self.sigma * float(np.log(p))
        return float(self.u + self.sigma / self.xi * (p**-self.xi - 1))


def fit_tail(scores: Floats) -> Tail | None:
    """The tail of scores (n,); None where there are too few of them, or where all are the same."""
    x = np.sort(np.asarray(scores, np.float64))
    n = len(x)
    k = min(max(LEAST, round(SHARE * n)), n // 2)
    if k < LEAST // 2:
        return None
    u, y = float(x[n - k - 1]), x[n - k :] - x[n - k - 1]
    b0 = float(y.mean())
    b1 = float(((k - np.arange(1, k + 1)) / (k - 1) * y).mean())
    if b0 <= 0 or b0 - 2 * b1 <= 0:
        return None
    xi = float(np.clip(2 - b0 / (b0 - 2 * b1), *XI))
    return Tail(u, b0 * (1 - xi), xi, k / n)


def tail_threshold(scores: Floats, rate: float) -> tuple[float, float, float] | None:
    """The score exceeded at a rate, and an interval that holds it with CONFIDENCE (by resampling the scores)."""
    tail = fit_tail(scores)
    if tail is None or rate >= tail.share:
        return None
    rng = np.random.default_rng(0)
    found = []
    for _ in range(RESAMPLES):
        again = fit_tail(rng.choice(scores, len(scores)))
        if again is not None and rate < again.share:
            found.append(again.quantile(rate))
    edge = (1 - CONFIDENCE) / 2
    spread: Doubles = np.quantile(found or [tail.quantile(rate)], [edge, 1 - edge])
    return tail.quantile(rate), float(spread[0]), float(spread[1])
