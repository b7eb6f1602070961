"""Reduction and whitening folded into one affine map, so that Euclidean distance becomes Mahalanobis distance.

ũ = Wᵀ(u − ū)                               reduction to k directions (`reduction.py`)
Σ_reg = floor(shrink(Σ̂))                    in the reduced space (`shrinkage.py`)
Σ_L = Σ_reg + δI = LLᵀ                      δ: the smallest jitter for which Cholesky succeeds
z = L⁻¹ũ = A(u − ū),  A = L⁻¹Wᵀ             ‖z(u) − z(v)‖² = (ũ − ṽ)ᵀ Σ_L⁻¹ (ũ − ṽ)

The map is affine, so each layer is whitened on its own grid before it is aligned: z = Σ_l P_l·A_l·u_l − A·ū.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from mhpatchcore.errors import UserError
from mhpatchcore.metric import shrinkage
from mhpatchcore.metric.moments import Moments
from mhpatchcore.metric.reduction import Reduction
from mhpatchcore.runtime.arrays import Array, Doubles, Floats, as_float32, resized

ROWS_PER_BLOCK = 1024
JITTER_MIN, JITTER_FACTOR, JITTER_MAX = 1e-12, 10.0, 1.0


@dataclass(frozen=True, eq=False)
class Whitening:
    """The affine map z = A(u − mean), A (k, d), with the numbers that made it: λ, the jitter δ, retained variance."""

    A: Doubles
    mean: Doubles
    lam: float
    jitter: float
    retained: float

    @property
    def k(self) -> int:
        return len(self.A)

    @cached_property
    def offset(self) -> Floats:
        """A·mean (k,)."""
        return (self.A @ self.mean).astype(np.float32)

    @cached_property
    def _matrix(self) -> Floats:
        return np.ascontiguousarray(self.A.T, np.float32)

    def __call__(self, u: Array) -> Floats:
        """Descriptors (n, d) → whitened rows (n, k)."""
        z = np.empty((len(u), self.k), np.float32)
        for start in range(0, len(u), ROWS_PER_BLOCK):  # halves are made floats only a few at a time
            piece = slice(start, start + ROWS_PER_BLOCK)
            np.matmul(as_float32(u[piece]), self._matrix, out=z[piece])
        z -= self.offset
        return z

    def of_maps(self, maps: Sequence[Array]) -> Floats:
        """The layers (C_l, h_l, w_l) of one image → whitened rows (h·w, k), as of its aligned descriptors."""
        grid, start = maps[0].shape[1:], 0
        z = np.empty((self.k, grid[0], grid[1]), np.float32)
        z[:] = -self.offset[:, None, None]
        for layer in maps:
            block = self._matrix[start : start + len(layer)].T
            own = (block @ as_float32(layer).reshape(len(layer), -1)).reshape(self.k, *layer.shape[1:])
            z += resized(own, grid)
            start += len(layer)
        return np.ascontiguousarray(z.reshape(self.k, -1).T)

    def inverse(self, z: Floats) -> Floats:
        """Descriptors (n, d) that whiten to z (n, k): those nearest to the mean."""
        rows: Floats = (self.mean + z.astype(np.float64) @ np.linalg.pinv(self.A).T).astype(np.float32)
        return rows

    def __repr__(self) -> str:
        return f"Whitening(d={len(self.mean)}, k={self.k}, retained={self.retained:.4f}, lam={self.lam:.3g})"


def fit_whitening(
    moments: Moments, reduction: Reduction, lam: float, floor: float = 1e-8, metric: str = "mahalanobis"
) -> Whitening:
    """Regularise the covariance in the reduced space, factor it, and fold everything into one map."""
    W = reduction.W
    if metric == "euclidean":
        return Whitening(np.ascontiguousarray(W.T), moments.mean, 0.0, 0.0, reduction.retained)
    covariance = regularised(W.T @ moments.covariance @ W, lam, floor)
    L, jitter = jittered_cholesky(covariance)
    return Whitening(np.linalg.solve(L, W.T), moments.mean, lam, jitter, reduction.retained)


def regularised(covariance: Doubles, lam: float, floor: float) -> Doubles:
    """Σ_reg: shrinkage by λ, then eigenvalues not below ε = floor · max(|σ̄|, 1e-12); with floor 0 as they are."""
    eigenvalues, vectors = np.linalg.eigh((covariance + covariance.T) / 2)
    eigenvalues = shrinkage.shrink(eigenvalues, lam)
    if floor:
        eigenvalues = np.maximum(eigenvalues, floor * max(abs(float(eigenvalues.mean())), 1e-12))
    matrix: Doubles = (vectors * eigenvalues) @ vectors.T
    return matrix


def jittered_cholesky(covariance: Doubles) -> tuple[Doubles, float]:
    """Lower L and the first δ of 0, 1e-12, 1e-11, … ≤ 1 for which Σ + δI = LLᵀ exists.

    >>> jittered_cholesky(np.diag([4.0, 0.0]))[1]
    1e-12
    """
    jitter = 0.0
    while jitter <= JITTER_MAX and np.isfinite(covariance).all():
        try:
            return np.linalg.cholesky(covariance + jitter * np.eye(len(covariance))), jitter
        except np.linalg.LinAlgError:
            jitter = jitter * JITTER_FACTOR if jitter else JITTER_MIN
    raise UserError(
        "the covariance of the normal patches cannot be factored even with jitter 1: "
        "use more shrinkage (`shrinkage=0.5`), less retained variance, or check the images"
    )
