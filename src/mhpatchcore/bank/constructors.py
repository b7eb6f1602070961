"""Constructors turn a stream of whitened patches into a memory bank of at most K rows.

A constructor is a function from a stream, which can be read again, to the chosen patches. GeoReS reads it twice,
always-full again only where one pass leaves it short of K; the others once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields
from functools import partial
from typing import Any, Self

import numpy as np

from mhpatchcore.bank.farthest_first import FIRST, Start, farthest_first
from mhpatchcore.config import Config
from mhpatchcore.metric.distances import distances_to_nearest
from mhpatchcore.runtime.arrays import Array, Floats, Indices
from mhpatchcore.runtime.parallel import late_blas_limited, ordered_map, tree_nodes

CENTROID = -1  # in place of the image, where a row is not a single patch
FAN_IN = 4  # of the always-full tree
BATCH = 256  # by which scikit-learn sets the size of the sample that k-means starts from


@dataclass(frozen=True, eq=False)
class Patches:
    """n patches: whitened rows z (n, k) and origin (n, 4) = image, view, row, column."""

    z: Floats
    origin: Indices

    def __len__(self) -> int:
        return len(self.z)

    @property
    def arrays(self) -> dict[str, Array]:
        """All that is known of the patches, by name."""
        return {field.name: getattr(self, field.name) for field in fields(self)}

    def take(self, rows: Array) -> Self:
        return type(self)(**{name: array[rows] for name, array in self.arrays.items()})

    @classmethod
    def concat(cls, parts: Sequence[Self]) -> Self:
        if len(parts) == 1:
            return parts[0]
        columns = [part.arrays for part in parts]
        return type(parts[0])(**{name: np.concatenate([one[name] for one in columns]) for name in columns[0]})

    def merge(self, other: Self) -> Self:
        return self.concat([self, other])


Selection = Callable[..., Patches]


@dataclass(frozen=True, eq=False)
class Stream:
    """Chunks of patches, which can be read again: those in memory, or what `read` gives of each.

    `earlier` are the banks of models that are to grow: rows which stand for patches that cannot be read any more.
    """

    chunks: Sequence[Any]
    workers: int = 1
    earlier: tuple[Patches, ...] = ()
    read: Callable[[Any], Patches] = lambda chunk: chunk

    def patches(self) -> Iterator[Patches]:
        """Those of every chunk, in order."""
        return ordered_map(self.read, self.chunks, self.workers)

    def nodes(
        self, fan_in: int, leaf: Selection, close: Selection, against: Patches | None = None
    ) -> list[Patches]:
        """What remains of a tree of fixed shape over all chunks, the largest nodes first.

        `leaf(patches)`, or `leaf(patches, against)` where there is a bank to compare with, is a node, and every
        `fan_in` nodes that are joined and closed, `close(patches, workers=n)`, make one. Both are module-level
        functions, or partials of them with plain numbers.
        """
        bank = () if against is None else (against,)
        leaves = ordered_map(lambda chunk: leaf(self.read(chunk), *bank), self.chunks, self.workers)
        return tree_nodes(leaves, fan_in, Patches.merge, partial(close, workers=self.workers))

    def selected(self, chosen: int, size: int) -> None:
        """Hears how far a long selection is."""


def grid_origin(images: Sequence[int], grid: tuple[int, int], view: int = 0) -> Indices:
    """Origins (len(images)·h·w, 4) of all patches of one view of these images, in row-major order."""
    height, width = grid
    image, row, column = np.meshgrid(images, np.arange(height), np.arange(width), indexing="ij")
    columns = [image.ravel(), np.full(image.size, view), row.ravel(), column.ravel()]
    return np.stack(columns, axis=1).astype(np.int32)


def build_bank(stream: Stream, config: Config, patches: int) -> Patches:
    """The bank that the configuration asks for, of a stream that stands for so many patches."""
    c, start = config, Start(config.start, config.seed)
    match c.constructor:
        case "always-full":
            return always_full(stream, c.K, c.m_c, start)
        case "tree":
            return tree(stream, c.K, c.m_c, start)
        case "offline-greedy":
            rows = None if c.fraction else c.K
            return offline_greedy(stream, rows, c.fraction, c.projection, start, patches)
        case "kmeans":
            return mini_batch_kmeans(stream, c.K, c.seed)
        case _:
            return geores(stream, c.K, c.m_c, c.alpha, c.q, start)


def tree(stream: Stream, K: int, m_c: int, start: Start = FIRST) -> Patches:
    """The paper's merge-reduce k-center in bounded memory: chunks become farthest-first summaries, summaries merge.

        C_{ℓ+1} = Reduce(C_ℓ⁽¹⁾ ∪ C_ℓ⁽²⁾, m_c)

    A binary counter whose every node holds at most m_c rows. What remains of it at the end is reduced once more, to at
    most K rows; it is short of K whenever few nodes remain.
    """
    summarised = partial(reduced, size=m_c, start=start)
    nodes = stream.nodes(2, summarised, summarised)
    return reduced(Patches.concat([*stream.earlier, *nodes]), K, start, stream.workers)


def reduced(patches: Patches, size: int, start: Start = FIRST, workers: int = 1) -> Patches:
    """Greedy farthest-first selection of at most `size` rows; as they are where there are no more."""
    return patches.take(farthest_first(patches.z, size, start.of(patches.z), workers=workers))


def always_full(stream: Stream, K: int, m_c: int, start: Start = FIRST) -> Patches:
    """A merge-reduce bank that ends with min(K, distinct) rows, where the paper's tree falls short.

    Nodes may hold up to K rows instead of m_c. Every four nodes make one, so that a patch is judged anew only a few
    times on its way up, and a node is reduced only where it holds more than K rows. A chunk's summary is larger than
    m_c where few chunks have to fill K. If the bank still ends short of K (chunks with many duplicates), further passes
    add the rows farthest from it, until none is left.
    """
    local = max(m_c, -(-2 * K // max(len(stream.chunks), 1)))
    at_most = partial(_at_most, K=K, start=start)

    def grow(leaf: partial[Patches], against: Patches | None = None) -> list[Patches]:
        """The tree over the stream as one node of at most K rows; none where there are no chunks."""
        nodes = stream.nodes(FAN_IN, leaf, at_most, against)
        return [at_most(Patches.concat(nodes), workers=stream.workers)] if nodes else []

    nodes = grow(partial(reduced, size=local, start=start))
    bank = at_most(Patches.concat([*stream.earlier, *nodes]), workers=stream.workers)
    while len(bank) < K and stream.chunks:
        free = K - len(bank)
        (found,) = grow(partial(uncovered, size=free), bank)
        further = uncovered(found, bank, free)
        if len(further) == 0:
            break
        bank = Patches.concat([bank, further])
    return bank


def uncovered(patches: Patches, bank: Patches, size: int) -> Patches:
    """At most `size` patches that are farthest from the bank."""
    return patches.take(np.sort(farthest_first(patches.z, size, covered=bank.z)))


def _at_most(patches: Patches, K: int, start: Start, workers: int = 1) -> Patches:
    """At most K patches without duplicates: a node that is not reduced may hold equal patches of several chunks."""
    if len(patches) > K:
        return reduced(patches, K, start, workers)
    _, first = np.unique(patches.z + np.float32(0), axis=0, return_index=True)  # + 0 makes −0 equal to 0
    return patches.take(np.sort(first))


@dataclass(frozen=True, eq=False)
class Candidates(Patches):
    """Patches with their residuals (n,)."""

    residual: Floats


def geores(
    stream: Stream, K: int, m_c: int, alpha: float = 0.9, q: int | None = None, start: Start = FIRST
) -> Patches:
    """GeoReS, geometric residual selection: a k-center bank that spends part of its budget on poorly covered normals.

        pass 1   P = G_K(Z) provisional bank,  M₀ = G_{K₀}(Z) main bank,  K₀ = clip(round(αK), 1, K−1)
        pass 2   T_q = the q patches with the largest residual r_P(z) = min_{p∈P} ‖z − p‖
                 K_t = K − K₀ tail rows, farthest-first from T_q against M₀ and the tail chosen so far
        Π_K      remove duplicates, fill free places from the coverage pool, truncate to K

    The paper leaves q open; the authors' release takes q = K.
    """
    K0 = min(K - 1, max(1, round(alpha * K)))
    summarised = partial(reduced, size=m_c, start=start)
    nodes = [*stream.earlier, *stream.nodes(2, summarised, summarised)]
    provisional, main = (reduced(Patches.concat(nodes), size, start, stream.workers) for size in (K, K0))
    local = partial(_local_residuals, q=q or K)
    earlier = [local(patches, provisional) for patches in stream.earlier]
    found = stream.nodes(2, local, partial(_largest, q=q or K), provisional)
    T_q = _largest(Patches.concat([*earlier, *found]), q or K)
    tail = T_q.take(farthest_first(T_q.z, K - K0, covered=main.z))
    chosen, pool = Patches.concat([main, tail]), Patches.concat(nodes)
    _, first = np.unique(chosen.origin, axis=0, return_index=True)
    bank = chosen.take(np.sort(first)[:K])
    return Patches.concat([bank, pool.take(farthest_first(pool.z, K - len(bank), covered=bank.z))])


def _local_residuals(chunk: Patches, provisional: Patches, q: int) -> Candidates:
    residuals = distances_to_nearest(chunk.z, provisional.z)
    return _largest(Candidates(chunk.z, chunk.origin, residuals), q)


def _largest(candidates: Patches, q: int, workers: int = 1) -> Candidates:
    """The q largest residuals; equal ones in order of arrival."""
    assert isinstance(candidates, Candidates)
    return candidates.take(np.sort(np.argsort(-candidates.residual, kind="stable")[:q]))


def offline_greedy(
    stream: Stream,
    K: int | None = None,
    fraction: float | None = 0.1,
    projection: int | None = None,
    start: Start = FIRST,
    patches: int | None = None,
) -> Patches:
    """The original PatchCore's greedy coreset: the whole pool in memory, then farthest-first over all of it.

    K rows, or a `fraction` of all `patches` (those of the stream, where not given). The original takes two shortcuts:
    it chooses in 128 random directions (`projection`), and starts at `random`.
    """
    pool = Patches.concat([*stream.earlier, *stream.patches()])
    size = K if K is not None else max(1, int((patches or len(pool)) * (fraction or 0.1)))
    z = pool.z if projection is None else pool.z @ random_directions(pool.z.shape[1], projection, start.seed)
    return pool.take(farthest_first(z, size, start.of(z), None, stream.workers, stream.selected))


def random_directions(dim: int, size: int, seed: int) -> Floats:
    """A Gaussian matrix (dim, size) that keeps squared distances on average."""
    matrix: Floats = np.random.default_rng(seed).normal(size=(dim, size)) / np.sqrt(size)
    return matrix.astype(np.float32)


def mini_batch_kmeans(stream: Stream, K: int, seed: int = 0) -> Patches:
    """Mini-batch k-means with Robbins–Monro counts (Sculley 2010): centroids instead of observed patches.

    Each patch moves its centroid by 1/count towards itself. The paper leaves the start open; the authors' release takes
    scikit-learn's, k-means++ on a sample of the first patches, where centroids that take in next to nothing are put
    elsewhere. So does this. At most K centroids; fewer patches than that are their own.
    """
    from sklearn.cluster import MiniBatchKMeans

    kmeans = MiniBatchKMeans(K, batch_size=BATCH, n_init="auto", random_state=seed)
    waiting: list[Floats] = []
    started = False
    for chunk in stream.patches():
        waiting.append(chunk.z)
        if started or sum(map(len, waiting)) >= K:
            with late_blas_limited():
                kmeans.partial_fit(np.concatenate(waiting))
            waiting, started = [], True
    z: Floats = kmeans.cluster_centers_ if started else np.concatenate(waiting)
    return Patches(z, np.full((len(z), 4), CENTROID, np.int32))
