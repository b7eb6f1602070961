"""Reduction and whitening folded into one affine map, so that Euclidean distance becomes Mahalanobis distance.

ũ = Wᵀ(u − ū)                               reduction to k directions of retained variance ρ
Σ_reg = floor(shrink(Σ̂))                    in the reduced space
Σ_L = Σ_reg + δI = LLᵀ                      δ: the smallest jitter for which Cholesky succeeds
z = L⁻¹ũ = A(u − ū),  A = L⁻¹Wᵀ             ‖z(u) − z(v)‖² = (ũ − ṽ)ᵀ Σ_L⁻¹ (ũ − ṽ)

Beyond the paper, a patch's place p (row, column) may follow its look u, as two further columns of z that are weighed
by how closely a look tells the place among the normal images: where every image shows the same at the same place a
look that stands elsewhere is odd, and where anything may be anywhere the place means nothing.

s² = diag(Σ_pp − Σ_pu Σ_uu⁻¹ Σ_up)          what linear regression of p on u leaves
t² = tr(A Σ_uu Aᵀ)/k                        1 where looks are whitened without shrinkage
z = [A(u − ū), c·t·(p − p̄)/s]               c = 0: the paper
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from mhpatchcore.errors import UserError
from mhpatchcore.metric import shrinkage
from mhpatchcore.metric.moments import Moments
from mhpatchcore.runtime.arrays import Array, Doubles, Floats, as_float32

ROWS_PER_BLOCK = 1024
RIDGE = 1e-6
JITTER_MIN, JITTER_FACTOR, JITTER_MAX = 1e-12, 10.0, 1.0


@dataclass(frozen=True, eq=False)
class Reduction:
    """Orthonormal directions W (d, k) and the variances ν (d,) of all directions, largest first.

    Without a reduction the directions are the channels, as they come.
    """

    W: Doubles
    variances: Doubles

    @property
    def retained(self) -> float:
        """Share of the total variance within the k directions."""
        total = self.variances.sum()
        return float(self.variances[: self.W.shape[1]].sum() / total) if total > 0 else 1.0


@dataclass(frozen=True, eq=False)
class Whitening:
    """The affine map z = A(u − mean), with the numbers that made it: λ, the jitter δ, retained variance.

    The last `placed` rows and columns of A (0 or 2) are for the place.
    """

    A: Doubles
    mean: Doubles
    lam: float
    jitter: float
    retained: float
    placed: int = 0

    @cached_property
    def _matrix(self) -> Floats:
        return np.ascontiguousarray(self.A.T, np.float32)

    @cached_property
    def _offset(self) -> Floats:
        return (self.A @ self.mean).astype(np.float32)

    def __call__(self, u: Array) -> Floats:
        """Descriptors (n, d) → whitened rows (n, k), both with two further columns where the place counts."""
        z = np.empty((len(u), len(self.A)), np.float32)
        for start in range(0, len(u), ROWS_PER_BLOCK):  # halves are made floats only a few at a time
            piece = slice(start, start + ROWS_PER_BLOCK)
            np.matmul(as_float32(u[piece]), self._matrix, out=z[piece])
        z -= self._offset
        return z

    @property
    def k(self) -> int:
        """Directions of the look."""
        return len(self.A) - self.placed

    def __repr__(self) -> str:
        d = len(self.mean) - self.placed
        return f"Whitening(d={d}, k={self.k}, retained={self.retained:.4f}, lam={self.lam:.3g})"


def principal_directions(covariance: Doubles) -> tuple[Doubles, Doubles]:
    """Variances (d,) in falling order and their directions (d, d) as columns, each with a fixed sign."""
    variances, directions = np.linalg.eigh(covariance)
    variances, directions = np.maximum(variances[::-1], 0), directions[:, ::-1]
    peaks = directions[np.abs(directions).argmax(axis=0), np.arange(len(variances))]
    return variances, directions * np.where(peaks < 0, -1.0, 1.0)


def retained_dimension(variances: Doubles, rho: float) -> int:
    """k = min{q : Σ_{i≤q} νᵢ / Σ νᵢ ≥ ρ}; at ρ = 1 all directions that carry any variance.

    >>> retained_dimension(np.array([6.0, 3.0, 1.0, 0.0]), 0.9)
    2
    >>> retained_dimension(np.array([6.0, 3.0, 1.0, 0.0]), 1.0)
    3
    """
    cumulative = np.cumsum(variances, dtype=np.longdouble)
    if cumulative[-1] <= 0:
        return 1
    # sums that reach ρ up to the rounding of ρ itself have reached it
    return int(np.searchsorted(cumulative, rho * cumulative[-1] * (1 - 1e-15)) + 1)


def reduce_by(moments: Moments, variance: float | None = 0.99, components: int | None = None) -> Reduction:
    """Principal directions from the exact covariance: a fixed number, by retained variance, or all (None)."""
    variances, directions = principal_directions(moments.covariance)
    return Reduction(directions[:, : _kept(variances, variance, components)], variances)


def reduce_by_ipca(pca: Any, variance: float | None = 0.99, components: int | None = None) -> Reduction:
    """The paper's literal path: directions of a fitted scikit-learn IncrementalPCA that kept all of them."""
    variances = np.asarray(pca.explained_variance_, np.float64)
    return Reduction(pca.components_[: _kept(variances, variance, components)].T, variances)


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


def with_place(whitening: Whitening, moments: Moments, weight: float) -> Whitening:
    """The whitening of looks (k, d) continued to places, which are the last two columns of `moments`."""
    k, d = whitening.A.shape
    typical = np.sqrt(np.sum(whitening.A @ moments.covariance[:d, :d] * whitening.A) / k)
    A = np.zeros((k + 2, d + 2))
    A[:k, :d] = whitening.A
    A[[k, k + 1], [d, d + 1]] = weight * typical / place_spread(moments)
    return replace(whitening, A=A, mean=moments.mean, placed=2)


def place_spread(moments: Moments) -> Doubles:
    """s (2,): by how many cells a patch's look leaves its row and its column open; not below one cell."""
    d = moments.d - 2
    covariance = moments.covariance
    looks, cross, places = covariance[:d, :d], covariance[:d, d:], np.diag(covariance)[d:]
    ridge = max(RIDGE * float(np.trace(looks)) / d, 1e-12)
    left = places - np.sum(cross * np.linalg.solve(looks + ridge * np.eye(d), cross), axis=0)
    # d columns explain d of n rows by chance alone
    by_chance = (moments.n - 1) / (moments.n - d - 1) if moments.n > d + 1 else np.inf
    unexplained = np.maximum(left, 1e-12) * by_chance  # rounding may leave less than nothing
    spread: Doubles = np.sqrt(np.clip(unexplained, 1.0, np.maximum(places, 1.0)))
    return spread


def regularised(covariance: Doubles, lam: float, floor: float) -> Doubles:
    """Σ_reg: shrinkage by λ, then eigenvalues not below ε = floor · max(|σ̄|, 1e-12)."""
    eigenvalues, vectors = np.linalg.eigh((covariance + covariance.T) / 2)
    eigenvalues = shrinkage.shrink(eigenvalues, lam)
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
        "use more shrinkage (e.g. --shrinkage 0.5), less retained variance, or check the images"
    )


def _kept(variances: Doubles, variance: float | None, components: int | None) -> int:
    if components is not None:
        return min(components, len(variances))
    return len(variances) if variance is None else retained_dimension(variances, variance)
