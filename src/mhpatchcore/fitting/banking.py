"""The second and third pass: what patches of a scale are measured by, and the bank of whitened patches.

The metric comes from moments: reduction, shrinkage, whitening. The bank comes from trees over the store (`trees.py`);
summaries of chunks serve every K that takes as much of each chunk.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial, reduce
from typing import Any, NamedTuple

import numpy as np

from mhpatchcore.backbone.stored import StoredView, aligned, raw_rows, views_at
from mhpatchcore.bank.constructors import Candidates, build_bank
from mhpatchcore.bank.patches import Growth, Patches, Stream, join
from mhpatchcore.fitting.execution import counted
from mhpatchcore.fitting.extraction import Extraction
from mhpatchcore.fitting.tasks import bank_chunks, cut, load_patches, put_metric, put_patches, whitened
from mhpatchcore.fitting.trees import Tree, grown
from mhpatchcore.metric import shrinkage
from mhpatchcore.metric.moments import Moments
from mhpatchcore.metric.reduction import (
    IncrementalPca,
    Reduction,
    no_reduction,
    reduce_by,
    reduce_by_correlation,
    reduce_by_ipca,
)
from mhpatchcore.metric.whitening import Whitening, fit_whitening
from mhpatchcore.runtime.arrays import Array, Doubles
from mhpatchcore.runtime.parallel import ordered_map
from mhpatchcore.runtime.store import Store

Chunk = Sequence[StoredView]


class Metric(NamedTuple):
    """What patches of one scale are measured by; `variances` (d,) are those of all principal directions."""

    moments: Moments
    variances: Doubles
    whitening: Whitening


def metric_at(extraction: Extraction, scale: int) -> Metric:
    """The metric of what was extracted, on top of the previous models."""
    config = extraction.config
    known = [one.scales[scale].moments for one in extraction.previous]
    new = extraction.moments[scale : scale + 1]  # there may be no new images
    moments = reduce(Moments.merge, [*known, *new])
    with extraction.execution.phase("metric", 1) as advance:
        reduction = _reduction(extraction, moments, scale)
        lam = choose_shrinkage(extraction, moments, reduction, scale)
        floor = 0.0 if config.shrinkage == "none" else config.floor  # the paper's "jitter only"
        whitening = fit_whitening(moments, reduction, lam, floor, config.metric)
        advance(1)
    return Metric(moments, reduction.variances, whitening)


def _reduction(extraction: Extraction, moments: Moments, scale: int) -> Reduction:
    config = extraction.config
    if config.reduction == "none":
        return no_reduction(moments)
    if config.reduction == "correlation":
        return reduce_by_correlation(moments, config.variance, config.components)
    # a model that grows has no IPCA to go on with, but its exact covariance gives the same directions
    if config.reduction == "pca" or extraction.previous:
        return reduce_by(moments, config.variance, config.components)
    pca = IncrementalPca(moments.d)
    for chunk in cut(views_at(scale, extraction.learnt), config.chunk_images):
        pca.add(aligned(extraction.store, chunk))
    return reduce_by_ipca(pca, config.variance, config.components)


def choose_shrinkage(extraction: Extraction, moments: Moments, reduction: Reduction, scale: int) -> float:
    """λ by the configured policy, on the covariance in the reduced space."""
    config = extraction.config
    policy = config.shrinkage
    if not isinstance(policy, str):
        return float(policy)
    if policy == "none" or config.metric == "euclidean":
        return 0.0
    W = reduction.W
    eigenvalues = np.linalg.eigvalsh(W.T @ moments.covariance @ W)
    if policy == "oas":
        return shrinkage.oas(eigenvalues, moments.n)
    if policy == "rblw":
        return shrinkage.rblw(eigenvalues, moments.n)
    directions = extraction.store.put_by_content("directions", {"W": W, "mean": moments.mean})
    task = partial(fourth_moment, extraction.store, directions)
    views = views_at(scale, extraction.learnt)
    fourth = sum(extraction.execution.runs_on.map(task, cut(views, config.chunk_images)))
    return shrinkage.ledoit_wolf(eigenvalues, moments.n, fourth / moments.n)


def fourth_moment(store: Store, directions: str, chunk: Sequence[StoredView]) -> float:
    """Σ ‖Wᵀ(u − mean)‖⁴ over all patches of some views, for Ledoit–Wolf; W and mean are an entry of the store."""
    known = store.get(directions)
    squares = (((aligned(store, chunk) - known["mean"]) @ known["W"]) ** 2).sum(axis=1)
    return float(squares @ squares)


def bank_at(extraction: Extraction, metric: Metric, scale: int, advance: Callable[[int], None]) -> Patches:
    """The constructor over the whitened patches of all images; `advance` hears how many of these are done."""
    store, config, execution = extraction.store, extraction.config, extraction.execution
    views = views_at(scale, extraction.learnt)
    chunks = bank_chunks(views, config)
    key = put_metric(store, metric.whitening)
    old = (one.scales[scale] for one in extraction.previous)
    read = partial(whitened, store, key)

    def images_done(done: int) -> None:
        advance(done * len(extraction.learnt) // len(views))

    def patches() -> Iterator[Patches]:
        every = zip(chunks, ordered_map(read, chunks, execution.workers), strict=True)
        return (one for _, one in counted(every, images_done, lambda pair: len(pair[0])))

    def nodes(growth: Growth) -> list[Patches]:
        against = None if growth.against is None else put_patches(store, growth.against)
        tree = Tree(
            store,
            growth.fan_in,
            leaf=partial(_summary, store, key, growth.leaf, against),
            merge=join,
            close=growth.close,
            identify=_views,
            pack=_arrays,
            unpack=_patches,
            kind="summary",
            made_by=[key, _describe(growth.leaf), against],
            closed_by=_describe(growth.close),
            remote=execution.runs_on.remote,
        )
        return grown(tree, chunks, execution, images_done)

    stream = Stream(
        len(chunks),
        patches,
        nodes,
        earlier=tuple(Patches(metric.whitening(one.raw), one.origin) for one in old),
        workers=execution.workers,
        select_progress=partial(execution.progress, "select"),
    )
    return build_bank(stream, config, metric.moments.n)


def _summary(
    store: Store, metric: str, leaf: Callable[..., Patches], against: str | None, chunk: Chunk
) -> Patches:
    """What a constructor keeps of a chunk, which it may compare with a bank, an entry of the store."""
    patches = whitened(store, metric, chunk)
    return leaf(patches) if against is None else leaf(patches, load_patches(store, against))


def _views(chunk: Chunk) -> object:
    return [(view.image, view.view, view.entry, view.position) for view in chunk]


def _arrays(patches: Patches) -> Mapping[str, Array]:
    return patches.arrays


def _patches(arrays: Mapping[str, Array]) -> Patches:
    return Candidates(**arrays) if "residual" in arrays else Patches(**arrays)


def _describe(function: Any) -> list[object]:
    """What a partial of a module-level function does."""
    return [function.func.__qualname__, function.keywords]


def raw_rows_of(
    bank: Patches, extraction: Extraction, whitening: Whitening, scale: int, grid: tuple[int, int]
) -> Array:
    """The raw descriptors (K, d) of the bank's rows, from the store or from the models that grew; halves.

    Centroids come from no single patch: theirs are those that whiten to them, in float32.
    """
    if (bank.origin[:, 0] < 0).any():
        return whitening.inverse(bank.z)
    raw = np.empty((len(bank), len(whitening.mean)), np.float16)
    for one in extraction.previous:
        old = {tuple(origin): row for row, origin in enumerate(one.scales[scale].origin.tolist())}
        kept = [(i, old[tuple(o)]) for i, o in enumerate(bank.origin.tolist()) if tuple(o) in old]
        if kept:
            places, old_rows = zip(*kept, strict=True)
            raw[list(places)] = one.scales[scale].raw[list(old_rows)]
    _, columns = grid
    wanted, places_of = [], []
    by_view = {(view.image, view.view): view for view in views_at(scale, extraction.learnt)}
    origins, views = bank.origin, np.unique(bank.origin[:, :2], axis=0)
    for image, number in views.tolist():
        if (image, number) in by_view:
            rows = np.flatnonzero((origins[:, 0] == image) & (origins[:, 1] == number))
            wanted.append((by_view[image, number], origins[rows, 2] * columns + origins[rows, 3]))
            places_of.append(rows)
    found = extraction.execution.runs_on.map(partial(raw_rows, extraction.store), wanted)
    for rows, values in zip(places_of, found, strict=True):
        raw[rows] = values
    return raw
