"""Metrics of images and of pixels: how well scores separate what is anomalous from what is normal.

Image-level metrics take `labels` (n,) bool, True for anomalous, and `scores` (n,) float, larger for more anomalous. An
image is called anomalous when score >= threshold. Where only one class is present nothing can be measured: numbers are
NaN and curves are None.

>>> image_metrics([False, False, True, True], [0.1, 0.4, 0.35, 0.8])
ImageMetrics(auroc=0.75, average_precision=0.833..., f1_max=0.8, n_normal=2, n_anomalous=2)
>>> auroc([False, False], [0.1, 0.4])
nan

Pixel-level metrics are streamed image by image, in memory that never grows. Pixels are counted in a fixed number of
bins over the bit patterns of their float32 scores, as fine as the range of the scores allows: in a narrow one every
float32 number has its own bin, and in any range the scores of a bin differ by less than 0.1 %; their order is lost.
Three sums per bin give the metrics: normal pixels, anomalous pixels, and anomalous pixels weighted by 1 / area of their
region. The last yields the per-region overlap, the mean over regions of their true positive rates, without keeping any
region.

>>> mask = np.zeros((4, 4), dtype=bool)
>>> mask[1:3, 1:3] = True
>>> PixelMetrics().update(np.where(mask, 2.0, 1.0), mask).result()
PixelScores(auroc=1.0, average_precision=1.0, aupro=1.0, n_images=1, n_regions=1)
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from math import nan
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from mhpatchcore.runtime.arrays import Doubles

FPR_LIMIT = 0.3  # AUPRO integrates up to this false positive rate, as the MVTec evaluation does
BINS = 1 << 20
Curve = tuple[Doubles, Doubles, Doubles]


@dataclass(frozen=True)
class ImageMetrics:
    """The image-level figures of one category; the first three are NaN where only one class is present."""

    auroc: float
    average_precision: float
    f1_max: float
    n_normal: int
    n_anomalous: int


@dataclass(frozen=True)
class PixelScores:
    """Pixel-level figures; the first three are NaN without both normal and anomalous pixels."""

    auroc: float
    average_precision: float
    aupro: float
    n_images: int
    n_regions: int


class F1Max(NamedTuple):
    """The best F1 over all thresholds, and the threshold that reaches it."""

    value: float
    threshold: float


def image_metrics(labels: ArrayLike, scores: ArrayLike) -> ImageMetrics:
    """All image-level figures of labels (n,) and scores (n,)."""
    figures = auroc(labels, scores), average_precision(labels, scores), f1_max(labels, scores).value
    n_anomalous = int(np.count_nonzero(labels))
    return ImageMetrics(*figures, np.size(labels) - n_anomalous, n_anomalous)


def auroc(labels: ArrayLike, scores: ArrayLike) -> float:
    """The chance that an anomalous image scores above a normal one, ties counting half."""
    value = _of_both_classes("roc_auc_score", labels, scores)
    return nan if value is None else float(value)


def average_precision(labels: ArrayLike, scores: ArrayLike) -> float:
    """Precision averaged over the recall steps, Σ (Rₖ - Rₖ₋₁) Pₖ, without interpolation."""
    value = _of_both_classes("average_precision_score", labels, scores)
    return nan if value is None else float(value)


def f1_max(labels: ArrayLike, scores: ArrayLike) -> F1Max:
    """The best F1 = 2 TP / (2 TP + FP + FN); of equally good thresholds the highest, which alarms least.

    >>> f1_max([False, False, True, True], [0.1, 0.4, 0.35, 0.8])
    F1Max(value=0.8, threshold=0.35)
    """
    curve = roc_curve(labels, scores)
    if curve is None:
        return F1Max(nan, nan)
    false_positive_rate, true_positive_rate, thresholds = curve
    n_anomalous = np.count_nonzero(labels)
    # Whole counts, so that equal ratios compare equal and the choice of threshold is not left to rounding.
    tp = np.rint(true_positive_rate * n_anomalous)
    fp = np.rint(false_positive_rate * (np.size(labels) - n_anomalous))
    f1 = 2 * tp / (tp + fp + n_anomalous)
    best = int(np.argmax(f1))
    return F1Max(float(f1[best]), float(thresholds[best]))


def roc_curve(labels: ArrayLike, scores: ArrayLike) -> Curve | None:
    """False and true positive rates (k,) from (0, 0) to (1, 1) at falling thresholds, of which the first is infinite.

    Points on a straight line between their neighbours are left out.
    """
    curve: Curve | None = _of_both_classes("roc_curve", labels, scores)
    return curve


def precision_recall_curve(labels: ArrayLike, scores: ArrayLike) -> Curve | None:
    """Precision and recall (k + 1,) at rising thresholds (k,), closed by the point precision 1, recall 0."""
    curve: Curve | None = _of_both_classes("precision_recall_curve", labels, scores)
    return curve


def _of_both_classes(name: str, labels: ArrayLike, scores: ArrayLike) -> Any:
    """A metric of scikit-learn; None if there are images of one class alone."""
    from sklearn import metrics

    is_anomalous, score = np.asarray(labels, dtype=bool), np.asarray(scores, dtype=np.float64)
    if is_anomalous.shape != score.shape or score.ndim != 1:
        raise ValueError(f"labels {is_anomalous.shape}, scores {score.shape}: not vectors of the same length")
    return getattr(metrics, name)(is_anomalous, score) if 0 < is_anomalous.sum() < is_anomalous.size else None


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
    known = ~np.isnan(value)
    total = count[known].sum()
    return float(value[known] @ count[known] / total) if total > 0 else nan


class PixelMetrics:
    """Counts the pixels of one image after another; `result` gives AUROC, average precision and AUPRO.

    A bin holds the scores whose keys agree but for the last `_shift` bits; the first bin is number `_first`.
    """

    def __init__(self) -> None:
        self._n_images = self._n_regions = 0
        self._range = (2**32, 0)
        self._shift = self._first = 0
        # normal pixels, anomalous ones, and these by the size of their regions
        self._bins = np.zeros((3, BINS))

    def update(self, anomaly_map: ArrayLike, mask: ArrayLike) -> Self:
        """Count one image: anomaly_map (H, W), compared in float32, and mask (H, W), True on defects."""
        from scipy.ndimage import label

        scores, is_anomalous = np.asarray(anomaly_map, dtype=np.float32), np.asarray(mask, dtype=bool)
        if scores.shape != is_anomalous.shape or scores.ndim != 2:
            raise ValueError(f"map {scores.shape} and mask {is_anomalous.shape} must be images of one size")
        if np.isnan(scores).any():
            raise ValueError("the anomaly map contains NaN")
        keys = _ordered_keys(scores)
        self._widen(int(keys.min()), int(keys.max()))
        at = (keys >> self._shift) - self._first
        regions, n_regions = label(is_anomalous, structure=np.ones((3, 3)))  # touching corners join
        region = regions[is_anomalous]
        np.add.at(self._bins[0], at[~is_anomalous], 1.0)
        np.add.at(self._bins[1], at[is_anomalous], 1.0)
        np.add.at(self._bins[2], at[is_anomalous], 1.0 / np.bincount(region)[region])
        self._n_images += 1
        self._n_regions += int(n_regions)
        return self

    def _widen(self, low: int, high: int) -> None:
        """Make room for keys from `low` to `high`, joining neighbouring bins until all fit."""
        low, high = self._range = min(low, self._range[0]), max(high, self._range[1])
        shift = self._shift
        while (high >> shift) - (low >> shift) >= BINS:
            shift += 1
        first = low >> shift
        if (shift, first) != (self._shift, self._first):
            used, joined = np.flatnonzero(self._bins.any(axis=0)), np.zeros_like(self._bins)
            to = ((used + self._first) >> (shift - self._shift)) - first
            for old, new in zip(self._bins, joined, strict=True):
                np.add.at(new, to, old[used])
            self._bins, self._shift, self._first = joined, shift, first

    def result(self) -> PixelScores:
        """The figures over all pixels so far; counting may go on afterwards."""
        used = self._bins[:2].any(axis=0)
        normal, anomalous, overlap = self._bins[:, used][:, ::-1]  # by falling score
        counts = self._n_images, self._n_regions
        if not normal.any() or not anomalous.any():
            return PixelScores(nan, nan, nan, *counts)
        fpr, tpr, pro = (_cumulative_share(values) for values in (normal, anomalous, overlap))
        tp, fp = np.cumsum(anomalous), np.cumsum(normal)
        precision = float(anomalous @ (tp / (tp + fp)) / tp[-1])  # Σ (Rₖ - Rₖ₋₁) Pₖ
        return PixelScores(_area(fpr, tpr, 1.0), precision, _area(fpr, pro, FPR_LIMIT) / FPR_LIMIT, *counts)


def _ordered_keys(scores: NDArray[np.float32]) -> NDArray[np.uint32]:
    """Integers in the order of the scores, for any shape.

    >>> keys = _ordered_keys(np.array([-np.inf, -1.0, -0.0, 0.0, 1e-45, 1.0, np.inf], dtype=np.float32))
    >>> np.sign(np.diff(keys.astype(float))).astype(int).tolist()
    [1, 1, 0, 1, 1, 1]
    """
    bits = (scores + np.float32(0)).view(np.int32)  # adding zero turns -0.0 into 0.0, its equal
    # Set the sign bit of positive numbers; invert negative ones, which grow with their magnitude.
    return (bits ^ ((bits >> 31) | np.int32(-(2**31)))).view(np.uint32)


def _cumulative_share(values: Doubles) -> Doubles:
    """The share of the sum of values (b,) reached after each of them, from 0 to 1: (b + 1,)."""
    sums = np.concatenate([[0.0], np.cumsum(values)])
    return np.asarray(sums / sums[-1])


def _area(x: Doubles, y: Doubles, x_max: float) -> float:
    """The area below the polyline through x, y (both rising from 0 to 1) up to x_max."""
    height = np.where(x > x_max, np.interp(x_max, x, y), y)
    return float(np.diff(np.minimum(x, x_max)) @ (height[1:] + height[:-1]) / 2)
