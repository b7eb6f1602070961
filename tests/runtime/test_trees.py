"""Reductions have one shape, whatever the number of leaves, and close every node once it is complete."""

from __future__ import annotations

import pytest

from mhpatchcore.runtime.parallel import tree_nodes

LETTERS = "abcdefghijklmnopqrstuvwxyz"


def pair(x: str, y: str) -> str:
    return x + y


def closed(node: str) -> str:
    return f"({node})"


@pytest.mark.parametrize(
    ("n", "fan_in", "nodes"),
    [
        (0, 2, []),
        (1, 2, ["a"]),
        (2, 2, ["(ab)"]),
        (3, 2, ["(ab)", "c"]),
        (7, 2, ["((ab)(cd))", "(ef)", "g"]),
        (3, 4, ["abc"]),
        (4, 4, ["(abcd)"]),
        (7, 4, ["(abcd)", "efg"]),
        (16, 4, ["((abcd)(efgh)(ijkl)(mnop))"]),
        (22, 4, ["((abcd)(efgh)(ijkl)(mnop))", "(qrst)", "uv"]),
    ],
)
def test_the_shape_follows_from_the_number_of_leaves(n: int, fan_in: int, nodes: list[str]) -> None:
    assert tree_nodes(LETTERS[:n], fan_in, pair, closed) == nodes


@pytest.mark.parametrize("fan_in", [2, 4, 16])
def test_every_leaf_counts_once_and_in_order(fan_in: int) -> None:
    for n in range(70):
        leaves = [(i,) for i in range(n)]
        nodes = tree_nodes(leaves, fan_in, lambda x, y: x + y)
        assert [i for node in nodes for i in node] == list(range(n))
        assert [len(node) for node in nodes] == sorted((len(node) for node in nodes), reverse=True)


def test_no_more_nodes_are_open_than_the_tree_has_levels() -> None:
    alive, most = 0, 0

    def leaves() -> object:
        nonlocal alive, most
        for _ in range(4**5):
            alive += 1
            most = max(most, alive)
            yield 1

    def merge(x: int, y: int) -> int:
        nonlocal alive
        alive -= 1
        return x + y

    assert tree_nodes(leaves(), 4, merge) == [4**5]  # type: ignore[arg-type]
    assert most <= 6
