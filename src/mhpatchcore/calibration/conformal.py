"""A threshold from normal images alone, at a stated rate of false alarms (split-conformal).

With n calibration scores, a further normal image exceeds the ⌈(n+1)(1−α)⌉-th smallest of them with
probability at most α, whatever the distribution. Fewer than 1/α − 1 images cannot support the rate α: the
threshold is then their largest score, and `supported_rate` says what that promises.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import ceil

import numpy as np

from mhpatchcore.calibration.deciding_patches import Statement, Witness
from mhpatchcore.errors import UserError
from mhpatchcore.runtime.arrays import Floats


@dataclass(frozen=True, eq=False)
class Calibration:
    """Scores and map maxima of normal images that the bank did not profit from, each sorted; and the rate.

    `method` says how they were kept apart: "cross-image" (each image against the bank rows of the others) or
    "held-out" (images that took no part in the fit), or both. `witnesses` let the scores be taken again under another
    bank; files of format 1 have none.
    """

    scores: Floats
    peaks: Floats
    false_alarm: float
    method: str
    witnesses: tuple[Witness, ...] = ()

    @property
    def n(self) -> int:
        return len(self.scores)

    @property
    def threshold(self) -> float:
        """Image scores above it are anomalous."""
        return conformal_quantile(self.scores, self.false_alarm)

    @property
    def pixel_threshold(self) -> float:
        """Map values above it belong to the predicted segmentation."""
        return conformal_quantile(self.peaks, self.false_alarm)

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
        at_least = self.n - int(np.searchsorted(self.scores, score, side="left"))
        return (1 + at_least) / (self.n + 1)

    def at_rate(self, false_alarm: float) -> Calibration:
        """The same scores at another rate: no refit needed."""
        return replace(self, false_alarm=_checked(false_alarm))

    def together(self, other: Calibration) -> Calibration:
        """The scores of both, at the rate of this one."""
        scores, peaks = (
            (np.concatenate(pair)) for pair in ((self.scores, other.scores), (self.peaks, other.peaks))
        )
        method = both_methods(self.method, other.method)
        return calibrate(scores, peaks, self.false_alarm, method, (*self.witnesses, *other.witnesses))


def calibrate(
    scores: Floats, peaks: Floats, false_alarm: float, method: str, witnesses: tuple[Witness, ...] = ()
) -> Calibration:
    scores, peaks = np.sort(np.asarray(scores, np.float32)), np.sort(np.asarray(peaks, np.float32))
    return Calibration(scores, peaks, _checked(false_alarm), method, witnesses)


def calibration_by(statements: Sequence[Statement], false_alarm: float, method: str) -> Calibration:
    pairs = np.array([(one.score, one.peak) for one in statements], np.float32).reshape(-1, 2)
    witnesses = tuple(one.witness for one in statements)
    return calibrate(pairs[:, 0], pairs[:, 1], false_alarm, method, witnesses)


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


def conformal_quantile(sorted_scores: Floats, false_alarm: float) -> float:
    """The ⌈(n+1)(1−α)⌉-th smallest score, or the largest where n is too small for α (none: infinity).

    >>> conformal_quantile(np.arange(1, 100, dtype=np.float32), 0.05)
    95.0
    """
    n = len(sorted_scores)
    if n == 0:
        return float("inf")
    # 1e-9 keeps (n+1)(1−α) that is a whole number from being rounded up by its last bit
    rank = min(ceil((n + 1) * (1 - false_alarm) - 1e-9), n)
    return float(sorted_scores[rank - 1])
