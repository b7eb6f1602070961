"""Has the camera changed? What recent images measure against what those that the model has learnt from did.

Scores hardly move while a lamp fades or a fixture slips, until good parts are rejected. The images themselves tell it
earlier, and tell what it is. A measure has changed if all of this holds:

- The two groups differ by more than chance (Mann–Whitney). With m measures each is tested at 1/m of the significance,
  so that unchanged images are called changed no more often than it says.
- The median of the recent images lies outside of the middle 80 % of the learnt ones: a model has learnt what lies
  within.
- The median has moved by a share that matters (LEAST).

Medians do not mind some defects among the recent images.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from mhpatchcore.inputs.camera import MEASURES
from mhpatchcore.inspection.drift import SIGNIFICANCE
from mhpatchcore.inspection.evidence import training_file
from mhpatchcore.model.value import Model
from mhpatchcore.runtime.arrays import Doubles

MIDDLE = (0.1, 0.9)
# the share of the learnt median by which one must move; a part in the middle of 400 pixels moves by 4
LEAST = dict(zip(MEASURES, (0.03, 0.05, 0.1, 0.2, 0.02, 0.02, 0.02, 0.02), strict=True))
LESS_AND_MORE = {
    "brightness": ("darker", "brighter"),
    "contrast": ("less contrast", "more contrast"),
    "sharpness": ("less sharp", "sharper"),
    "noise": ("less noise", "more noise"),
    "red": ("less red", "more red"),
    "blue": ("less blue", "more blue"),
    "part_x": ("left", "right"),
    "part_y": ("up", "down"),
}
MOST_REFERENCES = 1000  # more of them say no more, and take time
KNOWN = 0.9  # of the images on both sides must have a measure, or there is nothing to say


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
        what = LESS_AND_MORE[self.measure][by > 0]
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
    ours, theirs = (_measured(rows) for rows in (recent, reference))
    theirs = theirs[:: -(-len(theirs) // MOST_REFERENCES) or 1]
    found = []
    for name, new, old in zip(MEASURES, ours.T, theirs.T, strict=True):
        change = _change(name, new, old, significance / len(MEASURES))
        found += [] if change is None else [change]
    return CameraDrift(len(ours), len(theirs), tuple(found))


def typical_file(model: Model) -> Path | None:
    """The file of a typical learnt image: that nearest to all medians. None if it is not where it was."""
    every = model.measures.astype(np.float64)
    known = every[:, np.isfinite(every).any(axis=0)]
    apart = np.abs(known - np.nanmedian(known, axis=0))
    away = (apart / np.maximum(np.nanmedian(apart, axis=0), 1e-9)).sum(axis=1)
    image = int(np.where(np.isfinite(away), away, np.inf).argmin())
    return training_file(model, image, [Path(event.source) for event in model.history])


def _measured(rows: ArrayLike) -> Doubles:
    """The images of which anything is known."""
    every = np.asarray(rows, np.float64).reshape(-1, len(MEASURES))
    return every[np.isfinite(every).any(axis=1)]


def _change(name: str, recent: Doubles, reference: Doubles, significance: float) -> Change | None:
    from scipy import stats

    new, old = (values[np.isfinite(values)] for values in (recent, reference))
    if not len(new) or not len(old) or len(new) < KNOWN * len(recent) or len(old) < KNOWN * len(reference):
        return None
    now, (low, then, high) = float(np.median(new)), np.quantile(old, (MIDDLE[0], 0.5, MIDDLE[1]))
    if low <= now <= high or abs(now - then) < LEAST[name] * abs(then):
        return None
    p = float(stats.mannwhitneyu(new, old).pvalue)
    return Change(name, float(then), now, p) if p < significance else None
