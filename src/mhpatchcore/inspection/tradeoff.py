"""What a threshold costs and what it finds: false alarms against a few known defects."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from mhpatchcore.calibration.conformal import Calibration
from mhpatchcore.errors import UserError
from mhpatchcore.runtime.arrays import Floats


@dataclass(frozen=True)
class Tradeoff:
    """At a rate of false alarms: the threshold, and the share of the defects that exceed it."""

    false_alarm: float
    threshold: float
    found: float


def tradeoffs(calibration: Calibration, defects: Floats, rates: Iterable[float]) -> list[Tradeoff]:
    """For scores (n,) of known defects, at those of the rates that the calibration supports."""
    thresholds = {rate: calibration.at_rate(rate) for rate in rates}
    return [
        Tradeoff(rate, one.threshold, float(np.mean(defects > one.threshold)))
        for rate, one in thresholds.items()
        if one.supported_rate == rate
    ]


def rate_that_finds(calibration: Calibration, defects: Floats, share: float) -> float:
    """The smallest rate of false alarms at which that share of the defects is found.

    >>> from mhpatchcore.calibration.conformal import calibrate
    >>> scores = np.arange(1, 100, dtype=np.float32)
    >>> round(rate_that_finds(calibrate(scores, scores, 0.01, "held-out"), np.array([90.5, 97.5, 120.0]), 0.6), 3)
    0.03
    """
    n = calibration.n
    steps = [k / (n + 1) for k in range(1, n + 1)]
    for step in tradeoffs(calibration, defects, steps):
        if step.found >= share:
            return step.false_alarm
    raise UserError(
        f"no threshold of this model finds {share:.0%} of these defects: they score like good parts; "
        "ask for fewer, or look at what they are compared with"
    )
