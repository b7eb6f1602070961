"""The paper's method in plain numpy, to be read at one sitting: slow, in float64, and in the paper's order.

N. Ferrari, O. Osmani, E. Lamma: Mahalanobis PatchCore, arXiv 2605.27748. Numbers in parentheses are its equations. The
tests compare the product with these functions, on random and on real descriptors; nothing else uses them.

>>> rng = np.random.default_rng(0)
>>> batches = [rng.normal(size=(50, 8)) for _ in range(4)]        # the patches of some normal images, U'_t
>>> model = fit(batches, K=20, m_c=16)
>>> reweighted(model.whiten(batches[0][:9]), model.bank) < reweighted(model.whiten(batches[0][:9] + 5), model.bank)
True
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]
Moments = tuple[int, Array, Array]  # n, μ̂ and M₂


@dataclass(frozen=True, eq=False)
class Model:
    """(R, μ̂, L, M) of (19): what training finds and scoring needs."""

    W: Array
    mean: Array
    L: Array
    bank: Array

    def whiten(self, u: Array) -> Array:
        return whitened(u, self.W, self.mean, self.L)


def fit(
    batches: Sequence[Array], rho: float = 0.99, lam: float = 0.07, K: int = 1000, m_c: int = 256
) -> Model:
    """Algorithm 1, training, on the descriptors (n, d₀) of each mini-batch of normal images."""
    n, mean, M2 = moments(batches)
    covariance = M2 / (n - 1)  # (13)
    W = reduction(covariance, rho)
    # the reducer's mean is that of all patches, so the mean of what it gives is zero: μ̂ = 0 in (15)
    L = cholesky(floored(shrunk(W.T @ covariance @ W, lam)))
    return Model(W, mean, L, merge_reduce([whitened(u, W, mean, L) for u in batches], K, m_c))


# --- moments, reduction and whitening -------------------------------------------------------------------------------


def moments(batches: Sequence[Array]) -> Moments:
    """Count, mean and second central moment of a stream, batch by batch, (9) to (12)."""
    n, mean, M2 = 0, np.zeros(batches[0].shape[1]), np.zeros((batches[0].shape[1],) * 2)
    for u in batches:
        n_b, mean_b = len(u), u.mean(axis=0)
        delta = mean_b - mean  # (9)
        mean = mean + n_b / (n + n_b) * delta  # (10)
        M2 = M2 + (u - mean_b).T @ (u - mean_b) + n * n_b / (n + n_b) * np.outer(delta, delta)  # (11)
        n += n_b  # (12)
    return n, mean, M2


def reduction(covariance: Array, rho: float) -> Array:
    """W (d₀, k) of (8): the directions of largest variance ν, as many as retain its share ρ, (37)."""
    variances, directions = np.linalg.eigh(covariance)
    variances, directions = variances[::-1], directions[:, ::-1]
    k = int(np.argmax(np.cumsum(variances) / variances.sum() >= rho)) + 1  # (37)
    return directions[:, :k]


def shrunk(covariance: Array, lam: float) -> Array:
    """Σ_shr = (1 − λ)·Σ̂ + λ·σ̄·I with σ̄ = tr(Σ̂)/d, (C.1)."""
    d = len(covariance)
    return (1 - lam) * covariance + lam * float(np.trace(covariance)) / d * np.eye(d)


def oas(covariance: Array, n: int) -> float:
    """λ of oracle approximating shrinkage, (C.2)."""
    d, trace, square = len(covariance), np.trace(covariance), np.trace(covariance @ covariance)
    ratio = ((1 - 2 / d) * square + trace**2) / ((n + 1 - 2 / d) * (square - trace**2 / d))
    return float(np.clip(ratio, 0, 1))


def rblw(covariance: Array, n: int) -> float:
    """λ of Rao–Blackwell Ledoit–Wolf, (C.3)."""
    d, trace, square = len(covariance), np.trace(covariance), np.trace(covariance @ covariance)
    ratio = ((n - 2) / n * square + trace**2) / ((n + 2) * (square - trace**2 / d))
    return float(np.clip(ratio, 0, 1))


def floored(covariance: Array, ratio: float = 1e-8) -> Array:
    """Σ_reg: no eigenvalue below ε = ε_rel·max(|σ̄|, 10⁻¹²), (C.4)."""
    gamma, vectors = np.linalg.eigh(covariance)
    epsilon = ratio * max(abs(np.trace(covariance) / len(covariance)), 1e-12)
    return np.asarray((vectors * np.maximum(gamma, epsilon)) @ vectors.T)


def cholesky(covariance: Array) -> Array:
    """L of Σ_L = Σ_reg + δI = LLᵀ, (14), with the first δ of 0, 10⁻¹², 10⁻¹¹, … 1 that succeeds, (C.5) to (C.7)."""
    for delta in (0.0, *(10.0**exponent for exponent in range(-12, 1))):
        try:
            return np.asarray(np.linalg.cholesky(covariance + delta * np.eye(len(covariance))), float)
        except np.linalg.LinAlgError:
            continue
    raise np.linalg.LinAlgError("no jitter up to 1 makes the covariance positive definite")


def whitened(u: Array, W: Array, mean: Array, L: Array) -> Array:
    """z(u) = L⁻¹(R(u) − μ̂), (15), with R(u) = Wᵀ(u − ū), (8): u (n, d₀) → (n, k)."""
    return np.asarray(np.linalg.solve(L, W.T @ (u - mean).T).T, float)


def delta(z: Array, bank: Array) -> Array:
    """δ(u, m) = ‖z(u) − m‖², (29): (n, K). By (16) it is the squared Mahalanobis distance under Σ_L."""
    return np.array([((z - m) ** 2).sum(axis=1) for m in bank]).reshape(len(bank), len(z)).T


# --- memory banks ---------------------------------------------------------------------------------------------------


def farthest_first(z: Array, k: int, covered: Array | None = None) -> Array:
    """Rows of z in the order of their choice, each the farthest from those chosen, (18) and (D.3).

    The paper leaves the first open; in the authors' release it is the row farthest from the mean. With `covered` those
    rows count as chosen. Duplicates of what is chosen are never chosen.
    """
    first = z[[((z - z.mean(axis=0)) ** 2).sum(axis=1).argmax()]] if covered is None else z[:0]
    chosen = list(first)[:k]
    nearest = delta(z, first if covered is None else covered).min(axis=1)
    while len(chosen) < k and nearest.max() > 0:
        chosen.append(z[nearest.argmax()])
        nearest = np.minimum(nearest, delta(z, chosen[-1][None])[:, 0])
    return np.array(chosen).reshape(-1, z.shape[1])


def merge_reduce(chunks: Sequence[Array], K: int, m_c: int) -> Array:
    """G_K(Z), (20): the nodes that are left when pairs of summaries have been merged, reduced once more."""
    return farthest_first(np.concatenate(nodes(chunks, m_c)), K)


def nodes(chunks: Sequence[Array], m_c: int) -> list[Array]:
    """What remains of Reduce(C⁽¹⁾ ∪ C⁽²⁾, m_c), (D.5), over all chunks: the oldest and largest first."""
    levels: list[tuple[int, Array]] = []
    for chunk in chunks:
        level, node = 0, farthest_first(chunk, m_c)
        while levels and levels[-1][0] == level:
            node = farthest_first(np.concatenate([levels.pop()[1], node]), m_c)  # (D.5)
            level += 1
        levels.append((level, node))
    return [node for _, node in levels]


def geores(chunks: Sequence[Array], K: int, m_c: int, alpha: float, q: int) -> Array:
    """Geometric residual selection, (21) to (27)."""
    pool, Z = np.concatenate(nodes(chunks, m_c)), np.concatenate(chunks)
    P = farthest_first(pool, K)  # (21)
    K0 = min(K - 1, max(1, round(alpha * K)))  # (23)
    M0 = farthest_first(pool, K0)  # (24)
    residuals = delta(Z, P).min(axis=1)  # (22), squared
    T = Z[np.sort(np.argsort(-residuals, kind="stable")[:q])]  # (25)
    bank = np.concatenate([M0, farthest_first(T, K - K0, covered=M0)])  # (26)
    return np.concatenate([bank, farthest_first(pool, K - len(bank), covered=bank)])  # (27), Π_K


def kmeans(chunks: Sequence[Array], centroids: Array) -> Array:
    """Mini-batch k-means from given centroids: every patch moves the nearest, (D.6), by 1/count towards itself."""
    centroids, counts = centroids.copy(), np.zeros(len(centroids))
    for z in chunks:
        for row, nearest in zip(z, delta(z, centroids).argmin(axis=1), strict=True):
            counts[nearest] += 1
            centroids[nearest] += (row - centroids[nearest]) / counts[nearest]
    return centroids


# --- scores and map -------------------------------------------------------------------------------------------------


def patch_scores(z: Array, bank: Array) -> Array:
    """a(u) = min δ(u, m) over the bank, (30): (n,)."""
    return np.asarray(delta(z, bank).min(axis=1))


def largest(z: Array, bank: Array) -> float:
    """s_max(x) = max a(u) over the image's patches z (n, k), (31)."""
    return float(patch_scores(z, bank).max())


def reweighted(z: Array, bank: Array, b: int = 9) -> float:
    """s(x) = w(x)·a(u*), (32) to (36)."""
    distances = delta(z, bank)
    a = distances.min(axis=1)
    worst = a.argmax()  # u*, (32)
    nearest = distances[worst].argmin()  # m*, (33)
    around = np.argsort(delta(bank[[nearest]], bank)[0], kind="stable")[:b]  # N_b(m*), with m* itself
    tau = distances[worst, around].max()  # (34)
    w = 1 - np.exp(a[worst] - tau) / np.exp(distances[worst, around] - tau).sum()  # (35)
    return float(w * a[worst])  # (36)


def score_map(a: Array, height: int, width: int, sigma: float = 4.0) -> Array:
    """Patch scores (h, w) upsampled to the image bilinearly, and smoothed by a Gaussian as in the authors' release."""
    reach = int(4 * sigma + 0.5)
    kernel = np.exp(-0.5 * (np.arange(-reach, reach + 1) / sigma) ** 2) if sigma else np.ones(1)

    def along(lines: Array, size: int) -> Array:
        """Every row of lines (m, n) at `size` places."""
        n = lines.shape[1]
        places = (np.arange(size) + 0.5) * n / size - 0.5  # pixel centres; beyond the first and last, theirs
        wider = np.array([np.interp(places, np.arange(n), line) for line in lines])
        return np.array([_smoothed(line, kernel / kernel.sum()) for line in wider])

    return along(along(a, width).T, height).T


def _smoothed(line: Array, kernel: Array) -> Array:
    reach = len(kernel) // 2
    return np.convolve(np.pad(line, reach, mode="symmetric"), kernel, mode="valid")
