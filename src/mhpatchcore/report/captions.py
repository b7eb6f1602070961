"""What stands under a picture of a result: the verdict, and what its colours and outlines mean.

There are two thresholds. The image score decides the verdict, by the image threshold. The pixel threshold belongs to
the map and decides nothing but what is coloured and outlined.
"""

from __future__ import annotations

from math import isfinite

from mhpatchcore.report.wording import number
from mhpatchcore.result import PEAK_SHARE, Result


def verdict_line(result: Result) -> str:
    """The verdict, and the numbers behind it."""
    score = f"score {number(result.score)}"
    if not isfinite(result.threshold):
        return f"{result.verdict}: {score}"
    side = "not above" if result.score <= result.threshold else "above"
    threshold = f"the image threshold {number(result.threshold)}"
    name = f", {'like a known ' * result.is_like_known}{result.defect}" if result.defect else ""
    return f"{result.verdict}{name}: {score}, {side} {threshold} (p-value {result.p_value:.2g})"


def outline_note(result: Result) -> str:
    """What is outlined: the map above the pixel threshold, or on an rejected image above less."""
    threshold = f"the pixel threshold {number(result.pixel_threshold)}"
    if result.mask_limit < result.pixel_threshold:
        share = f"the map above {number(result.mask_limit)}, which is {100 * PEAK_SHARE:.0f} % of its peak"
        return f"{share} ({threshold} lies higher)" if isfinite(result.pixel_threshold) else share
    if not isfinite(result.pixel_threshold):
        return "nothing: the model has no pixel threshold"
    return f"the map above {threshold}" if result.mask.any() else f"nothing: the map stays below {threshold}"


def heat_unit(result: Result) -> float:
    """What colours are told in: the pixel threshold or, for a model that has none, the peak of the map."""
    threshold = result.pixel_threshold
    return threshold if isfinite(threshold) and threshold > 0 else max(result.peak, 1e-12)


def heat_unit_name(result: Result) -> str:
    return "pixel threshold" if heat_unit(result) == result.pixel_threshold else "peak of this map"
