"""A threshold from normal images alone, at a stated rate of false alarms.

All calibration scores take part and none of them decides alone: the threshold is where a smooth tail through the
highest of them reaches the rate (`tail.py`). For rates within the bulk of the scores it is their rank, as in
split-conformal prediction. Fewer than FEWEST scores have no tail: the threshold is then the largest of them, which one
of n + 1 good parts exceeds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import ceil, inf, isfinite

import numpy as np

from mhpatchcore.calibration.deciding_patches import DecidingPatches
from mhpatchcore.calibration.tail import FEWEST, fit_tail
from mhpatchcore.errors import UserError
from mhpatchcore.runtime.arrays import Floats, Indices

MOST_DECIDING = (
    100  # images whose deciding patches a model keeps: those of the tail, which make the threshold
)
NINE_OF_TEN = (0.05, 0.95)
NOTHING = 1e-4  # a rate that no line could tell from none
LIKENESS_SHARE = 0.1  # of the false alarms is left for good parts that look like a known defect
MOST_KNOWN = 300  # images: what comes later differs from them by more than chance, however many they are


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

        `likenesses` (d,) are those of the images with deciding patches. They are the ones with the highest scores, and
        say nothing of parts that score lower: such parts pass. Of all good parts, those above both limits are the share
        that the threshold leaves of the expected rate.
        """
        least_score = float(self.scores[len(self.deciding) - 1])
        reached = float((self.scores >= least_score).mean())
        rate = self.for_likeness * self.expected_rate / reached
        return threshold_at(1 + np.asarray(likenesses, np.float32), min(rate, 0.5)) - 1, least_score

    def at_rate(self, false_alarm: float) -> Calibration:
        """The same scores at another rate: no refit needed."""
        return replace(self, false_alarm=_checked(false_alarm), by_hand=None)

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
    return Calibration(scores[order], peaks[order], _checked(false_alarm), method, patches)


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


def _checked(false_alarm: float) -> float:
    if not 0 < false_alarm < 1:
        raise UserError(f"a false-alarm rate lies between 0 and 1, not {false_alarm}; for example 0.01")
    return false_alarm
