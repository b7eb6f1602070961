"""Descriptors that are made up, and distances by definition."""

from __future__ import annotations

import numpy as np

from mhpatchcore.metric.whitening import Whitening


def sample(n: int, d: int, seed: int = 0) -> np.ndarray:
    """Rows (n, d) around a mean of their own, with variances over two decades along oblique directions."""
    rng = np.random.default_rng(seed)
    directions = np.linalg.qr(rng.normal(size=(d, d)))[0]
    return rng.normal(size=d) + (rng.normal(size=(n, d)) * np.geomspace(1, 0.1, d)) @ directions


def exact(whitening: Whitening, u: np.ndarray) -> np.ndarray:
    """z = A(u − mean) in float64."""
    return (u - whitening.mean) @ whitening.A.T


def squared_distances(z: np.ndarray) -> np.ndarray:
    """Between all pairs of rows."""
    return ((z[:, None] - z[None]) ** 2).sum(axis=2)
