"""The detector among scikit-learn's estimators."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer
from small_detector import vials

from mhpatchcore import Detector
from mhpatchcore.integrations.sklearn import PatchCoreDetector

SETTINGS = {"sizes": 64, "K": 200, "false_alarm": 0.1}


@pytest.fixture(scope="module")
def images() -> np.ndarray:
    """Good parts (12, H, W, 3), the last four turned into negatives."""
    good = np.stack(vials(0, 12))
    good[8:] = 255 - good[8:]
    return good


def test_it_says_what_the_detector_says(images: np.ndarray) -> None:
    estimator = PatchCoreDetector(**SETTINGS).fit(images[:8])
    plain = Detector.fit(images[:8], **SETTINGS)
    scores = [result.score for result in plain.score_many(images)]
    np.testing.assert_array_equal(estimator.score_samples(images), -np.array(scores))
    np.testing.assert_array_equal(
        estimator.decision_function(images) < 0, [score > plain.threshold for score in scores]
    )
    verdicts = [-1 if result.is_rejected else 1 for result in plain.score_many(images)]
    assert estimator.predict(images).tolist() == verdicts and verdicts[8:] == [-1] * 4


def test_it_is_cloned_and_stands_in_a_pipeline(images: np.ndarray) -> None:
    estimator = clone(PatchCoreDetector(**SETTINGS))
    assert {name: estimator.get_params()[name] for name in SETTINGS} == SETTINGS
    with pytest.raises(NotFittedError):
        estimator.predict(images)
    darker = FunctionTransformer(lambda X: X // 2)
    pipeline = make_pipeline(darker, estimator).fit(images[:8])
    by_hand = PatchCoreDetector(**SETTINGS).fit(images[:8] // 2).predict(images // 2)
    assert pipeline.predict(images).tolist() == by_hand.tolist()
    assert estimator.set_params(K=100).K == 100
