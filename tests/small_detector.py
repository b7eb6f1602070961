"""A detector that is fitted within a second, for tests that need one but not a good one."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np

from mhpatchcore import Config, Detector
from mhpatchcore.calibration.conformal import calibrate
from mhpatchcore.demo.dataset import vial_image

PIXELS = 64


@cache
def small_detector(**settings: Any) -> Detector:
    normals = [vial_image(seed, pixels=PIXELS)[0] for seed in range(8)]
    return Detector.fit(normals, Config(size=96, K=200).with_changes(**settings))


def with_threshold(detector: Detector, threshold: float) -> Detector:
    """The same detector with another threshold, for images and pixels alike; infinity is none at all."""
    scores = np.array([threshold] if np.isfinite(threshold) else [], np.float32)
    return replace(detector, calibration=calibrate(scores, scores, 0.5, "cross-image"))
