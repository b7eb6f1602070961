"""Image-level metrics: how well one score per image separates anomalous images from normal ones.

Every metric takes `labels` (n,) bool, True for anomalous, and `scores` (n,) float, larger for more anomalous.
An image is called anomalous when score >= threshold. Where only one class is present nothing can be measured:
numbers are NaN and curves are None.

>>> labels = [False, False, True, True]
>>> scores = [0.1, 0.4, 0.35, 0.8]
>>> image_metrics(labels, scores)
ImageMetrics(auroc=0.75, average_precision=0.833..., f1_max=0.8, n_normal=2, n_anomalous=2)
>>> auroc([False, False], [0.1, 0.4])
nan
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray


@dataclass(frozen=True)
class ImageMetrics:
    """The image-level figures of one category; the first three are NaN where only one class is present."""

    auroc: float
    average_precision: float
    f1_max: float
    n_normal: int
    n_anomalous: int


@dataclass(frozen=True)
class F1Max:
    """The best F1 over all thresholds, and the threshold that reaches it."""

    value: float
    threshold: float


@dataclass(frozen=True, eq=False)
class RocCurve:
    """Points (k,) from (0, 0) to (1, 1) at falling thresholds, of which the first is infinite."""

    false_positive_rate: NDArray[np.float64]
    true_positive_rate: NDArray[np.float64]
    thresholds: NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class PrecisionRecallCurve:
    """Precision and recall (k + 1,) at rising thresholds (k,), closed by the point precision 1, recall 0."""

    precision: NDArray[np.float64]
    recall: NDArray[np.float64]
    thresholds: NDArray[np.float64]


def image_metrics(labels: ArrayLike, scores: ArrayLike) -> ImageMetrics:
    """All image-level figures of labels (n,) and scores (n,)."""
    is_anomalous, score = _checked(labels, scores)
    n_anomalous = int(is_anomalous.sum())
    return ImageMetrics(
        auroc=auroc(is_anomalous, score),
        average_precision=average_precision(is_anomalous, score),
        f1_max=f1_max(is_anomalous, score).value,
        n_normal=is_anomalous.size - n_anomalous,
        n_anomalous=n_anomalous,
    )


def auroc(labels: ArrayLike, scores: ArrayLike) -> float:
    """The chance that an anomalous image scores above a normal one, ties counting half."""
    is_anomalous, score = _checked(labels, scores)
    if not _has_both_classes(is_anomalous):
        return math.nan
    from sklearn.metrics import roc_auc_score

    return float(roc_auc_score(is_anomalous, score))


def auroc_error(labels: ArrayLike, scores: ArrayLike, draws: int = 500, seed: int = 0) -> float:
    """The sampling error of AUROC: its standard deviation over bootstrap draws of the normal and the anomalous images.

    >>> auroc_error([False, True] * 50, [0.0, 1.0] * 50)
    0.0
    """
    is_anomalous, score = _checked(labels, scores)
    if not _has_both_classes(is_anomalous):
        return math.nan
    pairs = (np.sign(score[is_anomalous][:, None] - score[~is_anomalous]) + 1) / 2
    rows, columns = pairs.shape
    rng = np.random.default_rng(seed)
    drawn = (
        pairs[rng.integers(rows, size=rows)][:, rng.integers(columns, size=columns)].mean()
        for _ in range(draws)
    )
    return float(np.std(list(drawn), ddof=1))


def average_precision(labels: ArrayLike, scores: ArrayLike) -> float:
    """Precision averaged over the recall steps, Σ (Rₖ - Rₖ₋₁) Pₖ, without interpolation."""
    is_anomalous, score = _checked(labels, scores)
    if not _has_both_classes(is_anomalous):
        return math.nan
    from sklearn.metrics import average_precision_score

    return float(average_precision_score(is_anomalous, score))


def f1_max(labels: ArrayLike, scores: ArrayLike) -> F1Max:
    """The best F1 = 2 TP / (2 TP + FP + FN); of equally good thresholds the highest, which alarms least.

    >>> f1_max([False, False, True, True], [0.1, 0.4, 0.35, 0.8])
    F1Max(value=0.8, threshold=0.35)
    """
    is_anomalous, score = _checked(labels, scores)
    curve = roc_curve(is_anomalous, score)
    if curve is None:
        return F1Max(math.nan, math.nan)
    n_anomalous = np.count_nonzero(is_anomalous)
    # Whole counts, so that equal ratios compare equal and the choice of threshold is not left to rounding.
    tp = np.rint(curve.true_positive_rate * n_anomalous)
    fp = np.rint(curve.false_positive_rate * (is_anomalous.size - n_anomalous))
    f1 = 2 * tp / (tp + fp + n_anomalous)
    best = int(np.argmax(f1))
    return F1Max(float(f1[best]), float(curve.thresholds[best]))


def roc_curve(labels: ArrayLike, scores: ArrayLike) -> RocCurve | None:
    """The ROC curve without the points that lie on a straight line between their neighbours."""
    is_anomalous, score = _checked(labels, scores)
    if not _has_both_classes(is_anomalous):
        return None
    from sklearn.metrics import roc_curve as sklearn_roc_curve

    return RocCurve(*sklearn_roc_curve(is_anomalous, score))


def precision_recall_curve(labels: ArrayLike, scores: ArrayLike) -> PrecisionRecallCurve | None:
    """Precision and recall at every distinct score."""
    is_anomalous, score = _checked(labels, scores)
    if not _has_both_classes(is_anomalous):
        return None
    from sklearn.metrics import precision_recall_curve as sklearn_precision_recall_curve

    return PrecisionRecallCurve(*sklearn_precision_recall_curve(is_anomalous, score))


def macro_average(values: Iterable[float]) -> float:
    """The plain mean of the values that are not NaN: every category counts the same.

    >>> macro_average([0.9, 0.7, float("nan")])
    0.8
    """
    value = np.fromiter(values, dtype=np.float64)
    return image_weighted_mean(value, np.ones(value.size))


def image_weighted_mean(values: ArrayLike, counts: ArrayLike) -> float:
    """The mean of values (k,) weighted by image counts (k,); a NaN value is left out with its count.

    >>> image_weighted_mean([0.9, 0.6, float("nan")], [200, 100, 50])
    0.8
    """
    value, count = np.asarray(values, dtype=np.float64), np.asarray(counts, dtype=np.float64)
    if value.shape != count.shape or value.ndim != 1:
        raise ValueError(f"values {value.shape} and counts {count.shape} must be vectors of the same length")
    known = ~np.isnan(value)
    total = count[known].sum()
    return float(value[known] @ count[known] / total) if total > 0 else math.nan


def _checked(labels: ArrayLike, scores: ArrayLike) -> tuple[NDArray[np.bool_], NDArray[np.float64]]:
    is_anomalous, score = np.asarray(labels, dtype=bool), np.asarray(scores, dtype=np.float64)
    if is_anomalous.shape != score.shape or score.ndim != 1:
        raise ValueError(
            f"labels {is_anomalous.shape} and scores {score.shape} must be vectors of the same length"
        )
    return is_anomalous, score


def _has_both_classes(is_anomalous: NDArray[np.bool_]) -> bool:
    return bool(is_anomalous.any() and not is_anomalous.all())
