"""Reductions of a fixed shape: the same items in the same order give the same bits, wherever each part is computed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import repeat
from typing import TypeVar

Item = TypeVar("Item")


def whole_subtrees(items: Sequence[Item], fan_in: int, levels: int) -> list[tuple[int, Sequence[Item]]]:
    """Leaves cut into whole subtrees of at most so many levels, each with its level; the largest come first.

    Each can be computed by itself, somewhere else. `tree_nodes` puts them together.

    >>> whole_subtrees("abcdefghijk", 2, 2)
    [(2, 'abcd'), (2, 'efgh'), (1, 'ij'), (0, 'k')]
    """
    found = []
    start = 0
    for level in range(levels, -1, -1):
        size = fan_in**level
        while start + size <= len(items):
            found.append((level, items[start : start + size]))
            start += size
    return found


def tree_nodes(
    leaves: Iterable[Item],
    fan_in: int,
    merge: Callable[[Item, Item], Item],
    close: Callable[[Item], Item] = lambda node: node,
    levels: Iterable[int] | None = None,
) -> list[Item]:
    """What is left of a tree in which every `fan_in` nodes of a level make one of the next: the largest first.

    Nodes are merged one by one as they come, and closed when they are complete; so a level holds one open node, and
    memory grows with the logarithm of the number of leaves. With `levels` the leaves are roots of `whole_subtrees`.

    >>> tree_nodes("abcdefg", 2, lambda x, y: f"({x}{y})")
    ['((ab)(cd))', '(ef)', 'g']
    >>> tree_nodes(["(ab)", "(cd)", "(ef)", "g"], 2, lambda x, y: f"({x}{y})", levels=[1, 1, 1, 0])
    ['((ab)(cd))', '(ef)', 'g']
    """
    open_nodes: list[Item | None] = []
    counts: list[int] = []
    for leaf, level in zip(leaves, levels or repeat(0)):  # noqa: B905 (levels may go on)
        node: Item | None = leaf
        while node is not None:
            while level >= len(open_nodes):
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
