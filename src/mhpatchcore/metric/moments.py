"""Count, mean and scatter of patch descriptors, exact in one pass, in any order, over any split.

With batch summary (n_b, μ_b, M2_b) and δ = μ_b − μ (Chan et al. 1979; the paper's appendix on Welford):

    μ ← μ + n_b/(n+n_b)·δ        M2 ← M2 + M2_b + n·n_b/(n+n_b)·δδᵀ        n ← n + n_b        Σ̂ = M2/(n−1)

Layers stay on their own grids. With P_l the alignment of layer l to the finest grid, the scatter of aligned rows has
the blocks

    (P_i X_i)ᵀ(P_j X_j) = X_iᵀ (P_iᵀP_j) X_j

where P_iᵀP_j, rows and columns apart, is a small matrix: the products run over the coarser of the two grids.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from mhpatchcore.runtime.arrays import Array, Doubles, as_float32, upsampling


@dataclass(frozen=True, eq=False)
class Moments:
    """n, mean (d,) and M2 (d, d) = Σ (u − mean)(u − mean)ᵀ, in float64. A value: updating gives a new one.

    >>> rng = np.random.default_rng(0)
    >>> u = rng.normal(size=(100, 3))
    >>> whole = Moments.of(u)
    >>> pieces = Moments.of(u[:10]).merge(Moments.of(u[10:60])).update(u[60:])
    >>> whole, bool(np.allclose(whole.covariance, pieces.covariance, rtol=1e-12))
    (Moments(n=100, d=3), True)
    >>> bool(np.allclose(whole.covariance, np.cov(u.T)))
    True
    """

    n: int
    mean: Doubles
    M2: Doubles
    rest: Doubles | float = 0.0  # what rounding takes from the mean, which is mean + rest

    @staticmethod
    def empty(d: int) -> Moments:
        return Moments(0, np.zeros(d), np.zeros((d, d)))

    @staticmethod
    def of(u: Array) -> Moments:
        """Moments of the rows of u (n, d), taken around the first row so that a large offset costs no digits."""
        if len(u) == 0:
            return Moments.empty(u.shape[1])
        around = np.array(u[0], np.float64)
        v = as_float32(u).astype(np.float64) if u.dtype == np.float16 else np.array(u, np.float64)
        v -= around
        shift = v.mean(axis=0)
        mean, rest = _exact_sum(around, shift)
        return Moments(len(u), mean, v.T @ v - len(u) * np.outer(shift, shift), rest)

    @staticmethod
    def of_maps(maps: Sequence[Array]) -> Moments:
        """Moments of the aligned patches of images whose layers (N, C_l, h_l, w_l) are given, the finest first.

        As `of` of the aligned rows, in fewer operations.
        """
        images, _, *grid = maps[0].shape
        n = images * grid[0] * grid[1]
        around = [layer[0, :, 0, 0].astype(np.float64) for layer in maps]
        X = [_channels_first(layer, centre) for layer, centre in zip(maps, around, strict=True)]
        shift = np.concatenate([_aligned_sum(layer, grid) for layer in X]) / n
        upper = {(i, j): _aligned_product(X[i], X[j], grid) for j in range(len(X)) for i in range(j + 1)}
        scatter = np.block(
            [[upper[i, j] if i <= j else upper[j, i].T for j in range(len(X))] for i in range(len(X))]
        )
        mean, rest = _exact_sum(np.concatenate(around), shift)
        return Moments(n, mean, scatter - n * np.outer(shift, shift), rest)

    def update(self, u: Array) -> Moments:
        return self.merge(Moments.of(u))

    def merge(self, other: Moments) -> Moments:
        if self.n == 0 or other.n == 0:
            return other if self.n == 0 else self
        n = self.n + other.n
        delta = (other.mean - self.mean) + (other.rest - self.rest)
        # what the sum loses would cost M2 digits where offsets exceed the spread
        mean, lost = _exact_sum(self.mean, delta * (other.n / n))
        scatter = self.M2 + other.M2
        scatter += np.outer(delta * (self.n * other.n / n), delta)
        return Moments(n, mean, scatter, self.rest + lost)

    @property
    def arrays(self) -> dict[str, Array]:
        rest = np.broadcast_to(np.asarray(self.rest, np.float64), self.mean.shape)
        return {"n": np.array([self.n]), "mean": self.mean, "M2": self.M2, "rest": rest}

    @property
    def d(self) -> int:
        return len(self.mean)

    @property
    def covariance(self) -> Doubles:
        """Unbiased Σ̂ = M2/(n−1); zero where a single row leaves it undefined."""
        covariance: Doubles = self.M2 / max(self.n - 1, 1)
        return covariance

    def __repr__(self) -> str:
        return f"Moments(n={self.n}, d={self.d})"


def _channels_first(maps: Array, around: Doubles) -> Doubles:
    """Maps (N, C, h, w) → (C, N, h, w) in float64, taken around a vector (C,)."""
    X: Doubles = as_float32(maps).transpose(1, 0, 2, 3).astype(np.float64, order="C")
    X -= around[:, None, None, None]
    return X


def _aligned_sum(X: Doubles, grid: Sequence[int]) -> Doubles:
    """Σ over all cells of the finest grid of P·X, of maps X (C, N, h, w): (C,)."""
    rows, columns = (upsampling(n, size).sum(axis=0) for n, size in zip(grid, X.shape[2:], strict=True))
    total: Doubles = X.sum(axis=1) @ columns @ rows
    return total


def _aligned_product(X: Doubles, Y: Doubles, grid: Sequence[int]) -> Doubles:
    """(P_X X)ᵀ(P_Y Y) of maps (C, N, h, w) and (D, N, g, v), of which Y has the coarser grid: (C, D)."""
    others = Y.reshape(len(Y), -1)
    if X is Y and X.shape[2:] == tuple(grid):
        return others @ others.T  # which BLAS takes half of the work for
    R, C = (
        upsampling(n, theirs).T @ upsampling(n, own)
        for n, own, theirs in zip(grid, X.shape[2:], Y.shape[2:], strict=True)
    )
    product: Doubles = (R @ (X @ C.T)).reshape(len(X), -1) @ others.T
    return product


def _exact_sum(a: Doubles, b: Doubles) -> tuple[Doubles, Doubles]:
    """a + b rounded, and what rounding took from it (Knuth's two-sum)."""
    total = a + b
    moved = total - a
    return total, (a - (total - moved)) + (b - moved)
