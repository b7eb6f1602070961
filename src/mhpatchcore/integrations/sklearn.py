"""The detector as an estimator of scikit-learn: in pipelines, searches and everything that takes an outlier detector.

from mhpatchcore.integrations.sklearn import PatchCoreDetector

inliers = PatchCoreDetector(false_alarm="1%").fit(good).predict(new) == 1
"""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator, OutlierMixin
from sklearn.utils.validation import check_is_fitted

from mhpatchcore.detector import Detector
from mhpatchcore.inputs.sources import Images
from mhpatchcore.runtime.arrays import Doubles, Indices


class PatchCoreDetector(OutlierMixin, BaseEstimator):  # type: ignore[misc]  # scikit-learn has no types
    """Learns from images of good parts. X is whatever `Detector.fit` takes: paths, arrays (N, H, W, 3), a folder.

    As everywhere in scikit-learn, high values are normal: `score_samples` is the detector's score with its sign turned.
    `detector_` is the detector itself.

    Parameters
    ----------
    preset, backbone, sizes, K, roi, false_alarm, seed, workers
        As in `Detector.fit`; None is its default.
    """

    def __init__(
        self,
        *,
        preset: str | None = None,
        backbone: str | None = None,
        sizes: Any = None,
        K: int | None = None,
        roi: Any = None,
        false_alarm: float | str | None = None,
        seed: int | None = None,
        workers: int | None = None,
    ) -> None:
        self.preset = preset
        self.backbone = backbone
        self.sizes = sizes
        self.K = K
        self.roi = roi
        self.false_alarm = false_alarm
        self.seed = seed
        self.workers = workers

    def __sklearn_tags__(self) -> Any:
        """X are images, not rows of a table."""
        tags = super().__sklearn_tags__()
        tags.input_tags.two_d_array, tags.input_tags.three_d_array = False, True
        tags.input_tags.string = True
        return tags

    def fit(self, X: Images, y: object = None) -> Self:
        """Learn from images of good parts; y is not used."""
        self.detector_ = Detector.fit(X, **self.get_params())
        self.offset_ = -self.detector_.threshold
        return self

    def score_samples(self, X: Images) -> Doubles:
        """How normal each image is (n,): its score with the sign turned."""
        check_is_fitted(self)
        return np.array([-result.score for result in self.detector_.score_many(X, self.workers)])

    def decision_function(self, X: Images) -> Doubles:
        """How far each image is on the good side of the threshold (n,); negative values are rejected."""
        return self.score_samples(X) - self.offset_

    def predict(self, X: Images) -> Indices:
        """1 for images that pass, −1 for those that are rejected (n,)."""
        check_is_fitted(self)
        verdicts = [result.is_rejected for result in self.detector_.score_many(X, self.workers)]
        return np.where(verdicts, -1, 1)
