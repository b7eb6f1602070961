"""The detector among scikit-learn's estimators."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer
from sklearn.utils import estimator_checks as checks
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


@pytest.mark.parametrize(
    "name",
    [
        *(
            "estimator_cloneable",
            "estimator_repr",
            "estimator_tags_renamed",
            "get_params_invariance",
            "mixin_order",
        ),
        *("no_attributes_set_in_init", "parameters_default_constructible", "set_params", "valid_tag_types"),
    ],
)
def test_scikit_learns_own_checks_of_what_needs_no_table(name: str) -> None:
    """The others feed rows of numbers, which are no images. Older versions have fewer."""
    check = getattr(checks, f"check_{name}", None)
    if check is None:
        pytest.skip("this version of scikit-learn has no such check")
    check("PatchCoreDetector", PatchCoreDetector())


def test_a_search_over_parameters(images: np.ndarray) -> None:
    truth = np.array([1] * 8 + [-1] * 4)
    folds = [(np.arange(8), np.arange(12))]  # learns from good parts alone
    search = GridSearchCV(
        PatchCoreDetector(sizes=64, K=100), {"false_alarm": [0.1, 0.2]}, cv=folds, scoring="balanced_accuracy"
    ).fit(images, truth)
    assert search.best_score_ > 0.8 and search.best_params_["false_alarm"] in (0.1, 0.2)
