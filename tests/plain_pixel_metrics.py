"""Pixel-level metrics as one would write them down: every pixel, threshold and region is kept. For comparison."""

from __future__ import annotations

import numpy as np
from scipy.ndimage import label
from sklearn.metrics import average_precision_score, roc_auc_score

from mhpatchcore.evaluation.metrics import FPR_LIMIT


def exact_aupro(maps, masks):
    """Every distinct score is a threshold, every region has its own curve; linear up to the FPR limit."""
    thresholds = np.unique(np.concatenate([m.ravel() for m in maps]))[::-1]

    def share_found(values):
        return 1 - np.searchsorted(np.sort(values), thresholds, side="left") / values.size

    fpr = share_found(np.concatenate([m[~mask] for m, mask in zip(maps, masks, strict=True)]))
    overlap, n_regions = np.zeros(len(thresholds)), 0
    for anomaly_map, mask in zip(maps, masks, strict=True):
        regions, n = label(mask, structure=np.ones((3, 3)))
        for region in range(1, n + 1):
            overlap += share_found(anomaly_map[regions == region])
        n_regions += n
    x, y = np.r_[0, fpr], np.r_[0, overlap / n_regions]
    below = x <= FPR_LIMIT
    x_cut, y_cut = np.r_[x[below], FPR_LIMIT], np.r_[y[below], np.interp(FPR_LIMIT, x, y)]
    return np.sum(np.diff(x_cut) * (y_cut[1:] + y_cut[:-1]) / 2) / FPR_LIMIT


def exact_scores(maps, masks):
    # Only the order matters, and scikit-learn refuses infinities: ranks in place of scores.
    rank = np.unique(np.concatenate([m.ravel() for m in maps]), return_inverse=True)[1]
    is_anomalous = np.concatenate([m.ravel() for m in masks])
    return {
        "auroc": roc_auc_score(is_anomalous, rank),
        "average_precision": average_precision_score(is_anomalous, rank),
        "aupro": exact_aupro(maps, masks),
    }
