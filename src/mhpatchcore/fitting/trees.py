"""Trees over chunks of what is in the store: leaves are mapped, every `fan_in` nodes make one, nodes are entries.

A node is known by what it is made of: what leaves and closed nodes keep of their chunks, and which chunks these are. So
a fit that was killed goes on at the first node that is missing, and nodes serve every later fit that needs the same.
Whole subtrees are tasks. Far away they return keys alone, and nodes are merged there too until few are left. The shape
is fixed by the number of chunks: any workers give the same bits.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial, reduce
from math import log
from typing import Any, Generic, TypeVar

from mhpatchcore.fitting.execution import Execution, Executor, counted
from mhpatchcore.fitting.tasks import cut
from mhpatchcore.runtime.arrays import Array
from mhpatchcore.runtime.parallel import tree_nodes, whole_subtrees
from mhpatchcore.runtime.store import Store, entry_key

Item = TypeVar("Item")
Value = TypeVar("Value")

RUNS = (256, 16)  # chunks of a far away task: whole subtrees, whether 2, 4 or 16 nodes make one
RUNS_PER_WORKER = 4
MERGED = 16  # nodes that a far away task makes one of: whole subtrees too


@dataclass(frozen=True)
class Tree(Generic[Value]):
    """What becomes of chunks: `leaf(chunk)` is a node, nodes are merged in pairs, `close(node, workers=n)` ends one.

    All functions are module-level ones, or partials of them. Entries of leaves are of a `kind`, and known by `made_by`
    and what `identify` says of their chunk; a node is known by its children and `closed_by`. `pack` and `unpack` lead
    from a node to arrays and back. In a store that is kept, nodes are kept if they are `worth` it.
    """

    store: Store
    fan_in: int
    leaf: Callable[[Any], Value]
    merge: Callable[[Value, Value], Value]
    close: Callable[..., Value]
    identify: Callable[[Any], object]
    pack: Callable[[Value], Mapping[str, Array]]
    unpack: Callable[[Mapping[str, Array]], Value]
    kind: str
    made_by: Sequence[object] = ()
    closed_by: Sequence[object] = ()
    worth: Callable[[Value], bool] | None = None
    remote: bool = False

    def leaf_key(self, chunk: Any) -> str:
        return entry_key(self.kind, self.made_by, self.identify(chunk))

    def node_key(self, children: Sequence[str]) -> str:
        return entry_key("node", children, self.closed_by)

    def found(self, key: str) -> Value | None:
        arrays = self.store.found(key) if self.remote or self.store.kept else None
        return None if arrays is None else self.unpack(arrays)

    def kept(self, key: str, value: Value) -> Value:
        if self.remote or (self.store.kept and (self.worth is None or self.worth(value))):
            self.store.put(key, self.pack(value))
        return value

    def value(self, node: Node[Value]) -> Value:
        if node.value is not None:
            return node.value
        return reduce(self.merge, [self.unpack(self.store.get(key)) for key in node.keys])


@dataclass(frozen=True, eq=False)
class Node(Generic[Value]):
    """One or more nodes of a tree by their keys, and what they are together, if that is here."""

    keys: tuple[str, ...]
    value: Value | None


def grown(
    tree: Tree[Value], chunks: Sequence[Sequence[Any]], execution: Execution, advance: Callable[[int], None]
) -> list[Value]:
    """What remains of a tree over chunks, the largest nodes first; `advance` hears how many items are done."""
    runs_on = execution.runs_on
    runs = runs_of(chunks, tree.fan_in, runs_on)
    levels = [level for level, _ in runs]
    results = zip(runs, runs_on.map(partial(subtree, tree), [run for _, run in runs]), strict=True)
    nodes = (node for _, node in counted(results, advance, lambda result: sum(map(len, result[0][1]))))
    if tree.remote:
        merged_there, levels = _merged_there(tree, list(nodes), levels, runs_on)
        nodes = (node for node in merged_there)

    def joined(one: Node[Value], other: Node[Value]) -> Node[Value]:
        here = one.value is not None and other.value is not None
        return Node(one.keys + other.keys, tree.merge(one.value, other.value) if here else None)  # type: ignore[arg-type]

    def closed(node: Node[Value]) -> Node[Value]:
        key = tree.node_key(node.keys)
        found = tree.found(key)
        if found is None:
            workers = 1 if tree.remote else runs_on.workers
            found = tree.kept(key, tree.close(tree.value(node), workers=workers))
        return Node((key,), found)

    return [tree.value(node) for node in tree_nodes(nodes, tree.fan_in, joined, closed, levels)]


def subtree(tree: Tree[Value], run: Sequence[Any]) -> Node[Value]:
    """The root of a whole subtree over chunks, or over nodes by their keys: found, or made of what is found of it."""
    levels = [[one if isinstance(one, str) else tree.leaf_key(one) for one in run]]
    while len(levels[-1]) > 1:
        levels.append([tree.node_key(keys) for keys in cut(levels[-1], tree.fan_in)])

    def made(level: int, i: int) -> Value:
        key = levels[level][i]
        found = tree.found(key)
        if found is not None:
            return found
        if level == 0:
            # a node that is named by its key and cannot be found is damaged, which `get` says
            return (
                tree.unpack(tree.store.get(key))
                if isinstance(run[i], str)
                else tree.kept(key, tree.leaf(run[i]))
            )
        children = (made(level - 1, tree.fan_in * i + j) for j in range(tree.fan_in))
        return tree.kept(key, tree.close(reduce(tree.merge, children)))

    value = made(len(levels) - 1, 0)
    return Node((levels[-1][0],), None if tree.remote else value)


def runs_of(chunks: Sequence[Item], fan_in: int, executor: Executor) -> list[tuple[int, tuple[Item, ...]]]:
    """The tasks over some chunks: whole subtrees of their tree, each with its level; single chunks, if nothing is far.

    Far away a task is as large as leaves every worker a few: a scheduler is slowed down by many, and only the root of
    each subtree is asked for.
    """
    most = RUNS_PER_WORKER * executor.workers
    run = next((size for size in RUNS if len(chunks) >= most * size), 1) if executor.remote else 1
    levels = round(log(run, fan_in))
    return [(level, tuple(some)) for level, some in whole_subtrees(chunks, fan_in, levels)]


def _merged_there(
    tree: Tree[Value], nodes: list[Node[Value]], levels: list[int], runs_on: Executor
) -> tuple[list[Node[Value]], list[int]]:
    """Nodes merged by tasks, as long as there are many of the highest level; what is left, with its levels."""
    size = max(MERGED, tree.fan_in)
    while levels and (full := levels.count(levels[0]) // size * size) >= 2 * size:
        groups = cut([key for node in nodes[:full] for key in node.keys], size)
        higher = list(runs_on.map(partial(subtree, tree), groups))
        above = levels[0] + round(log(size, tree.fan_in))
        nodes, levels = [*higher, *nodes[full:]], [above] * len(higher) + levels[full:]
    return nodes, levels
