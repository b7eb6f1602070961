"""Has the line changed? Recent scores against those of the normal images that the threshold was made from.

Production holds defects too, so a plain comparison would call every bad batch a drift. Compared are therefore the
images that pass, with the reference images that pass, by the two-sample Kolmogorov–Smirnov test: defects that are
rejected do not count, and whatever happens to good parts (light, focus, a new supplier) moves them. If most images are
rejected there is little left to compare, and that alone is a drift. How many are rejected is a question of its own,
answered by the binomial test against the rate that the threshold promises.

Cross-image calibration scores are those of images whose own rows are taken out of the bank, with nothing put in their
place. Images from the line meet the whole bank and score a little lower. Against such a reference only a shift up
means anything; a reference of images that the model has not learnt from shows both.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from mhpatchcore.calibration.threshold import Calibration
from mhpatchcore.errors import UserError
from mhpatchcore.runtime.arrays import Doubles

SIGNIFICANCE = 0.01
MOST = 0.5


@dataclass(frozen=True)
class Drift:
    """What comparing n scores with n_reference reference scores says.

    `shift_p` is the p-value of the comparison of those that pass, `all_p` of the same test on all scores, and
    `rejects_p` that of so many rejects or more. Medians are those of the images that pass. `upward_only` says that
    a shift down could not be seen.
    """

    n: int
    n_reference: int
    threshold: float
    rejected: int
    expected_rate: float
    median: float
    reference_median: float
    shift_p: float
    all_p: float
    rejects_p: float
    significance: float
    upward_only: bool

    @property
    def reject_rate(self) -> float:
        return self.rejected / self.n

    @property
    def is_drift(self) -> bool:
        return self.shift_p < self.significance or self.reject_rate > MOST

    @property
    def many_rejects(self) -> bool:
        return self.rejects_p < self.significance

    @property
    def verdict(self) -> str:
        """One plain sentence."""
        if self.reject_rate > MOST:
            return f"drift: {self.reject_rate:.0%} of the images exceed the threshold, so most parts look different now"
        medians = f"median {self.reference_median:.4g} → {self.median:.4g} among those that pass"
        if self.is_drift:
            shift = "up" if self.upward_only or self.median > self.reference_median else "down"
            return f"drift: scores have shifted {shift} ({medians}, p = {self.shift_p:.2g})"
        if self.many_rejects:
            return (
                f"no drift, but more rejects than good parts would give (p = {self.rejects_p:.2g}): "
                f"look for defects; the others score as before ({medians}, p = {self.shift_p:.2g})"
            )
        known = "no higher than they were" if self.upward_only else "what they were"
        return f"no drift: scores are {known} ({medians}, p = {self.shift_p:.2g})"

    def to_json(self) -> dict[str, Any]:
        return asdict(self) | {
            "reject_rate": self.reject_rate,
            "is_drift": self.is_drift,
            "many_rejects": self.many_rejects,
            "verdict": self.verdict,
        }


def compare(
    scores: ArrayLike,
    calibration: Calibration,
    reference: ArrayLike | None = None,
    significance: float = SIGNIFICANCE,
) -> Drift:
    """Recent scores (n,) against `reference` scores (m,), by default those of the calibration."""
    from scipy import stats

    recent = np.asarray(scores, np.float64)
    known = np.asarray(calibration.scores if reference is None else reference, np.float64)
    if not 0 < significance < 1:
        raise UserError(f"a significance lies between 0 and 1, not {significance}; for example 0.01")
    if recent.size == 0:
        raise UserError("there are no scores to look at: give images, or a table of scores")
    if known.size == 0:
        raise UserError("the model has no calibration scores to compare with: fit it on at least 2 images")
    limit = calibration.threshold
    rejected = int((recent > limit).sum())
    passing, known_passing = recent[recent <= limit], known[known <= limit]
    rate = calibration.expected_rate
    upward_only = reference is None and "cross-image" in calibration.method

    def p_value(ours: Doubles, theirs: Doubles) -> float:
        if not (ours.size and theirs.size):
            return 1.0
        # "less": our distribution function lies below theirs, so our scores lie above
        return float(stats.ks_2samp(ours, theirs, "less" if upward_only else "two-sided").pvalue)

    return Drift(
        n=recent.size,
        n_reference=known.size,
        threshold=limit,
        rejected=rejected,
        expected_rate=rate,
        median=float(np.median(passing)) if passing.size else float("nan"),
        reference_median=float(np.median(known_passing)) if known_passing.size else float("nan"),
        shift_p=p_value(passing, known_passing),
        all_p=p_value(recent, known),
        rejects_p=float(stats.binomtest(rejected, recent.size, rate, alternative="greater").pvalue),
        significance=significance,
        upward_only=upward_only,
    )
