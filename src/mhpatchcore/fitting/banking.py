"""The third pass: the bank of whitened patches.

It is made by trees over the store: whole subtrees are tasks, and nodes are entries, found again after a crash.

A node is known by what it is made of: the metric, the views of its chunks, and what leaves and closed nodes keep of
them. So a fit that was killed goes on at the first node that is missing, and summaries serve every K that takes as much
of each chunk. Far away, tasks return keys alone, and nodes are merged there too until few are left.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from math import log
from typing import Any

import numpy as np

from mhpatchcore.backbone.stored import Located, raw_rows, views_at
from mhpatchcore.bank import build_bank
from mhpatchcore.bank.geores import Candidates
from mhpatchcore.bank.patches import Growth, Patches, Stream
from mhpatchcore.fitting.executor import Executor
from mhpatchcore.fitting.extraction import Extraction
from mhpatchcore.fitting.metric import Metric
from mhpatchcore.fitting.plan import bank_chunks, cut, runs_of
from mhpatchcore.fitting.tasks import load_patches, put_metric, put_patches, whitened
from mhpatchcore.metric.whitening import Whitening
from mhpatchcore.runtime.arrays import Array
from mhpatchcore.runtime.parallel import tree_nodes
from mhpatchcore.runtime.store import Store, entry_key

MERGED = 16  # nodes that a far away task makes one of: whole subtrees, whether 2 or 4 make one

Chunk = Sequence[Located]


def bank_at(extraction: Extraction, metric: Metric, scale: int, advance: Callable[[int], None]) -> Patches:
    """The constructor over the whitened patches of all images."""
    config, execution, images = extraction.config, extraction.execution, len(extraction.learnt)
    chunks = bank_chunks(views_at(scale, extraction.learnt), config)
    whitening, patches = metric.whitening, metric.moments.n
    key = put_metric(extraction.store, whitening)
    old = (one.scales[scale] for one in extraction.previous)
    earlier = tuple(Patches(whitening(one.raw), one.origin) for one in old)

    def progress(phase: str, done: int, total: int) -> None:
        if phase == "bank":  # chunks are reported as images
            advance(done * images // total)
        else:
            execution.progress(phase, done, total)

    read = partial(whitened, extraction.store, key)
    trees = partial(reduce_trees, extraction.store, key, chunks, execution.runs_on)
    return build_bank(Stream(read, chunks, earlier, execution.workers, progress, trees), config, patches)


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


@dataclass(frozen=True)
class Tree:
    """A growth over the store: its functions, and the keys of the metric and of the bank that leaves are compared with.

    Nodes are `kept` as entries, and travel only where nothing is `remote`.
    """

    store: Store
    metric: str
    fan_in: int
    leaf: Callable[..., Patches]
    close: Callable[..., Patches]
    against: str | None
    remote: bool

    @property
    def kept(self) -> bool:
        return self.remote or self.store.kept


@dataclass(frozen=True, eq=False)
class Node:
    """One or more nodes of a tree by their keys, and their patches, if they are here."""

    keys: tuple[str, ...]
    patches: Patches | None


def reduce_trees(
    store: Store,
    metric: str,
    chunks: Sequence[Chunk],
    runs_on: Executor,
    growth: Growth,
    advance: Callable[[int], None],
) -> list[Patches]:
    """What remains of a tree over chunks of views, the largest nodes first."""
    against = None if growth.against is None else put_patches(store, growth.against)
    tree = Tree(store, metric, growth.fan_in, growth.leaf, growth.close, against, runs_on.remote)
    runs = runs_of(chunks, tree.fan_in, runs_on)
    levels = [level for level, _ in runs]
    nodes = _subtrees([run for _, run in runs], tree, runs_on, advance)
    if tree.remote:
        nodes, levels = _merged_there(tree, list(nodes), levels, runs_on)
    close = partial(_closed, tree, 1 if tree.remote else runs_on.workers)
    return [_patches(tree, node) for node in tree_nodes(nodes, tree.fan_in, _joined, close, levels)]


def _subtrees(
    runs: Sequence[Sequence[Chunk]], tree: Tree, runs_on: Executor, advance: Callable[[int], None]
) -> Iterable[Node]:
    done = 0
    for run, node in zip(runs, runs_on.map(partial(subtree, tree), runs), strict=True):
        yield node
        done += len(run)
        advance(done)


def subtree(tree: Tree, run: Sequence[Chunk | str]) -> Node:
    """The root of a whole subtree over chunks, or over nodes by their keys: found, or made of what is found of it."""
    levels = [[one if isinstance(one, str) else _leaf_key(tree, one) for one in run]]
    while len(levels[-1]) > 1:
        levels.append([_node_key(tree, keys) for keys in cut(levels[-1], tree.fan_in)])

    def node(level: int, i: int) -> Patches:
        key, fan_in = levels[level][i], tree.fan_in
        found = _found(tree, key)
        if found is not None:
            return found
        if level == 0:
            patches = _summary(tree, run[i])
        else:
            patches = tree.close(Patches.concat([node(level - 1, fan_in * i + j) for j in range(fan_in)]))
        return _kept(tree, key, patches)

    patches = node(len(levels) - 1, 0)
    return Node((levels[-1][0],), None if tree.remote else patches)


def _merged_there(
    tree: Tree, nodes: list[Node], levels: list[int], runs_on: Executor
) -> tuple[list[Node], list[int]]:
    """Nodes merged by tasks, as long as there are many of the highest level; what is left, with its levels."""
    while levels and (full := levels.count(levels[0]) // MERGED * MERGED) >= 2 * MERGED:
        groups = cut([key for node in nodes[:full] for key in node.keys], MERGED)
        higher = list(runs_on.map(partial(subtree, tree), groups))
        above = levels[0] + round(log(MERGED, tree.fan_in))
        nodes, levels = [*higher, *nodes[full:]], [above] * len(higher) + levels[full:]
    return nodes, levels


def _summary(tree: Tree, chunk: Chunk | str) -> Patches:
    if isinstance(chunk, str):
        return _of(tree.store.get(chunk))
    patches = whitened(tree.store, tree.metric, chunk)
    if tree.against is None:
        return tree.leaf(patches)
    return tree.leaf(patches, load_patches(tree.store, tree.against))


def _joined(one: Node, other: Node) -> Node:
    here = [node.patches for node in (one, other) if node.patches is not None]
    return Node(one.keys + other.keys, Patches.concat(here) if len(here) == 2 else None)


def _closed(tree: Tree, workers: int, node: Node) -> Node:
    key = _node_key(tree, node.keys)
    found = _found(tree, key)
    if found is None:
        found = _kept(tree, key, tree.close(_patches(tree, node), workers=workers))
    return Node((key,), found)


def _patches(tree: Tree, node: Node) -> Patches:
    if node.patches is not None:
        return node.patches
    return Patches.concat([_of(tree.store.get(key)) for key in node.keys])


def _found(tree: Tree, key: str) -> Patches | None:
    arrays = tree.store.found(key) if tree.kept else None
    return None if arrays is None else _of(arrays)


def _kept(tree: Tree, key: str, patches: Patches) -> Patches:
    if tree.kept:
        tree.store.put(key, patches.arrays)
    return patches


def _of(arrays: dict[str, Any]) -> Patches:
    return Candidates(**arrays) if "residual" in arrays else Patches(**arrays)


def _leaf_key(tree: Tree, chunk: Chunk) -> str:
    views = [(view.image, view.view, view.entry, view.position) for view in chunk]
    return entry_key("summary", tree.metric, views, _describe(tree.leaf), tree.against)


def _node_key(tree: Tree, keys: Sequence[str]) -> str:
    return entry_key("node", keys, _describe(tree.close))


def _describe(function: Any) -> list[object]:
    """What a partial of a module-level function does."""
    return [function.func.__qualname__, function.keywords]
