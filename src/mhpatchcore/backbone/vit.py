"""The family of vision transformers (timm's key names): dinov2_small, dinov2_base, and both with register tokens.

    image  →  a token for each patch, behind the class token and registers  →  + position embedding  →  blocks

A block is x + γ₁·attention(norm₁(x)), then x + γ₂·mlp(norm₂(x)). The LayerScales γ are folded into the linear layers
before them. The patches' tokens after a block are a layer (N, C, h, w), brought to unit length behind the network's
last norm: a few channels of the blocks are larger than all others together, and would decide every distance.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from functools import partial
from math import isqrt
from typing import NamedTuple

import numpy as np

from mhpatchcore.backbone.graph import Architecture, FeatureMap, Graph, Hub, State
from mhpatchcore.errors import WeightsError
from mhpatchcore.runtime.arrays import Array, Doubles

EPS = 1e-6


class Shape(NamedTuple):
    """Numbers in a token, blocks, attention heads, the side of a patch in pixels, and register tokens."""

    width: int
    depth: int
    heads: int
    patch: int
    registers: int = 0


def build(
    shape: Shape, graph: Graph, state: State, x: str, size: tuple[int, int], _wanted: Collection[str]
) -> Mapping[str, FeatureMap]:
    """Write the network from the normalised image `x` to its last block, so that all weights are seen to fit."""
    grid = (size[0] // shape.patch, size[1] // shape.patch)
    maps: dict[str, FeatureMap] = {}
    for index, tokens in enumerate(blocks(shape, graph, state, x, grid)):
        unit = graph.node("LpNormalization", [graph.layer_norm(tokens, state, "norm", EPS)], axis=-1, p=2)
        maps[f"block{index}"] = patch_map(shape, graph, unit, grid)
    return maps


def blocks(shape: Shape, graph: Graph, state: State, x: str, grid: tuple[int, int]) -> Iterator[str]:
    """The tokens (N, T, C) behind each block."""
    weight, bias = state["patch_embed.proj.weight"], state["patch_embed.proj.bias"]
    x = graph.conv(x, weight, bias, stride=shape.patch)
    x = graph.node("Transpose", [graph.reshape(x, 0, shape.width, -1)], perm=[0, 2, 1])
    # the tokens before those of the patches come with the position embedding: a place for them is enough
    x = graph.node("Pad", [x, graph.integers(0, 1 + shape.registers, 0, 0, 0, 0)])
    x = graph.add(x, graph.constant(_embedding(shape, state, grid).astype(np.float32)))
    for index in range(shape.depth):
        x = _block(graph, state, f"blocks.{index}", x, shape.heads)
        yield x


def _embedding(shape: Shape, state: State, grid: tuple[int, int]) -> Doubles:
    """What is added to the tokens (1 + registers + h·w, C); only without registers the class token has a position."""
    positions, first = state["pos_embed"][0], state["cls_token"][0]
    if shape.registers:
        return np.concatenate([first, state["reg_token"][0], resampled_positions(positions, grid)])
    return np.concatenate([first + positions[:1], resampled_positions(positions[1:], grid)])


def _block(graph: Graph, state: State, name: str, x: str, heads: int) -> str:
    y = _attention(graph, state, name, graph.layer_norm(x, state, f"{name}.norm1", EPS), heads)
    x = graph.add(x, y)
    y = graph.layer_norm(x, state, f"{name}.norm2", EPS)
    y = graph.linear(y, state[f"{name}.mlp.fc1.weight"], state[f"{name}.mlp.fc1.bias"])
    y = graph.linear(graph.gelu(y), *_scaled(state, f"{name}.mlp.fc2", f"{name}.ls2.gamma"))
    return graph.add(x, y)


def _attention(graph: Graph, state: State, name: str, x: str, heads: int) -> str:
    """Softmax(QKᵀ/√d)·V in every head, with tokens of d numbers; (N, T, C) → (N, T, C)."""
    weights = np.split(state[f"{name}.attn.qkv.weight"], 3)
    biases = np.split(state[f"{name}.attn.qkv.bias"], 3)
    d = weights[0].shape[0] // heads
    scales = (d**-0.5, 1.0, 1.0)
    by_head = ([0, 2, 1, 3], [0, 2, 3, 1], [0, 2, 1, 3])  # the keys transposed
    split = (
        graph.reshape(graph.linear(x, w * scale, b * scale), 0, 0, heads, d)
        for w, b, scale in zip(weights, biases, scales, strict=True)
    )
    q, k, v = (graph.node("Transpose", [y], perm=perm) for y, perm in zip(split, by_head, strict=True))
    attention = graph.node("Softmax", [graph.node("MatMul", [q, k])], axis=-1)
    y = graph.node("Transpose", [graph.node("MatMul", [attention, v])], perm=[0, 2, 1, 3])
    y = graph.reshape(y, 0, 0, heads * d)
    return graph.linear(y, *_scaled(state, f"{name}.attn.proj", f"{name}.ls1.gamma"))


def _scaled(state: State, linear: str, gamma: str) -> tuple[Array, Array]:
    """Weight and bias of a linear layer whose outputs are multiplied by γ."""
    scale = state[gamma]
    return state[f"{linear}.weight"] * scale[:, None], state[f"{linear}.bias"] * scale


def patch_map(shape: Shape, graph: Graph, tokens: str, grid: tuple[int, int]) -> FeatureMap:
    """The patches' tokens (N, C, h, w) among all of them (N, T, C)."""
    ends = (1 + shape.registers, np.iinfo(np.int64).max, 1)
    patches = graph.node("Slice", [tokens, *(graph.integers(end) for end in ends)])
    channels_first = graph.node("Transpose", [patches], perm=[0, 2, 1])
    return FeatureMap(graph.reshape(channels_first, 0, 0, *grid), shape.width, *grid)


def resampled_positions(positions: Array, grid: tuple[int, int]) -> Doubles:
    """The position embedding (n·n, C) of a square grid on another: (h·w, C)."""
    side, channels = isqrt(len(positions)), positions.shape[1]
    if side**2 != len(positions):
        raise WeightsError(
            f"the weights have position embeddings of {len(positions)} patches, which are not a square: they are for "
            "another network (one with register tokens, or without?)"
        )
    square = positions.reshape(side, side, channels).astype(np.float64)
    rows, columns = (cubic_resampling(n, side) for n in grid)
    patches: Doubles = np.einsum("hi,wj,ijc->hwc", rows, columns, square, optimize=True)
    return patches.reshape(-1, channels)


def cubic_resampling(n_out: int, n_in: int) -> Doubles:
    """Bicubic resizing with antialiasing, as timm resizes position embeddings, as a matrix (n_out, n_in).

    Catmull–Rom's kernel (a = −½), widened where there are fewer outputs than inputs; weights beyond the ends are left
    out, and the rest of a row adds up to 1.

    >>> cubic_resampling(2, 4).round(3)
    array([[ 0.459,  0.459,  0.12 , -0.037],
           [-0.037,  0.12 ,  0.459,  0.459]])
    """
    widened = max(n_in / n_out, 1.0)
    centres = (np.arange(n_out) + 0.5) * n_in / n_out
    t = np.abs((np.arange(n_in) + 0.5)[None] - centres[:, None]) / widened
    near, far = (1.5 * t - 2.5) * t**2 + 1, ((-0.5 * t + 2.5) * t - 4) * t + 2
    weights: Doubles = np.where(t < 1, near, np.where(t < 2, far, 0.0))
    weights /= weights.sum(axis=1, keepdims=True)
    return weights


def architecture(name: str, hub: Hub, shape: Shape, layers: tuple[str, ...]) -> Architecture:
    shapes: dict[str, tuple[int, ...]] = {
        "patch_embed.proj.weight": (shape.width, 3, shape.patch, shape.patch)
    }
    if shape.registers:
        shapes["reg_token"] = (1, shape.registers)
    return Architecture(
        name,
        hub,
        partial(build, shape),
        layers,
        descriptor="concat",
        published="concat",
        shapes=shapes,
        multiple=shape.patch,
        reduction="correlation",
    )


ARCHITECTURES = {
    f"dinov2_{size}{registers}": architecture(
        f"dinov2_{size}{registers}",
        Hub(f"vit_{size}_patch14{registers}_dinov2", tag="lvd142m"),
        Shape(width, depth=12, heads=heads, patch=14, registers=4 if registers else 0),
        layers=("block7", "block11"),
    )
    for size, width, heads in (("small", 384, 6), ("base", 768, 12))
    for registers in ("", "_reg4")
}
