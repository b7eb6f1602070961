"""A threshold from normal images alone, at a stated rate of false alarms.

All calibration scores take part and none of them decides alone: the threshold is where a smooth tail through the
highest of them reaches the rate. For rates within the bulk of the scores it is their rank, as in split-conformal
prediction. Fewer than FEWEST scores have no tail: the threshold is then the largest of them, which one of n + 1 good
parts exceeds.

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

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import ceil, inf, isfinite

import numpy as np

from mhpatchcore.calibration.deciding_patches import DecidingPatches
from mhpatchcore.errors import UserError
from mhpatchcore.runtime.arrays import Doubles, Floats, Indices

MOST_DECIDING = 100  # images whose deciding patches a model keeps: those that make the threshold
NINE_OF_TEN = (0.05, 0.95)
NOTHING = 1e-4  # a rate that no line could tell from none
LIKENESS_SHARE = 0.1  # of the false alarms is left for good parts that look like a known defect
MOST_KNOWN = 300  # images: what comes later differs from them by more than chance, however many they are

# the tail
SHARE, LEAST = 0.2, 10  # of the scores make the tail, and at least so many, but never more than half
PRIOR = 60.0  # excesses that the shape 0 counts for
MOST_XI = 0.5  # beyond it variances do not exist, and no data set measured had more
FEWEST = 4  # scores that have a tail
STRAIGHT = 1e-6  # a shape that is zero but for rounding
# an image is odd if the others' tail gives a score like its own to one of so many sets of as many images
ODD, FEWEST_FOR_ODD, MOST_ODD = 20, 20, 0.02


@dataclass(frozen=True, eq=False)
class Calibration:
    """Scores (n,) and map maxima (n,) of normal images that the bank did not profit from.

    `method` says how they were kept apart: "cross-image" (each image against the bank rows of the others) or
    "held-out" (images that took no part in the fit), or both. `deciding` are the patches that decided the scores of
    the first images, in the same order, so that the scores can be taken again under another bank. `by_hand` is a
    threshold that somebody has set; None: that of the rate `false_alarm`. `for_likeness` is the share of all false
    alarms that does not come from the threshold but from looking like a known defect: 0 where none is known.
    """

    scores: Floats
    peaks: Floats
    false_alarm: float
    method: str
    deciding: tuple[DecidingPatches, ...] = ()
    by_hand: float | None = None
    for_likeness: float = 0.0

    @property
    def n(self) -> int:
        return len(self.scores)

    @property
    def judges(self) -> bool:
        """Whether there is a threshold."""
        return isfinite(self.threshold)

    @cached_property
    def threshold(self) -> float:
        """Image scores above it are rejected."""
        if self.by_hand is not None:
            return self.by_hand
        return threshold_at(self.scores, (1 - self.for_likeness) * self.false_alarm)

    @cached_property
    def pixel_threshold(self) -> float:
        """Map values above it belong to the predicted segmentation: exceeded as often as the image's threshold."""
        if self.n == 0:
            return self.threshold
        rate = self.false_alarm if self.by_hand is None else min(self.expected_rate, 1.0)
        return threshold_at(self.peaks, (1 - self.for_likeness) * rate)

    @cached_property
    def expected_rate(self) -> float:
        """The share of good parts that will be rejected, as far as these images can tell."""
        return min(rate_above(self.scores, self.threshold) / (1 - self.for_likeness), 1.0)

    @property
    def belief(self) -> tuple[float, float]:
        """What is known of the true rate, as a Beta distribution of the expected rate p: νp and ν(1 − p).

        1/ν = 1/n + 1/MOST_KNOWN.
        """
        p = min(max(self.expected_rate, 1e-6), 1 - 1e-6)
        images = 1 / (1 / max(self.n, 1) + 1 / MOST_KNOWN)
        return images * p, images * (1 - p)

    @property
    def interval(self) -> tuple[float, float]:
        """Between which rates the true one lies in nine of ten cases."""
        from scipy.special import betaincinv  # a tenth of a second that scoring does not need

        low, high = betaincinv(*self.belief, NINE_OF_TEN)
        return (float(low) if low > NOTHING else 0.0), float(high)

    @property
    def odd(self) -> Indices:
        """The images, by their place among the scores, that lie far beyond all others."""
        count = round(fit_tail(self.scores).odd * self.n) if self.n >= FEWEST else 0
        return np.argsort(-self.scores, kind="stable")[:count]

    def p_value(self, score: float) -> float:
        """(1 + #{calibration scores ≥ score}) / (n + 1): small for a score that normals hardly reach."""
        return (1 + int((self.scores >= score).sum())) / (self.n + 1)

    def likeness_limit(self, likenesses: Floats) -> tuple[float, float]:
        """How like a known defect a part has to be to be rejected for that, and the score that it has to reach.

        `likenesses` (d,) are those of the images with deciding patches. Where these are not all, they are the ones with
        the highest scores, and say nothing of parts that score lower. Of all good parts, those above both limits are
        the share that the threshold leaves of the expected rate.
        """
        kept = len(self.deciding)
        least_score = float(self.scores[kept - 1]) if kept < self.n else -inf
        reached = float((self.scores >= least_score).mean())
        rate = self.for_likeness * self.expected_rate / reached
        return threshold_at(1 + np.asarray(likenesses, np.float32), min(rate, 0.5)) - 1, least_score

    def at_rate(self, false_alarm: float) -> Calibration:
        """The same scores at another rate: no refit needed."""
        if not 0 < false_alarm < 1:
            raise UserError(f"a false-alarm rate lies between 0 and 1, such as 0.01, not {false_alarm}")
        return replace(self, false_alarm=false_alarm, by_hand=None)

    def at_threshold(self, threshold: float) -> Calibration:
        """The same scores with a threshold that somebody has set."""
        if not 0 < threshold < inf:
            raise UserError(f"a threshold is a number above 0, not {threshold}")
        return replace(self, by_hand=float(threshold))

    def together(self, other: Calibration) -> Calibration:
        """The scores of both, at the rate of this one."""
        scores, peaks = (
            np.concatenate(pair) for pair in ((self.scores, other.scores), (self.peaks, other.peaks))
        )
        deciding = [*self.all_deciding, *other.all_deciding]
        method = both_methods(self.method, other.method)
        return replace(calibrate(scores, peaks, self.false_alarm, method, deciding), by_hand=self.by_hand)

    @property
    def all_deciding(self) -> list[DecidingPatches | None]:
        """The deciding patches of all images (n,), None for those whose are not kept."""
        return [*self.deciding, *[None] * (self.n - len(self.deciding))]


def calibrate(
    scores: Floats,
    peaks: Floats,
    false_alarm: float,
    method: str,
    deciding: Sequence[DecidingPatches | None] = (),
) -> Calibration:
    """The calibration of images with scores (n,), map maxima (n,) and, where they are known, deciding patches.

    Of the images with the highest scores these are kept, and the images stand first.
    """
    scores, peaks = np.asarray(scores, np.float32), np.asarray(peaks, np.float32)
    falling = np.argsort(-scores, kind="stable").tolist()
    kept = [i for i in falling if i < len(deciding) and deciding[i] is not None][:MOST_DECIDING]
    order = [*kept, *(i for i in falling if i not in set(kept))]
    patches = tuple(one for i in kept if (one := deciding[i]) is not None)
    return Calibration(scores[order], peaks[order], false_alarm, method, patches)


def both_methods(*methods: str) -> str:
    """
    >>> both_methods("held-out", "cross-image", "held-out")
    'cross-image and held-out'
    """
    return " and ".join(sorted({name for method in methods for name in method.split(" and ") if name}))


def threshold_at(scores: Floats, rate: float) -> float:
    """The score that good parts exceed at a rate, as the scores (n,) of others tell; infinity without any.

    >>> threshold_at(np.arange(1, 100, dtype=np.float32), 0.3)
    70.0
    """
    tail = fit_tail(scores) if len(scores) >= FEWEST else None
    if tail is None:
        return _ranked(scores, rate)
    return tail.threshold(rate) if rate < tail.share + tail.odd else min(_ranked(scores, rate), tail.u)


def rate_above(scores: Floats, threshold: float) -> float:
    """The rate at which good parts exceed a threshold: the inverse."""
    n = len(scores)
    above = int((scores > threshold).sum())
    tail = fit_tail(scores) if n >= FEWEST else None
    if tail is None or threshold <= tail.u:
        return (above + 1) / (n + 1)
    return tail.rate(threshold)


def _ranked(scores: Floats, rate: float) -> float:
    """The ⌈(n+1)(1−α)⌉-th smallest score, or the largest where n is too small for the rate α."""
    n = len(scores)
    # 1e-9 keeps (n+1)(1−α) that is a whole number from being rounded up by its last bit
    return float(np.sort(scores)[min(ceil((n + 1) * (1 - rate) - 1e-9), n) - 1]) if n else inf


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
    most = max(1, int(MOST_ODD * n)) if n >= FEWEST_FOR_ODD else 0
    odd = next((k for k in range(most, 0, -1) if x[n - k] > _fit(x[: n - k]).threshold(1 / (ODD * n))), 0)
    tail = _fit(x[: n - odd])
    return Tail(tail.u, tail.sigma, tail.zeta, tail.share * (n - odd) / n, odd / n)


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
