"""A threshold from normal images alone, at a stated rate of false alarms (split-conformal).

With n calibration scores, a further normal image exceeds the ⌈(n+1)(1−α)⌉-th smallest of them with
probability at most α, whatever the distribution: exactly for held-out images, approximately for images that were learnt
from, since they shaped the metric. Fewer than 1/α − 1 images cannot support the rate α: the
threshold is then their largest score, and `supported_rate` says what that promises.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from math import ceil

import numpy as np

from mhpatchcore.calibration.deciding_patches import DecidingPatches
from mhpatchcore.calibration.tail import tail_threshold
from mhpatchcore.errors import UserError
from mhpatchcore.runtime.arrays import Floats

ALONE = 1.15  # times the threshold that the other images give


@dataclass(frozen=True, eq=False)
class Calibration:
    """Scores (n,) and map maxima (n,) of normal images that the bank did not profit from; the rate, and the rule.

    `method` says how they were kept apart: "cross-image" (each image against the bank rows of the others) or
    "held-out" (images that took no part in the fit), or both. `deciding` are the patches that decided the scores of
    each image, in the same order, so that the scores can be taken again under another bank. The rule is "rank", which
    holds whatever the distribution, or "tail" (`tail.py`), which no single image decides.
    """

    scores: Floats
    peaks: Floats
    false_alarm: float
    method: str
    deciding: tuple[DecidingPatches, ...] = ()
    rule: str = "rank"

    @property
    def n(self) -> int:
        return len(self.scores)

    @cached_property
    def threshold(self) -> float:
        """Image scores above it are rejected."""
        return self._limit(self.scores)

    @cached_property
    def pixel_threshold(self) -> float:
        """Map values above it belong to the predicted segmentation."""
        return self._limit(self.peaks)

    def _limit(self, scores: Floats) -> float:
        tail = tail_threshold(scores, self.false_alarm) if self.rule == "tail" else None
        return conformal_quantile(scores, self.false_alarm) if tail is None else tail[0]

    @property
    def interval(self) -> tuple[float, float]:
        """Between which rates nine of ten thresholds of this rank lie: Beta(n + 1 − r, r) of the rank r of n."""
        from scipy.special import betaincinv  # a tenth of a second that scoring does not need

        r = conformal_rank(self.n, self.false_alarm)
        low, high = betaincinv(self.n + 1 - r, r, [0.05, 0.95])
        return float(low), float(high)

    @property
    def decided_alone(self) -> tuple[int, float] | None:
        """The image, by its place among the scores, that alone decides the threshold, and the threshold without it.

        None where it would hardly be lower.
        """
        if self.n < 3 or self.rule != "rank":
            return None
        largest = int(self.scores.argmax())
        without = conformal_quantile(np.delete(self.scores, largest), self.false_alarm)
        return (largest, without) if self.threshold > ALONE * without else None

    @property
    def supported_rate(self) -> float:
        """The false-alarm rate that is really promised: `false_alarm`, or the least that n images support."""
        return max(self.false_alarm, 1 / (self.n + 1))

    @property
    def needed(self) -> int:
        """How many images support the rate `false_alarm`.

        >>> calibrate(np.ones(5), np.ones(5), 0.03, "held-out").needed
        33
        """
        return ceil(1 / self.false_alarm - 1 - 1e-9)

    def p_value(self, score: float) -> float:
        """(1 + #{calibration scores ≥ score}) / (n + 1): small for a score that normals hardly reach."""
        return (1 + int((self.scores >= score).sum())) / (self.n + 1)

    def at_rate(self, false_alarm: float, rule: str | None = None) -> Calibration:
        """The same scores at another rate, or by another rule: no refit needed."""
        rule = self.rule if rule is None else rule
        return calibrate(self.scores, self.peaks, false_alarm, self.method, self.deciding, rule)

    def together(self, other: Calibration) -> Calibration:
        """The scores of both, at the rate of this one."""
        scores, peaks = (
            (np.concatenate(pair)) for pair in ((self.scores, other.scores), (self.peaks, other.peaks))
        )
        method = both_methods(self.method, other.method)
        return calibrate(
            scores, peaks, self.false_alarm, method, (*self.deciding, *other.deciding), self.rule
        )


def calibrate(
    scores: Floats,
    peaks: Floats,
    false_alarm: float,
    method: str,
    deciding: tuple[DecidingPatches, ...] = (),
    rule: str = "rank",
) -> Calibration:
    scores, peaks = np.asarray(scores, np.float32), np.asarray(peaks, np.float32)
    return Calibration(scores, peaks, _checked(false_alarm), method, deciding, rule)


def both_methods(*methods: str) -> str:
    """
    >>> both_methods("held-out", "cross-image", "held-out")
    'cross-image and held-out'
    """
    return " and ".join(sorted({name for method in methods for name in method.split(" and ") if name}))


def _checked(false_alarm: float) -> float:
    if not 0 < false_alarm < 1:
        raise UserError(f"a false-alarm rate lies between 0 and 1, not {false_alarm}; for example 0.01")
    return false_alarm


def conformal_quantile(scores: Floats, false_alarm: float) -> float:
    """The ⌈(n+1)(1−α)⌉-th smallest score, or the largest where n is too small for α (none: infinity).

    >>> conformal_quantile(np.arange(1, 100, dtype=np.float32), 0.05)
    95.0
    """
    if len(scores) == 0:
        return float("inf")
    return float(np.sort(scores)[conformal_rank(len(scores), false_alarm) - 1])


def conformal_rank(n: int, false_alarm: float) -> int:
    # 1e-9 keeps (n+1)(1−α) that is a whole number from being rounded up by its last bit
    return min(ceil((n + 1) * (1 - false_alarm) - 1e-9), n)
