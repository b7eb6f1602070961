"""A detector that is fitted within a second, for tests that need one but not a good one."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np

from mhpatchcore import Config, Detector
from mhpatchcore.calibration.threshold import calibrate
from mhpatchcore.demo.dataset import vial_image

PIXELS = 64


@cache
def small_detector(**settings: Any) -> Detector:
    return Detector.fit(vials(0, 8), Config(sizes=96, K=200, augment="none").with_changes(**settings))  # type: ignore[arg-type]


def vials(first: int, n: int, pixels: int = PIXELS) -> list[np.ndarray]:
    """Pictures of good parts, by their seeds."""
    return [vial_image(seed, pixels=pixels)[0] for seed in range(first, first + n)]


def with_changes(detector: Detector, **changes: Any) -> Detector:
    """The same detector, but for some fields of its model."""
    return Detector(replace(detector.model, **changes))


def with_threshold(detector: Detector, threshold: float) -> Detector:
    """The same detector with another threshold, for images and pixels alike; infinity is none at all."""
    scores = np.array([threshold] if np.isfinite(threshold) else [], np.float32)
    return with_changes(
        detector,
        config=detector.config.with_changes(false_alarm=0.5),
        calibration=calibrate(scores, scores, 0.5, "cross-image"),
    )
