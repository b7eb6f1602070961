"""The family of vision transformers (timm's key names): dinov2_small, dinov2_base.

    image  →  a token for each patch, and the class token  →  + position embedding  →  blocks  →  norm

A block is x + γ₁·attention(norm₁(x)), then x + γ₂·mlp(norm₂(x)). The LayerScales γ are folded into the linear layers
before them. The patches' tokens after a block are a layer (N, C, h, w); "norm" is the last one, normalised.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import partial
from math import isqrt

import numpy as np

from mhpatchcore.backbone.graph import Architecture, FeatureMap, Graph, Hub, State
from mhpatchcore.errors import WeightsError
from mhpatchcore.runtime.arrays import Array, Doubles

EPS = 1e-6


@dataclass(frozen=True)
class Shape:
    """Numbers in a token, blocks, attention heads, and the side of a patch in pixels."""

    width: int
    depth: int
    heads: int
    patch: int


def build(
    shape: Shape, graph: Graph, state: State, x: str, size: tuple[int, int], _wanted: Collection[str]
) -> Mapping[str, FeatureMap]:
    """Write the network from the normalised image `x` to its last norm, so that all weights are seen to fit."""
    weight = state["patch_embed.proj.weight"]
    if weight.shape != (shape.width, 3, shape.patch, shape.patch):
        raise WeightsError(
            f"the weights embed patches by {' × '.join(map(str, weight.shape))} numbers where {graph.name} has "
            f"{shape.width} × 3 × {shape.patch} × {shape.patch}: they are for another network"
        )
    grid = (size[0] // shape.patch, size[1] // shape.patch)
    x = graph.conv(x, weight, state["patch_embed.proj.bias"], stride=shape.patch)
    x = graph.node("Transpose", [graph.reshape(x, 0, shape.width, -1)], perm=[0, 2, 1])
    # the class token comes with the position embedding: a place for it is enough
    x = graph.node("Pad", [x, graph.integers(0, 1, 0, 0, 0, 0)])
    positions = resampled_positions(state["pos_embed"][0], grid)
    positions[0] += state["cls_token"][0, 0]
    x = graph.add(x, graph.constant(positions.astype(np.float32)))
    maps: dict[str, FeatureMap] = {}
    for index in range(shape.depth):
        x = _block(graph, state, f"blocks.{index}", x, shape.heads)
        maps[f"block{index}"] = _map(graph, x, shape.width, grid)
    maps["norm"] = _map(graph, graph.layer_norm(x, state, "norm", EPS), shape.width, grid)
    return maps


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
    q, k, v = (
        graph.node(
            "Transpose", [graph.reshape(graph.linear(x, w * scale, b * scale), 0, 0, heads, d)], perm=perm
        )
        for w, b, scale, perm in zip(weights, biases, scales, by_head, strict=True)
    )
    attention = graph.node("Softmax", [graph.node("MatMul", [q, k])], axis=-1)
    y = graph.node("Transpose", [graph.node("MatMul", [attention, v])], perm=[0, 2, 1, 3])
    y = graph.reshape(y, 0, 0, heads * d)
    return graph.linear(y, *_scaled(state, f"{name}.attn.proj", f"{name}.ls1.gamma"))


def _scaled(state: State, linear: str, gamma: str) -> tuple[Array, Array]:
    """Weight and bias of a linear layer whose outputs are multiplied by γ."""
    scale = state[gamma]
    return state[f"{linear}.weight"] * scale[:, None], state[f"{linear}.bias"] * scale


def _map(graph: Graph, tokens: str, width: int, grid: tuple[int, int]) -> FeatureMap:
    """The tokens (N, 1 + h·w, C) without the class token as a map (N, C, h, w)."""
    channels_first = graph.node("Transpose", [tokens], perm=[0, 2, 1])
    starts, stops, axes = graph.integers(1), graph.integers(1 + grid[0] * grid[1]), graph.integers(2)
    patches = graph.node("Slice", [channels_first, starts, stops, axes])
    return FeatureMap(graph.reshape(patches, 0, width, *grid), width, *grid)


def resampled_positions(positions: Array, grid: tuple[int, int]) -> Doubles:
    """The position embedding (1 + n·n, C) of a square grid, with the class token's first, on another: (1 + h·w, C)."""
    side, channels = isqrt(len(positions) - 1), positions.shape[1]
    if 1 + side**2 != len(positions):
        raise WeightsError(
            f"the weights have {len(positions)} position embeddings, which are not a class token and a square of "
            "patches: they are for another network (one with register tokens?)"
        )
    square = positions[1:].reshape(side, side, channels).astype(np.float64)
    rows, columns = (cubic_resampling(n, side) for n in grid)
    patches = np.einsum("hi,wj,ijc->hwc", rows, columns, square, optimize=True)
    return np.concatenate([positions[:1], patches.reshape(-1, channels)])


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
    return Architecture(
        name,
        hub,
        partial(build, shape),
        layers,
        descriptor="concat",
        published="concat",
        multiple=shape.patch,
    )


ARCHITECTURES = {
    "dinov2_small": architecture(
        "dinov2_small",
        Hub("vit_small_patch14_dinov2", tag="lvd142m"),
        Shape(width=384, depth=12, heads=6, patch=14),
        layers=("block7", "block11"),
    ),
    "dinov2_base": architecture(
        "dinov2_base",
        Hub("vit_base_patch14_dinov2", tag="lvd142m"),
        Shape(width=768, depth=12, heads=12, patch=14),
        layers=("block7", "block11"),
    ),
}
