"""Reduction to the principal directions that retain a share ρ of the variance: ũ = Wᵀ(u − ū)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from mhpatchcore.metric.moments import Moments
from mhpatchcore.runtime.arrays import Array, Doubles
from mhpatchcore.runtime.parallel import late_blas_limited


@dataclass(frozen=True, eq=False)
class Reduction:
    """Directions W (d, k) and the variances ν (d,) of all directions, largest first.

    Principal directions are orthonormal; those of channels at unit spread are so in the scaled channels. Without a
    reduction the directions are the channels, as they come.
    """

    W: Doubles
    variances: Doubles

    @property
    def retained(self) -> float:
        """Share of the total variance within the k directions."""
        total = self.variances.sum()
        return float(self.variances[: self.W.shape[1]].sum() / total) if total > 0 else 1.0


def no_reduction(moments: Moments) -> Reduction:
    return Reduction(np.eye(moments.d), np.diag(moments.covariance).copy())


def reduce_by(
    moments: Moments,
    variance: float | None = 0.99,
    components: int | None = None,
    unit_spread: bool = False,
) -> Reduction:
    """Principal directions from the exact covariance: a fixed number, by retained variance, or all (None).

    Of the channels at `unit_spread`, few large channels do not decide what is retained: W = D⁻¹V for the deviations D
    of the channels and the principal directions V of D⁻¹ΣD⁻¹.
    """
    covariance = moments.covariance
    scale = np.ones(moments.d)
    if unit_spread:
        deviations = np.sqrt(np.diag(covariance))
        scale = np.divide(1.0, deviations, out=np.zeros_like(deviations), where=deviations > 0)
    variances, directions = principal_directions(covariance * np.outer(scale, scale))
    return Reduction(scale[:, None] * directions[:, : _kept(variances, variance, components)], variances)


def reduce_by_ipca(chunks: Iterable[Array], variance: float | None, components: int | None) -> Reduction:
    """The paper's literal path: directions of scikit-learn's IncrementalPCA over chunks of rows (n, d).

    It keeps as many components as its first piece has rows, so pieces have at least d.
    """
    from sklearn.decomposition import IncrementalPCA

    pca = IncrementalPCA()
    waiting: list[Array] = []

    def feed() -> None:
        with late_blas_limited():
            pca.partial_fit(np.concatenate(waiting).astype(np.float64))
        waiting.clear()

    for chunk in chunks:
        waiting.append(chunk)
        if sum(map(len, waiting)) >= chunk.shape[1]:
            feed()
    if waiting:
        feed()
    variances = np.asarray(pca.explained_variance_, np.float64)
    return Reduction(pca.components_[: _kept(variances, variance, components)].T, variances)


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


def _kept(variances: Doubles, variance: float | None, components: int | None) -> int:
    if components is not None:
        return min(components, len(variances))
    return len(variances) if variance is None else retained_dimension(variances, variance)
