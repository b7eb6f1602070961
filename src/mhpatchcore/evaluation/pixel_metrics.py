"""Pixel-level metrics of anomaly maps, streamed image by image in memory that never grows.

Pixels are counted in a histogram over the bit patterns of their float32 scores. The upper 16 bits of a score
name its page (sign, exponent, 7 bits of mantissa); only pages that occur are opened, and all are divided into
the same number of bins, the largest power of two with which they fit into `_MAX_BINS`. Few pages: every
float32 number has its own bin and the result is exact. Many pages: neighbouring scores share a bin, and the
bounds in the result say how much that can matter at most. The division depends on the set of pages alone, so
neither the order of the images nor their distribution over workers changes a count.

Three sums per bin give the metrics: normal pixels, anomalous pixels, and anomalous pixels weighted by
1 / area of their region. The last yields the per-region overlap, the mean over regions of their true
positive rates, without keeping any region. The lowest and the highest score of a bin tell the bounds whether
its pixels are merely close or truly tied.

>>> mask = np.zeros((4, 4), dtype=bool)
>>> mask[1:3, 1:3] = True
>>> anomaly_map = np.where(mask, 2.0, 1.0).astype(np.float32)
>>> scores = PixelMetrics().update(anomaly_map, mask).result()
>>> scores.auroc, scores.average_precision, scores.aupro, scores.error_bound
(1.0, 1.0, 1.0, 0.0)

Workers count apart and merge:

>>> PixelMetrics().update(anomaly_map, mask).merge(PixelMetrics().update(anomaly_map, mask))
PixelMetrics(n_images=2, n_regions=2)
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

FPR_LIMIT = 0.3
"""AUPRO integrates the per-region overlap up to this false positive rate, as the MVTec evaluation does."""

_LOW_BITS = 16
_LOW_MASK = (1 << _LOW_BITS) - 1
_N_PAGES = 1 << (32 - _LOW_BITS)
_MAX_BINS = 1 << 19  # a multiple of _N_PAGES, so that every page can be opened; 32 bytes for each bin

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
Keys = NDArray[np.uint32]


class _Statistic(NamedTuple):
    join: np.ufunc  # makes one bin of two
    empty: np.generic  # the value of a bin without pixels


_STATISTICS = {
    "normal": _Statistic(np.add, np.int64(0)),
    "anomalous": _Statistic(np.add, np.int64(0)),
    "overlap": _Statistic(np.add, np.float64(0)),
    "lowest": _Statistic(np.minimum, np.uint32(2**32 - 1)),
    "highest": _Statistic(np.maximum, np.uint32(0)),
}


@dataclass(frozen=True, kw_only=True)
class PixelScores:
    """Pixel-level figures, NaN without both normal and anomalous pixels.

    Each bound limits the distance to the value computed from all pixels unbinned (rounding aside).
    """

    auroc: float = math.nan
    average_precision: float = math.nan
    aupro: float = math.nan
    auroc_error_bound: float = math.nan
    average_precision_error_bound: float = math.nan
    aupro_error_bound: float = math.nan
    n_images: int
    n_regions: int

    @property
    def error_bound(self) -> float:
        """The largest of the three bounds."""
        return max(self.auroc_error_bound, self.average_precision_error_bound, self.aupro_error_bound)


class PixelMetrics:
    """Counts the pixels of one image after another; `result` gives AUROC, average precision and AUPRO."""

    def __init__(self) -> None:
        self._n_images = 0
        self._n_regions = 0
        self._pages = np.empty(0, dtype=np.uint32)  # (p,) in order of appearance: page _pages[s] has slot s
        self._slot_of_page = np.full(_N_PAGES, -1, dtype=np.int64)
        self._bin_bits = _LOW_BITS  # slot s owns the bins s << _bin_bits up to (s + 1) << _bin_bits
        self._bins: dict[str, NDArray[Any]] = {
            name: np.full(_MAX_BINS, empty) for name, (_, empty) in _STATISTICS.items()
        }

    def __repr__(self) -> str:
        return f"PixelMetrics(n_images={self._n_images}, n_regions={self._n_regions})"

    def update(self, anomaly_map: ArrayLike, mask: ArrayLike) -> Self:
        """Count one image: anomaly_map (H, W), compared in float32, and mask (H, W), True on defects."""
        scores, is_anomalous = np.asarray(anomaly_map, dtype=np.float32), np.asarray(mask, dtype=bool)
        if scores.shape != is_anomalous.shape or scores.ndim != 2:
            raise ValueError(f"map {scores.shape} and mask {is_anomalous.shape} must be images of one size")
        if np.isnan(scores).any():
            raise ValueError("the anomaly map contains NaN")
        keys = _ordered_keys(scores.ravel())  # flat, the shape for which numpy has fast `ufunc.at` loops
        self._open_pages(keys >> _LOW_BITS)
        at = self._bins_of(keys)
        np.minimum.at(self._bins["lowest"], at, keys)
        np.maximum.at(self._bins["highest"], at, keys)
        np.add.at(self._bins["normal"], at[~is_anomalous.ravel()], 1)
        if is_anomalous.any():
            at_anomalous = at[is_anomalous.ravel()]
            weights, n_regions = _region_weights(is_anomalous)
            np.add.at(self._bins["anomalous"], at_anomalous, 1)
            np.add.at(self._bins["overlap"], at_anomalous, weights)
            self._n_regions += n_regions
        self._n_images += 1
        return self

    def merge(self, other: PixelMetrics) -> Self:
        """Add what `other` has counted; `other` stays as it is."""
        self._open_pages(other._pages)
        # Holding all pages of `other`, this histogram is never the finer one.
        slots = self._slot_of_page[other._pages]
        n_per_page, n_joined = 1 << self._bin_bits, 1 << (other._bin_bits - self._bin_bits)
        for name, (join, _) in _STATISTICS.items():
            mine = self._bins[name][: self._n_bins].reshape(-1, n_per_page)
            theirs = other._bins[name][: other._n_bins].reshape(-1, n_per_page, n_joined)
            mine[slots] = join(mine[slots], join.reduce(theirs, axis=2))
        self._n_images += other._n_images
        self._n_regions += other._n_regions
        return self

    def result(self) -> PixelScores:
        """The figures over all pixels so far; counting may go on afterwards."""
        bins = self._by_falling_score()
        normal, anomalous, is_mixed = bins["normal"], bins["anomalous"], bins["lowest"] < bins["highest"]
        if not normal.any() or not anomalous.any():
            return PixelScores(n_images=self._n_images, n_regions=self._n_regions)
        fpr, tpr, pro = (_cumulative_share(values) for values in (normal, anomalous, bins["overlap"]))
        return PixelScores(
            auroc=_area(fpr, tpr, 1.0),
            average_precision=_average_precision(normal, anomalous),
            aupro=_area(fpr, pro, FPR_LIMIT) / FPR_LIMIT,
            auroc_error_bound=_area_error_bound(fpr, tpr, 1.0, is_mixed),
            average_precision_error_bound=_average_precision_error_bound(normal, anomalous, is_mixed),
            aupro_error_bound=_area_error_bound(fpr, pro, FPR_LIMIT, is_mixed) / FPR_LIMIT,
            n_images=self._n_images,
            n_regions=self._n_regions,
        )

    @property
    def _n_bins(self) -> int:
        return len(self._pages) << self._bin_bits

    def _bins_of(self, keys: Keys) -> IntArray:
        within_page = (keys & _LOW_MASK) >> (_LOW_BITS - self._bin_bits)
        first_in_page = self._slot_of_page[keys >> _LOW_BITS] << self._bin_bits
        return np.asarray(first_in_page + within_page)

    def _open_pages(self, pages: NDArray[np.integer[Any]]) -> None:
        """Give every new page among `pages` a slot, joining neighbouring bins until the slots fit."""
        new = np.unique(pages[self._slot_of_page[pages] < 0])
        self._slot_of_page[new] = len(self._pages) + np.arange(len(new))
        n_used, n_joined = self._n_bins, 1
        self._pages = np.concatenate([self._pages, new])
        while self._n_bins > _MAX_BINS:
            self._bin_bits -= 1
            n_joined *= 2
        if n_joined > 1:
            for name, (join, empty) in _STATISTICS.items():
                joined = join.reduce(self._bins[name][:n_used].reshape(-1, n_joined), axis=1)
                self._bins[name][: len(joined)] = joined
                self._bins[name][len(joined) : n_used] = empty

    def _by_falling_score(self) -> dict[str, NDArray[Any]]:
        """The statistics (b,) of the bins that hold a pixel, highest scores first."""
        first_in_page = np.argsort(self._pages)[:, None] << self._bin_bits
        order = (first_in_page + np.arange(1 << self._bin_bits)).ravel()[::-1]
        order = order[self._bins["lowest"][order] <= self._bins["highest"][order]]
        return {name: values[order] for name, values in self._bins.items()}


def _ordered_keys(scores: NDArray[np.float32]) -> Keys:
    """Integers in the order of the scores, for any shape.

    >>> keys = _ordered_keys(np.array([-np.inf, -1.0, -0.0, 0.0, 1e-45, 1.0, np.inf], dtype=np.float32))
    >>> np.sign(np.diff(keys.astype(float))).astype(int).tolist()
    [1, 1, 0, 1, 1, 1]
    """
    bits = (scores + np.float32(0)).view(np.int32)  # adding zero turns -0.0 into 0.0, its equal
    # Set the sign bit of positive numbers; invert negative ones, which grow with their magnitude.
    return (bits ^ ((bits >> 31) | np.int32(-(2**31)))).view(np.uint32)


def _region_weights(mask: NDArray[np.bool_]) -> tuple[FloatArray, int]:
    """1 / area of its 8-connected region for each True pixel of mask (H, W), and the number of regions."""
    from scipy.ndimage import label

    labels, n_regions = label(mask, structure=np.ones((3, 3)))
    region = labels[mask]
    return 1.0 / np.bincount(region)[region], int(n_regions)


def _cumulative_share(values: NDArray[np.int64] | FloatArray) -> FloatArray:
    """The share of the sum of values (b,) reached after each of them, from 0 to 1: (b + 1,)."""
    sums = np.concatenate([[0.0], np.cumsum(values)])
    return np.asarray(sums / sums[-1])


def _area(x: FloatArray, y: FloatArray, x_max: float) -> float:
    """The area below the polyline through x, y (both rising from 0 to 1) up to x_max."""
    height = np.where(x > x_max, np.interp(x_max, x, y), y)
    return float(np.diff(np.minimum(x, x_max)) @ (height[1:] + height[:-1]) / 2)


def _area_error_bound(x: FloatArray, y: FloatArray, x_max: float, is_mixed: NDArray[np.bool_]) -> float:
    """How far `_area` can be from the unbinned area; is_mixed (b,) marks the bins that hold several scores.

    The unbinned curve passes through all points of the binned one and rises between them, so it stays inside
    the rectangle dx · dy of each bin, whose diagonal is the binned curve: they differ by half the rectangle
    at most, in a bin cut by x_max as well.
    """
    matters = is_mixed & (x[:-1] < x_max)
    return float(np.diff(x)[matters] @ np.diff(y)[matters] / 2)


def _average_precision(normal: IntArray, anomalous: IntArray) -> float:
    """Σ (Rₖ - Rₖ₋₁) Pₖ over the bins (b,) by falling score: the pixels of a bin count as tied."""
    tp, fp = np.cumsum(anomalous), np.cumsum(normal)
    return float(anomalous @ (tp / (tp + fp)) / tp[-1])


def _average_precision_error_bound(
    normal: IntArray, anomalous: IntArray, is_mixed: NDArray[np.bool_]
) -> float:
    """How far `_average_precision` can be from the value of the unbinned scores.

    The i-th anomalous pixel of a bin sees at most the precision at which all anomalous and no normal pixels
    of the bin are found, and at least f(i), the precision if all the normal ones come first. f is concave, so
    its mean is at least (f(first) + f(last)) / 2; f(last) is what `_average_precision` gives to the bin.
    """
    matters = is_mixed & (anomalous > 0)
    n, n_normal = anomalous[matters], normal[matters]
    tp, fp = np.cumsum(anomalous)[matters], np.cumsum(normal)[matters]
    first = tp - n + 1
    precision = tp / (tp + fp)
    too_low = n @ (tp / (tp + fp - n_normal) - precision)
    too_high = n @ (precision - first / (first + fp)) / 2
    return float(max(too_low, too_high) / anomalous.sum())
