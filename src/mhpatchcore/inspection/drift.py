"""Has the line changed? Recent images against those that the model has learnt from, by their scores and by the camera.

**Scores.** Production holds defects too, so a plain comparison would call every bad batch a drift. Compared are the
images that pass, with the reference images that pass, by the two-sample Kolmogorov–Smirnov test: whatever happens to
good parts (light, focus, a new supplier) moves them. If most images are rejected there is little left to compare, and
that alone is a drift. How many are rejected is a question of its own, answered by the binomial test against the rate
that the threshold promises.

Cross-image calibration scores are those of images whose own rows are taken out of the bank, with nothing put in their
place. Images from the line meet the whole bank and score a little lower, so against such a reference only a shift up
means anything; a reference of images that the model has not learnt from shows both.

**The camera.** Scores hardly move while a lamp fades or a fixture slips, until good parts are rejected. The images
show it earlier, and show what it is. A measure has changed if the two groups differ by more than chance
(Mann–Whitney; with m measures each is tested at 1/m of the significance), the median of the recent images lies outside
of the middle 80 % of the learnt ones, and it has moved by a share that matters (MATTERS).
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from mhpatchcore.calibration.threshold import Calibration
from mhpatchcore.errors import UserError
from mhpatchcore.inputs.loading import MEASURES
from mhpatchcore.inspection.evidence import training_file
from mhpatchcore.model.value import Model
from mhpatchcore.runtime.arrays import Doubles

SIGNIFICANCE = 0.01
MOST = 0.5
MIDDLE = (0.1, 0.9)
# of each measure the share of the learnt median by which one must move (a part in the middle of 400 pixels moves by 4),
# and what less of it and more of it is called
MATTERS = {
    "brightness": (0.03, "darker", "brighter"),
    "contrast": (0.05, "less contrast", "more contrast"),
    "sharpness": (0.1, "less sharp", "sharper"),
    "noise": (0.2, "less noise", "more noise"),
    "red": (0.02, "less red", "more red"),
    "blue": (0.02, "less blue", "more blue"),
    "part_x": (0.02, "left", "right"),
    "part_y": (0.02, "up", "down"),
}
MOST_REFERENCES = 1000  # more of them say no more, and take time
KNOWN = 0.9  # of the images on both sides must have a measure, or there is nothing to say


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
        derived = ("reject_rate", "is_drift", "many_rejects", "verdict")
        return asdict(self) | {name: getattr(self, name) for name in derived}


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


@dataclass(frozen=True)
class Change:
    """A measure that has changed: its medians, and the p-value of the comparison."""

    measure: str
    reference: float
    recent: float
    p: float

    @property
    def words(self) -> str:
        """
        >>> Change("brightness", 160, 136, 1e-9).words, Change("part_x", 200, 190, 1e-9).words
        ('15 % darker', 'the part lies 10 px further left')
        """
        by = self.recent - self.reference
        what = MATTERS[self.measure][1 + (by > 0)]
        if self.measure in ("part_x", "part_y"):
            return f"the part lies {abs(by):.0f} px further {what}"
        return f"{abs(by) / self.reference:.0%} {what}".replace("%", " %", 1)


@dataclass(frozen=True)
class CameraDrift:
    """What comparing n images with n_reference learnt ones says."""

    n: int
    n_reference: int
    changes: tuple[Change, ...]

    @property
    def is_drift(self) -> bool:
        return bool(self.changes)

    @property
    def verdict(self) -> str:
        if not self.n:
            return "nothing was measured of the images"
        changes = ", ".join(change.words for change in self.changes)
        return (
            f"the images have changed: {changes}" if changes else "the images look as those that were learnt"
        )

    def to_json(self) -> dict[str, Any]:
        changes = [asdict(change) | {"words": change.words} for change in self.changes]
        return {**asdict(self), "changes": changes, "is_drift": self.is_drift, "verdict": self.verdict}


def camera_drift(recent: ArrayLike, reference: ArrayLike, significance: float = SIGNIFICANCE) -> CameraDrift:
    """The MEASURES of recent images (n, m) against those of learnt ones (N, m); NaN is unknown."""
    tables = (np.asarray(rows, np.float64).reshape(-1, len(MEASURES)) for rows in (recent, reference))
    ours, theirs = (rows[np.isfinite(rows).any(axis=1)] for rows in tables)
    theirs = theirs[:: -(-len(theirs) // MOST_REFERENCES) or 1]
    changes = []
    for name, new, old in zip(MEASURES, ours.T, theirs.T, strict=True):
        changes += _changes(name, new, old, significance / len(MEASURES))
    return CameraDrift(len(ours), len(theirs), tuple(changes))


def _changes(name: str, recent: Doubles, reference: Doubles, significance: float) -> list[Change]:
    """The change of one measure, or nothing."""
    from scipy import stats

    new, old = (values[np.isfinite(values)] for values in (recent, reference))
    if not len(new) or not len(old) or len(new) < KNOWN * len(recent) or len(old) < KNOWN * len(reference):
        return []
    now, (low, then, high) = float(np.median(new)), np.quantile(old, (MIDDLE[0], 0.5, MIDDLE[1]))
    if low <= now <= high or abs(now - then) < MATTERS[name][0] * abs(then):
        return []
    p = float(stats.mannwhitneyu(new, old).pvalue)
    return [Change(name, float(then), now, p)] if p < significance else []


def typical_file(model: Model) -> Path | None:
    """The file of a typical learnt image: that nearest to all medians. None if it is not where it was."""
    every = model.measures.astype(np.float64)
    known = every[:, np.isfinite(every).any(axis=0)]
    apart = np.abs(known - np.nanmedian(known, axis=0))
    away = (apart / np.maximum(np.nanmedian(apart, axis=0), 1e-9)).sum(axis=1)
    image = int(np.where(np.isfinite(away), away, np.inf).argmin())
    return training_file(model, image, [Path(event.source) for event in model.history])
