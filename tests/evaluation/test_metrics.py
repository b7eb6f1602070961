"""Image-level metrics agree with their definitions, and one-class data give NaN instead of an error."""

from __future__ import annotations

import math
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mhpatchcore.evaluation import metrics

two_class_data = st.lists(st.tuples(st.booleans(), st.integers(-5, 5)), min_size=2, max_size=40).filter(
    lambda rows: len({label for label, _ in rows}) == 2
)


def every_two_class_data(test):
    return settings(deadline=None)(given(two_class_data)(test))  # the first one imports scikit-learn


def split(rows):
    labels, scores = zip(*rows, strict=True)
    return np.array(labels), np.array(scores, dtype=np.float64)


def f1_at(labels, scores, threshold):
    called = scores >= threshold
    return 2 * np.sum(called & labels) / (np.sum(called) + np.sum(labels))


@every_two_class_data
def test_auroc_is_the_share_of_ordered_pairs(rows):
    labels, scores = split(rows)
    difference = scores[labels][:, None] - scores[~labels][None, :]
    assert metrics.auroc(labels, scores) == pytest.approx(np.mean((np.sign(difference) + 1) / 2))


@every_two_class_data
def test_average_precision_is_the_mean_precision_at_the_anomalous_images(rows):
    labels, scores = split(rows)
    precision = [labels[scores >= threshold].mean() for threshold in scores[labels]]
    assert metrics.average_precision(labels, scores) == pytest.approx(np.mean(precision))


@every_two_class_data
def test_f1_max_is_reached_at_its_threshold_and_is_the_best_of_all(rows):
    labels, scores = split(rows)
    best = metrics.f1_max(labels, scores)
    every = {threshold: f1_at(labels, scores, threshold) for threshold in scores}
    assert best.value == pytest.approx(max(every.values()))
    assert f1_at(labels, scores, best.threshold) == pytest.approx(best.value)


def test_f1_max_prefers_the_threshold_with_fewer_alarms():
    # Both 4 and 1 give F1 = 2/3: one of two defects and no false alarm, or both defects and two false alarms.
    best = metrics.f1_max([True, False, False, True], [4, 3, 2, 1])
    assert (best.value, best.threshold) == (pytest.approx(2 / 3), 4.0)


@every_two_class_data
def test_curves_run_from_end_to_end(rows):
    labels, scores = split(rows)
    curve = metrics.roc_curve(labels, scores)
    assert curve is not None
    false_positive_rate, true_positive_rate, thresholds = curve
    assert (false_positive_rate[0], true_positive_rate[0]) == (0, 0)
    assert (false_positive_rate[-1], true_positive_rate[-1]) == (1, 1)
    assert np.all(np.diff(thresholds) < 0)
    curve = metrics.precision_recall_curve(labels, scores)
    assert curve is not None
    precision, recall, thresholds = curve
    assert (recall[0], precision[-1], recall[-1]) == (1, 1, 0)
    assert np.all(np.diff(thresholds) > 0)
    assert len(precision) == len(recall) == len(thresholds) + 1


@every_two_class_data
def test_image_metrics_gathers_the_single_figures(rows):
    labels, scores = split(rows)
    assert metrics.image_metrics(labels, scores) == metrics.ImageMetrics(
        auroc=metrics.auroc(labels, scores),
        average_precision=metrics.average_precision(labels, scores),
        f1_max=metrics.f1_max(labels, scores).value,
        n_normal=int(np.sum(~labels)),
        n_anomalous=int(np.sum(labels)),
    )


@pytest.mark.parametrize("labels", [[], [True], [False], [True, True], [False, False]])
def test_one_class_gives_nan_and_no_curve(labels):
    scores = np.arange(len(labels), dtype=np.float64)
    figures = metrics.image_metrics(labels, scores)
    assert math.isnan(figures.auroc)
    assert math.isnan(figures.average_precision)
    assert math.isnan(figures.f1_max)
    assert math.isnan(metrics.f1_max(labels, scores).threshold)
    assert figures.n_normal + figures.n_anomalous == len(labels)
    assert metrics.roc_curve(labels, scores) is None
    assert metrics.precision_recall_curve(labels, scores) is None


@pytest.mark.parametrize("scores", [[1.0], [[1.0, 2.0]], 1.0])
def test_labels_and_scores_must_correspond(scores):
    with pytest.raises(ValueError, match="same length"):
        metrics.auroc([True, False], scores)


def test_macro_average_ignores_nan():
    assert metrics.macro_average([0.5, math.nan, 1.0]) == 0.75
    assert metrics.macro_average(value for value in (0.5, 1.0)) == 0.75
    assert math.isnan(metrics.macro_average([math.nan]))
    assert math.isnan(metrics.macro_average([]))


def test_image_weighted_mean_weighs_by_count_and_ignores_nan():
    assert metrics.image_weighted_mean([0.5, 1.0, math.nan], [3, 1, 100]) == 0.625
    assert math.isnan(metrics.image_weighted_mean([0.5], [0]))
    assert math.isnan(metrics.image_weighted_mean([], []))


def test_importing_stays_cheap():
    program = (
        "import sys, mhpatchcore.evaluation.metrics;sys.exit(bool({'sklearn', 'scipy'} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
