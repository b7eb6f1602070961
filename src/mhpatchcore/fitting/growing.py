"""The bank's tree over the store: whole subtrees are tasks, and nodes are entries, found again after a crash.

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

from mhpatchcore.bank.geores import Candidates
from mhpatchcore.bank.patches import Growth, Patches
from mhpatchcore.fitting.executor import Executor
from mhpatchcore.fitting.plan import Located, cut, runs_of
from mhpatchcore.fitting.store import Store, entry_key
from mhpatchcore.fitting.tasks import load_patches, put_patches, whitened
from mhpatchcore.runtime.trees import tree_nodes

MERGED = 16  # nodes that a far away task makes one of: whole subtrees, whether 2 or 4 make one

Chunk = Sequence[Located]


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


def grown(
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
    nodes = _told_nodes([run for _, run in runs], tree, runs_on, advance)
    if tree.remote:
        nodes, levels = _merged_there(tree, list(nodes), levels, runs_on)
    close = partial(_closed, tree, 1 if tree.remote else runs_on.workers)
    return [_patches(tree, node) for node in tree_nodes(nodes, tree.fan_in, _joined, close, levels)]


def _told_nodes(
    runs: Sequence[Sequence[Chunk]], tree: Tree, runs_on: Executor, advance: Callable[[int], None]
) -> Iterable[Node]:
    done = 0
    for run, node in zip(runs, runs_on.map(partial(subtree, tree), runs), strict=True):
        yield node
        done += len(run)
        advance(done)


def subtree(tree: Tree, run: Sequence[Chunk]) -> Node:
    """The root over some chunks, a whole subtree."""
    keys = [_leaf_key(tree, chunk) for chunk in run]
    return _root(tree, keys, lambda i: _summary(tree, run[i]))


def merged(tree: Tree, keys: Sequence[str]) -> Node:
    """The root over some nodes, a whole subtree of them."""
    return _root(tree, keys, lambda i: _patches(tree, Node((keys[i],), None)))


def _merged_there(
    tree: Tree, nodes: list[Node], levels: list[int], runs_on: Executor
) -> tuple[list[Node], list[int]]:
    """Nodes merged by tasks, as long as there are many of the highest level; what is left, with its levels."""
    while levels and (full := levels.count(levels[0]) // MERGED * MERGED) >= 2 * MERGED:
        groups = cut([key for node in nodes[:full] for key in node.keys], MERGED)
        higher = list(runs_on.map(partial(merged, tree), groups))
        above = levels[0] + round(log(MERGED, tree.fan_in))
        nodes, levels = [*higher, *nodes[full:]], [above] * len(higher) + levels[full:]
    return nodes, levels


def _root(tree: Tree, leaves: Sequence[str], made: Callable[[int], Patches]) -> Node:
    """The root of a whole subtree: found, or made of what is found of it."""
    levels = [list(leaves)]
    while len(levels[-1]) > 1:
        levels.append([_node_key(tree, keys) for keys in cut(levels[-1], tree.fan_in)])

    def node(level: int, i: int) -> Patches:
        key, fan_in = levels[level][i], tree.fan_in
        found = _found(tree, key)
        if found is not None:
            return found
        if level == 0:
            patches = made(i)
        else:
            patches = tree.close(Patches.concat([node(level - 1, fan_in * i + j) for j in range(fan_in)]))
        return _kept(tree, key, patches)

    patches = node(len(levels) - 1, 0)
    return Node((levels[-1][0],), None if tree.remote else patches)


def _summary(tree: Tree, chunk: Chunk) -> Patches:
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
    return entry_key("summary", tree.metric, views, _told(tree.leaf), tree.against)


def _node_key(tree: Tree, keys: Sequence[str]) -> str:
    return entry_key("node", keys, _told(tree.close))


def _told(function: Any) -> list[object]:
    """What a partial of a module-level function does."""
    return [function.func.__qualname__, function.keywords]
