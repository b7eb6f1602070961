"""GeoReS, geometric residual selection: a k-center bank that spends part of its budget on poorly covered normals.

pass 1   P = G_K(Z) provisional bank,  M₀ = G_{K₀}(Z) main bank,  K₀ = clip(round(αK), 1, K−1)
pass 2   T_q = the q patches with the largest residual r_P(z) = min_{p∈P} ‖z − p‖
         K_t = K − K₀ tail rows, farthest-first from T_q against M₀ and the tail chosen so far
Π_K      remove duplicates, fill free places from the coverage pool, truncate to K

The paper leaves q open; the authors' release takes q = K.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import numpy as np

from mhpatchcore.bank.farthest_first import FIRST, Start, farthest_first
from mhpatchcore.bank.patches import Growth, Patches, Stream
from mhpatchcore.bank.tree import counter, joined, reduced
from mhpatchcore.metric.distances import distances_to_nearest
from mhpatchcore.runtime.arrays import Floats


def geores(
    stream: Stream, K: int, m_c: int, alpha: float = 0.9, q: int | None = None, start: Start = FIRST
) -> Patches:
    """At most K rows; `q` candidates for the tail, K where it is not given."""
    K0, Kt = split_budget(K, alpha)
    nodes = [*stream.earlier, *counter(stream, m_c, start)]
    provisional, main = (reduced(joined(nodes), size, start, stream.workers) for size in (K, K0))
    candidates = _largest_residuals(stream, provisional, q or K)
    tail = candidates.take(farthest_first(candidates.z, Kt, covered=main.z))
    return completed(joined([main, tail]), joined(nodes), K)


def split_budget(K: int, alpha: float) -> tuple[int, int]:
    """K₀ and K_t = K − K₀, both positive.

    >>> split_budget(1000, 0.95), split_budget(2, 0.99)
    ((950, 50), (1, 1))
    """
    K0 = min(K - 1, max(1, round(alpha * K)))
    return K0, K - K0


def completed(chosen: Patches, pool: Patches, K: int) -> Patches:
    """Π_K: `chosen` without duplicates, filled up from the pool farthest-first, at most K rows."""
    _, first = np.unique(chosen.origin, axis=0, return_index=True)
    bank = chosen.take(np.sort(first)[:K])
    fill = farthest_first(pool.z, K - len(bank), covered=bank.z)
    return joined([bank, pool.take(fill)])


@dataclass(frozen=True, eq=False)
class Candidates(Patches):
    """Patches with their residuals (n,)."""

    residual: Floats


def _largest_residuals(stream: Stream, provisional: Patches, q: int) -> Candidates:
    """T_q, the largest of the largest of all chunks; equal residuals in order of arrival."""
    local = partial(_local_residuals, q=q)
    nodes = stream.nodes(Growth(2, local, partial(_largest, q=q), against=provisional))
    earlier = [local(patches, provisional) for patches in stream.earlier]
    return _largest(joined([*earlier, *nodes]), q)


def _local_residuals(chunk: Patches, provisional: Patches, q: int) -> Candidates:
    residuals = distances_to_nearest(chunk.z, provisional.z)
    return _largest(Candidates(chunk.z, chunk.origin, residuals), q)


def _largest(candidates: Patches, q: int, workers: int = 1) -> Candidates:
    assert isinstance(candidates, Candidates)
    return candidates.take(np.sort(np.argsort(-candidates.residual, kind="stable")[:q]))
