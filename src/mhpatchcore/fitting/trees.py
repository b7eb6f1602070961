"""Trees over chunks of what is in the store: leaves are mapped, every `fan_in` nodes make one, nodes are entries.

A node is known by what it is made of: what leaves and closed nodes keep of their chunks, and which chunks these are. So
a fit that was killed goes on at the first node that is missing, and nodes serve every later fit that needs the same.
Whole subtrees are tasks. Far away they return keys alone, and nodes are merged there too until few are left. The shape
is fixed by the number of chunks: any workers give the same bits.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial, reduce
from math import log
from typing import Any, Generic, Protocol, Self, TypeVar

from mhpatchcore.fitting.execution import Executor, Progress
from mhpatchcore.runtime.arrays import Array
from mhpatchcore.runtime.parallel import tree_nodes, whole_subtrees
from mhpatchcore.runtime.store import Store, entry_key

Item = TypeVar("Item")

RUNS = (256, 16)  # chunks of a far away task: whole subtrees, whether 2, 4 or 16 nodes make one
RUNS_PER_WORKER = 4
MERGED = 16  # nodes that a far away task makes one of: whole subtrees too


class Summary(Protocol):
    """What a node holds."""

    @property
    def arrays(self) -> Mapping[str, Array]: ...

    def merge(self, other: Self) -> Self: ...


Value = TypeVar("Value", bound=Summary)


@dataclass(frozen=True)
class Tree(ABC, Generic[Value]):
    """What becomes of chunks: each makes a leaf, nodes are merged in pairs, and `fan_in` of them are closed as one.

    Trees travel to their tasks, so their fields are small and picklable.
    """

    store: Store
    remote: bool
    fan_in: int

    @abstractmethod
    def leaf(self, chunk: Any) -> Value: ...

    @abstractmethod
    def leaf_key(self, chunk: Any) -> str:
        """A key of all that decides a leaf."""

    @abstractmethod
    def unpack(self, arrays: Mapping[str, Array]) -> Value: ...

    def close(self, node: Value, workers: int = 1) -> Value:
        return node

    def closed_by(self) -> list[object]:
        """What decides a closed node, besides its children."""
        return []

    def is_worth_keeping(self, value: Value) -> bool:
        """Whether a node that no task needs is kept for later fits."""
        return True

    def node_key(self, children: Sequence[str]) -> str:
        return entry_key("node", children, self.closed_by())

    def get(self, key: str) -> Value:
        return self.unpack(self.store.get(key))

    def kept(self, key: str, make: Callable[[], Value]) -> Value:
        """A node that is found in the store, or made and kept there."""
        if not (self.remote or self.store.kept):
            return make()
        found = self.store.found(key)
        if found is not None:
            return self.unpack(found)
        value = make()
        if self.remote or self.is_worth_keeping(value):
            self.store.put(key, value.arrays)
        return value


def reduce_tree(
    tree: Tree[Value], chunks: Sequence[Sequence[Any]], executor: Executor, phase: Progress, of: int = 0
) -> list[Value]:
    """What remains of a tree over chunks, the largest nodes first; the phase hears of their items, `of` in all."""
    runs = runs_of(chunks, tree.fan_in, executor)
    levels = [level for level, _ in runs]
    results = zip(runs, executor.map(partial(subtree, tree), [run for _, run in runs]), strict=True)
    roots: Iterable[Any] = (
        root for _, root in phase.over(results, lambda result: sum(map(len, result[0][1])), of)
    )
    if tree.remote:
        keys, levels = _merged_there(tree, [key for key, _ in roots], levels, executor)
        roots = ((key, tree.get(key)) for key in keys)

    def join(one: Node[Value], other: Node[Value]) -> Node[Value]:
        return one[0] + other[0], one[1].merge(other[1])

    def close(node: Node[Value]) -> Node[Value]:
        key, workers = tree.node_key(node[0]), 1 if tree.remote else executor.workers
        return (key,), tree.kept(key, partial(tree.close, node[1], workers))

    nodes: Iterable[Node[Value]] = (((key,), value) for key, value in roots)
    return [value for _, value in tree_nodes(nodes, tree.fan_in, join, close, levels)]


Node = tuple[tuple[str, ...], Value]  # one or more nodes by their keys, and what they are together


def subtree(tree: Tree[Value], run: Sequence[Any]) -> tuple[str, Value | None]:
    """The root of a whole subtree over chunks, or over nodes by their keys: its key and, unless far away, its value."""
    levels = [[one if isinstance(one, str) else tree.leaf_key(one) for one in run]]
    while len(levels[-1]) > 1:
        levels.append([tree.node_key(keys) for keys in cut(levels[-1], tree.fan_in)])

    def node(level: int, i: int) -> Value:
        key = levels[level][i]
        # a node that is given by its key and cannot be found is damaged, which `get` says
        is_given = level == 0 and isinstance(run[i], str)
        return tree.get(key) if is_given else tree.kept(key, partial(made, level, i))

    def made(level: int, i: int) -> Value:
        if level == 0:
            return tree.leaf(run[i])
        children = (node(level - 1, tree.fan_in * i + j) for j in range(tree.fan_in))
        return tree.close(reduce(lambda one, other: one.merge(other), children))

    value = node(len(levels) - 1, 0)
    return levels[-1][0], None if tree.remote else value


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
    tree: Tree[Value], keys: list[str], levels: list[int], executor: Executor
) -> tuple[list[str], list[int]]:
    """Nodes merged by tasks, as long as there are many of the highest level; what is left, with its levels."""
    size = max(MERGED, tree.fan_in)
    while levels and (full := levels.count(levels[0]) // size * size) >= 2 * size:
        higher = [key for key, _ in executor.map(partial(subtree, tree), cut(keys[:full], size))]
        above = levels[0] + round(log(size, tree.fan_in))
        keys, levels = higher + keys[full:], [above] * len(higher) + levels[full:]
    return keys, levels


def cut(items: Sequence[Item], size: int) -> tuple[tuple[Item, ...], ...]:
    """
    >>> cut("abcde", 2)
    (('a', 'b'), ('c', 'd'), ('e',))
    """
    return tuple(tuple(items[i : i + size]) for i in range(0, len(items), size))
