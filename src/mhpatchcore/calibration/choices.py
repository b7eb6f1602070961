"""What there is to choose from: rates of false alarms, their thresholds, and what each finds of known defects."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from mhpatchcore.calibration.threshold import Calibration
from mhpatchcore.errors import UserError
from mhpatchcore.runtime.arrays import Floats

USUAL_RATES = (0.005, 0.01, 0.02, 0.05)
FEW = 20  # images, with which the threshold lies higher than it will with more
LONG_TAIL = 1.25  # times the threshold at the largest usual rate
MUCH_MORE = 0.1  # of the defects, which another rate would find
BY_CHANCE = 0.01  # how often as many good parts would be rejected, or as few


@dataclass(frozen=True)
class Choice:
    """A rate of false alarms, its threshold, how many of `of` known defects exceed it, and whether it is in use."""

    false_alarm: float
    threshold: float
    found: int | None
    of: int | None
    in_use: bool


def choices(
    calibration: Calibration,
    defects: Sequence[float] | Floats | None = None,
    rates: Sequence[float] = USUAL_RATES,
) -> list[Choice]:
    """The choices at some rates and at the one in use, smallest rate first; `defects` are scores of known ones."""
    if calibration.n == 0:
        return []
    in_use = calibration.false_alarm if calibration.by_hand is None else calibration.expected_rate
    thresholds = {rate: calibration.at_rate(rate).threshold for rate in rates} | {
        in_use: calibration.threshold
    }
    scores = None if defects is None else np.asarray(defects, np.float64)
    offered = []
    for rate, threshold in sorted(thresholds.items()):
        found, of = (None, None) if scores is None else (int((scores > threshold).sum()), len(scores))
        offered.append(Choice(rate, threshold, found, of, rate == in_use))
    return offered


def better_choice(offered: Sequence[Choice]) -> Choice | None:
    """The choice that finds many more defects than the one in use at a larger rate; None where none does."""
    used = next((one for one in offered if one.in_use), None)
    if used is None or not used.of:
        return None
    enough = (used.found or 0) + MUCH_MORE * used.of
    more = [one for one in offered if one.false_alarm > used.false_alarm and (one.found or 0) > enough]
    return max(more, key=lambda one: one.found or 0, default=None)


def cautions(calibration: Calibration, odd: Mapping[str, float]) -> list[str]:
    """What to know before relying on the threshold: few images, `odd` ones by name with their scores, a long tail."""
    found = []
    if 0 < calibration.n < FEW and calibration.by_hand is None:
        images = "a single image" if calibration.n == 1 else f"{calibration.n} images"
        found.append(
            f"{images} tell little of how good parts vary, so the threshold lies high; more of them bring it down"
        )
    if odd:
        names = ", ".join(name or "an image that was not learnt" for name in list(odd)[:3])
        more = f" and {len(odd) - 3} more" if len(odd) > 3 else ""
        found.append(
            f"{names}{more}: far beyond all others ({max(odd.values()):.4g}), so parts like it are rejected; "
            "if it is a good part, give more like it, if not, take it out"
        )
    usual = USUAL_RATES[-1]
    if calibration.n > 0 and calibration.threshold > LONG_TAIL * calibration.at_rate(usual).threshold:
        found.append(
            f"the tail is long: at {share(usual)} the threshold would be {calibration.at_rate(usual).threshold:.4g}; "
            "more good parts like the oddest ones bring it down"
        )
    return found


def realised_note(calibration: Calibration, rejected: int, good: int) -> str:
    """A sentence where so many of some good parts are rejected, or so few, that chance does not explain it; or none.

    >>> from mhpatchcore.calibration.threshold import calibrate
    >>> scores = np.arange(1, 200, dtype=np.float32)
    >>> realised_note(calibrate(scores, scores, 0.05, "held-out"), 3, 28)
    ''
    >>> realised_note(calibrate(scores, scores, 0.05, "held-out"), 9, 28).split(":")[0]
    '9 of 28 good parts are rejected, where about 5% were expected'
    """
    from scipy.stats import betabinom

    if calibration.n == 0 or good == 0:
        return ""
    expected = betabinom(good, *calibration.belief)
    if expected.sf(rejected - 1) < BY_CHANCE:
        why = "they are unlike the images of the threshold; calibrate with further good parts like them"
    elif expected.cdf(rejected) < BY_CHANCE:
        why = "the images of the threshold vary more than these; a larger rate would find more defects"
    else:
        return ""
    about = share(calibration.expected_rate)
    return f"{rejected} of {good} good parts are rejected, where about {about} were expected: {why}"


def share(rate: float) -> str:
    """A rate as a user would type it.

    >>> share(0.02), share(0.005), share(0.0137), share(0.00012), share(1.0)
    ('2%', '0.5%', '1.4%', '0.012%', '100%')
    """
    return f"{100 * rate:.2g}%" if rate < 0.995 else f"{100 * rate:.3g}%"


def rate_that_finds(calibration: Calibration, defects: Floats, share: float) -> float:
    """The smallest rate of false alarms, in steps of a tenth of a percent, at which that share of defects is found.

    >>> from mhpatchcore.calibration.threshold import calibrate
    >>> scores = np.arange(1, 100, dtype=np.float32)
    >>> rate_that_finds(calibrate(scores, scores, 0.01, "held-out"), np.array([70.5, 87.5, 120.0]), 0.6)
    0.097
    """
    for step in range(1, 1000):
        if float(np.mean(defects > calibration.at_rate(step / 1000).threshold)) >= share:
            return step / 1000
    raise UserError(
        f"no threshold of this model finds {share:.0%} of these defects: they score like good parts; "
        "ask for fewer, or look at what they are compared with"
    )
