"""What patches of a scale are measured by, and the bank of whitened patches.

The metric comes from moments: reduction, shrinkage, whitening. Moments and the bank come from trees over the store
(`trees.py`); summaries of chunks serve every K that takes as much of each chunk.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial, reduce
from typing import Any, NamedTuple

import numpy as np

from mhpatchcore.backbone.stored import (
    StoredImage,
    StoredView,
    aligned,
    counting,
    raw_rows,
    stored_inside,
    stored_maps,
    views_at,
)
from mhpatchcore.bank.constructors import Candidates, Patches, Selection, Stream, build_bank, grid_origin
from mhpatchcore.config import Config
from mhpatchcore.fitting.execution import Execution, Progress
from mhpatchcore.fitting.extraction import Extraction, images_at_once
from mhpatchcore.fitting.trees import Tree, cut, reduce_tree
from mhpatchcore.metric import shrinkage
from mhpatchcore.metric.moments import Moments
from mhpatchcore.metric.reduction import Reduction, no_reduction, reduce_by, reduce_by_ipca
from mhpatchcore.metric.whitening import Whitening, fit_whitening
from mhpatchcore.runtime.arrays import Array, Doubles
from mhpatchcore.runtime.parallel import Memoised, ordered_map
from mhpatchcore.runtime.store import Store, entry_key

MOMENTS_FAN_IN = 16
WORTH_KEEPING = 8  # patches for each dimension: fewer would take less room than their moments


class Metric(NamedTuple):
    """What patches of one scale are measured by; `variances` (d,) are those of all principal directions."""

    moments: Moments
    variances: Doubles
    whitening: Whitening


def metric_at(extraction: Extraction, scale: int) -> Metric:
    """The metric of what was extracted, on top of the previous models."""
    config = extraction.config
    moments = reduce(Moments.merge, moments_at(extraction, scale))
    with extraction.execution.phase("metric", 1):
        reduction = _reduction(extraction, moments, scale)
        lam = choose_shrinkage(extraction, moments, reduction, scale)
        floor = 0.0 if config.shrinkage == "none" else config.floor  # the paper's "jitter only"
        whitening = fit_whitening(moments, reduction, lam, floor, config.metric)
    return Metric(moments, reduction.variances, whitening)


@dataclass(frozen=True)
class MomentsTree(Tree[Moments]):
    """Moments of all patches of some images at one scale, of so many views at a time."""

    scale: int
    block: int

    def leaf(self, chunk: Sequence[StoredImage]) -> Moments:
        blocks = cut(views_at(self.scale, chunk), self.block)
        return reduce(Moments.merge, (moments_of(self.store, views) for views in blocks))

    def leaf_key(self, chunk: Sequence[StoredImage]) -> str:
        views = [(view.entry, view.position) for view in views_at(self.scale, chunk)]
        return entry_key("moments", self.block, views)

    def unpack(self, arrays: Mapping[str, Array]) -> Moments:
        return Moments(int(arrays["n"][0]), arrays["mean"], arrays["M2"], arrays["rest"])

    def is_worth_keeping(self, value: Moments) -> bool:
        return WORTH_KEEPING * value.d <= value.n


def moments_at(extraction: Extraction, scale: int) -> list[Moments]:
    """Those of the previous models, and of all images that are learnt from, if there are any."""
    known = [one.scales[scale].moments for one in extraction.previous]
    images, config, runs_on = extraction.learnt, extraction.config, extraction.execution.runs_on
    tree = MomentsTree(extraction.store, runs_on.remote, MOMENTS_FAN_IN, scale, config.chunk_images)
    with extraction.execution.phase("moments", len(images)) as phase:
        nodes = reduce_tree(tree, cut(images, images_at_once(config)), runs_on, phase)
    return [*known, reduce(Moments.merge, nodes)] if nodes else known


def moments_of(store: Store, views: Sequence[StoredView]) -> Moments:
    if any(view.masked for view in views):
        return Moments.of(aligned(store, views))
    each = [stored_maps(store, view) for view in views]
    return Moments.of_maps([np.stack(layers) for layers in zip(*each, strict=True)])


def _reduction(extraction: Extraction, moments: Moments, scale: int) -> Reduction:
    config = extraction.config
    if config.reduction == "none":
        return no_reduction(moments)
    # a model that grows has no IPCA to go on with, but its exact covariance gives the same directions
    if config.reduction == "ipca" and not extraction.previous:
        chunks = cut(views_at(scale, extraction.learnt), config.chunk_images)
        rows = (aligned(extraction.store, chunk) for chunk in chunks)
        return reduce_by_ipca(rows, config.variance, config.components)
    return reduce_by(moments, config.variance, config.components, config.reduction == "correlation")


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


def bank_at(extraction: Extraction, metric: Metric, scale: int, phase: Progress) -> Patches:
    """The constructor over the whitened patches of all images."""
    config, execution = extraction.config, extraction.execution
    key = put_metric(extraction.store, metric.whitening)
    earlier = (one.scales[scale] for one in extraction.previous)
    stream = StoredPatches(
        bank_chunks(views_at(scale, extraction.learnt), config),
        execution.workers,
        tuple(Patches(metric.whitening(one.raw), one.origin) for one in earlier),
        partial(whitened, extraction.store, key),
        store=extraction.store,
        metric=key,
        execution=execution,
        phase=phase,
    )
    return build_bank(stream, config, metric.moments.n)


def bank_chunks(views: Sequence[StoredView], config: Config) -> tuple[tuple[StoredView, ...], ...]:
    """The chunks that make the bank: views in random order, or as they come if the configuration does not shuffle.

    Images that stand side by side are often alike, taken one after the other of the same lot. A chunk of them would
    spend its share of the bank on small differences.
    """
    if not config.shuffle:
        return cut(views, config.chunk_images)
    order = np.random.default_rng(config.seed).permutation(len(views))
    return cut([views[i] for i in order], config.chunk_images)


@dataclass(frozen=True, eq=False, kw_only=True)
class StoredPatches(Stream):
    """The whitened patches of views in the store, whose trees are kept there."""

    store: Store
    metric: str
    execution: Execution
    phase: Progress

    def patches(self) -> Iterator[Patches]:
        every = zip(self.chunks, ordered_map(self.read, self.chunks, self.workers), strict=True)
        return (one for _, one in self.phase.over(every, lambda pair: len(pair[0]), self._views))

    def nodes(
        self, fan_in: int, leaf: Selection, close: Selection, against: Patches | None = None
    ) -> list[Patches]:
        runs_on = self.execution.runs_on
        bank = None if against is None else put_patches(self.store, against)
        tree = BankTree(self.store, runs_on.remote, fan_in, self.metric, leaf, close, bank)
        return reduce_tree(tree, self.chunks, runs_on, self.phase, self._views)

    def selected(self, chosen: int, size: int) -> None:
        self.execution.progress("select", chosen, size)

    @property
    def _views(self) -> int:
        return sum(map(len, self.chunks))


@dataclass(frozen=True)
class BankTree(Tree[Patches]):
    """What a constructor keeps of whitened patches, which it may compare with a bank; both are entries of the store."""

    metric: str
    summary: Selection
    reduced: Selection
    against: str | None

    def leaf(self, chunk: Sequence[StoredView]) -> Patches:
        patches = whitened(self.store, self.metric, chunk)
        bank = () if self.against is None else (load_patches(self.store, self.against),)
        return self.summary(patches, *bank)

    def leaf_key(self, chunk: Sequence[StoredView]) -> str:
        views = [(view.image, view.view, view.entry, view.position) for view in chunk]
        return entry_key("summary", [self.metric, _described(self.summary), self.against], views)

    def close(self, node: Patches, workers: int = 1) -> Patches:
        return self.reduced(node, workers=workers)

    def closed_by(self) -> list[object]:
        return _described(self.reduced)

    def unpack(self, arrays: Mapping[str, Array]) -> Patches:
        return Candidates(**arrays) if "residual" in arrays else Patches(**arrays)


def _described(function: Any) -> list[object]:
    """What a partial of a module-level function does."""
    return [function.func.__qualname__, function.keywords]


def whitened(store: Store, metric: str, chunk: Sequence[StoredView]) -> Patches:
    """The whitened patches of some views, with their origin."""
    whitening, parts = load_metric(store, metric), []
    for view in chunk:
        maps, inside = stored_maps(store, view), stored_inside(store, view)
        origin = grid_origin([view.image], maps[0].shape[1:], view.view)
        parts.append(Patches(counting(whitening.of_maps(maps), inside), counting(origin, inside)))
    return Patches.concat(parts)


def put_metric(store: Store, whitening: Whitening) -> str:
    return store.put_by_content("metric", {"A": whitening.A, "mean": whitening.mean})


@Memoised
def load_metric(store: Store, key: str) -> Whitening:
    return Whitening(**store.get(key), lam=0.0, jitter=0.0, retained=0.0)


def put_patches(store: Store, patches: Patches) -> str:
    return store.put_by_content("patches", patches.arrays)


@Memoised
def load_patches(store: Store, key: str) -> Patches:
    return Patches(**store.get(key))


def raw_rows_of(
    bank: Patches, extraction: Extraction, whitening: Whitening, scale: int, grid: tuple[int, int]
) -> Array:
    """The raw descriptors (K, d) of the bank's rows, from the store or from the models that grew; halves.

    Centroids come from no single patch: theirs are those that whiten to them, in float32.
    """
    if (bank.origin[:, 0] < 0).any():
        return whitening.inverse(bank.z)
    known = {
        tuple(origin): row
        for one in extraction.previous
        for origin, row in zip(one.scales[scale].origin.tolist(), one.scales[scale].raw, strict=True)
    }
    raw, rows_of = np.empty((len(bank), len(whitening.mean)), np.float16), defaultdict(list)
    for i, origin in enumerate(map(tuple, bank.origin.tolist())):
        if origin in known:
            raw[i] = known[origin]
        else:
            rows_of[origin[:2]].append(i)
    views = {(view.image, view.view): view for view in views_at(scale, extraction.learnt)}
    cells = bank.origin[:, 2] * grid[1] + bank.origin[:, 3]
    wanted = [(views[place], cells[rows]) for place, rows in rows_of.items()]
    found = extraction.execution.runs_on.map(partial(raw_rows, extraction.store), wanted)
    for rows, values in zip(rows_of.values(), found, strict=True):
        raw[rows] = values
    return raw
