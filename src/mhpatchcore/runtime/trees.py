"""Reductions of a fixed shape: the same items in the same order give the same bits, wherever each part is computed."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar

Item = TypeVar("Item")


def tree_nodes(
    leaves: Iterable[Item],
    fan_in: int,
    merge: Callable[[Item, Item], Item],
    close: Callable[[Item], Item] = lambda node: node,
) -> list[Item]:
    """What is left of a tree in which every `fan_in` nodes of a level make one of the next: the largest first.

    Nodes are merged one by one as they come, and closed when they are complete; so a level holds one open node, and
    memory grows with the logarithm of the number of leaves.

    >>> tree_nodes("abcdefg", 2, lambda x, y: f"({x}{y})")
    ['((ab)(cd))', '(ef)', 'g']
    """
    open_nodes: list[Item | None] = []
    counts: list[int] = []
    for leaf in leaves:
        node: Item | None = leaf
        level = 0
        while node is not None:
            if level == len(open_nodes):
                open_nodes.append(None)
                counts.append(0)
            before = open_nodes[level]
            merged = node if before is None else merge(before, node)
            counts[level] += 1
            if counts[level] == fan_in:
                open_nodes[level], counts[level] = None, 0
                node, level = close(merged), level + 1
            else:
                open_nodes[level], node = merged, None
    return [node for node in reversed(open_nodes) if node is not None]


def tree_reduce(
    leaves: Iterable[Item],
    fan_in: int,
    merge: Callable[[Item, Item], Item],
    close: Callable[[Item], Item] = lambda node: node,
) -> Item | None:
    """One node of all leaves; None without any.

    >>> tree_reduce(range(10), 4, lambda x, y: x + y)
    45
    """
    total: Item | None = None
    for node in tree_nodes(leaves, fan_in, merge, close):
        total = node if total is None else merge(total, node)
    return None if total is None else close(total)
