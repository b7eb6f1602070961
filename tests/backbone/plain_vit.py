"""A vision transformer by its definition, in plain numpy and float64, and random weights for it.

`make_golden_vit.py` runs timm on the same weights.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, floor
from pathlib import Path

import numpy as np
from golden_cases import GOLDEN, Floats
from scipy.special import erf

MEAN = np.array([0.485, 0.456, 0.406])
STD = np.array([0.229, 0.224, 0.225])


@dataclass(frozen=True)
class Transformer:
    """Numbers in a token, blocks, heads, the side of a patch, the grid that positions are embedded for, registers."""

    width: int
    depth: int
    heads: int
    patch: int
    grid: int
    registers: int = 0


SMALL = Transformer(width=48, depth=3, heads=4, patch=14, grid=5)
DINOV2_SMALL = Transformer(width=384, depth=12, heads=6, patch=14, grid=37)


@dataclass(frozen=True)
class Case:
    """A transformer with random weights on one image, and the layers to look at."""

    name: str
    transformer: Transformer
    height: int
    width: int
    outputs: tuple[str, ...] = ("block0", "block2", "norm")

    @property
    def file(self) -> Path:
        return GOLDEN / f"{self.name}.npz"


CASES = (
    Case("vit_own_grid", SMALL, 70, 70),
    Case("vit_larger_grid", SMALL, 98, 126),
    Case("vit_smaller_grid", SMALL, 42, 56),
    Case("vit_both_ways", SMALL, 168, 28),
    Case("dinov2_small_random", DINOV2_SMALL, 56, 84, ("block7", "block11", "norm")),
)


def random_vit(shape: Transformer, seed: int = 14) -> dict[str, Floats]:
    """A state dict with timm's names, scaled so that every part of the network has its say."""
    random = np.random.RandomState(seed)
    state: dict[str, Floats] = {}

    def normal(name: str, scale: float, *sides: int) -> None:
        state[name] = (scale * random.standard_normal(sides)).astype(np.float32)

    def linear(name: str, n_out: int, n_in: int) -> None:
        normal(f"{name}.weight", n_in**-0.5, n_out, n_in)
        normal(f"{name}.bias", 0.2, n_out)

    def uniform(name: str, low: float, high: float) -> None:
        state[name] = random.uniform(low, high, shape.width).astype(np.float32)

    width, patch = shape.width, shape.patch
    normal("cls_token", 1.0, 1, 1, width)
    if shape.registers:  # then the class token has no position
        normal("reg_token", 1.0, 1, shape.registers, width)
    normal("pos_embed", 1.0, 1, (not shape.registers) + shape.grid**2, width)
    normal("patch_embed.proj.weight", (3 * patch**2) ** -0.5, width, 3, patch, patch)
    normal("patch_embed.proj.bias", 0.2, width)
    for block in [f"blocks.{i}" for i in range(shape.depth)]:
        for norm in ("norm1", "norm2"):
            uniform(f"{block}.{norm}.weight", 0.5, 1.5)
            uniform(f"{block}.{norm}.bias", -0.2, 0.2)
        linear(f"{block}.attn.qkv", 3 * width, width)
        linear(f"{block}.attn.proj", width, width)
        linear(f"{block}.mlp.fc1", 4 * width, width)
        linear(f"{block}.mlp.fc2", width, 4 * width)
        uniform(f"{block}.ls1.gamma", -0.5, 1.0)
        uniform(f"{block}.ls2.gamma", -0.5, 1.0)
    uniform("norm.weight", 0.5, 1.5)
    uniform("norm.bias", -0.2, 0.2)
    return state


def plain_vit(state: dict[str, Floats], shape: Transformer, image: Floats) -> dict[str, Floats]:
    """An image (H, W, 3) in 0..255 → its tokens (C, h, w) after block0, block1, … and after the last norm ("norm"), and
    its layers: tokens of a block behind the last norm and at unit length ("unit block0", …).
    """
    p, heads = shape.patch, shape.heads
    h, w = image.shape[0] // p, image.shape[1] // p
    normalised = (image / 255 - MEAN) / STD
    kernel = state["patch_embed.proj.weight"].astype(np.float64)
    tokens = [state["cls_token"][0, 0].astype(np.float64)]
    for row in range(h):
        for column in range(w):
            patch = normalised[row * p : (row + 1) * p, column * p : (column + 1) * p].transpose(2, 0, 1)
            tokens.append((kernel * patch).sum(axis=(1, 2, 3)) + state["patch_embed.proj.bias"])
    embedding = state["pos_embed"][0].astype(np.float64)
    if shape.registers:
        patches = np.stack(tokens[1:]) + positions(embedding, h, w)
        x = np.concatenate([tokens[:1], state["reg_token"][0], patches])
    else:
        x = np.stack(tokens) + np.concatenate([embedding[:1], positions(embedding[1:], h, w)])

    def norm(x: Floats, name: str) -> Floats:
        centred = x - x.mean(axis=1, keepdims=True)
        deviation = np.sqrt((centred**2).mean(axis=1, keepdims=True) + 1e-6)
        return centred / deviation * state[f"{name}.weight"] + state[f"{name}.bias"]

    def linear(x: Floats, name: str) -> Floats:
        return x @ state[f"{name}.weight"].T.astype(np.float64) + state[f"{name}.bias"]

    def attention(x: Floats, name: str) -> Floats:
        qkv = linear(x, f"{name}.qkv").reshape(len(x), 3, heads, -1)
        each = []
        for head in range(heads):
            q, k, v = qkv[:, 0, head], qkv[:, 1, head], qkv[:, 2, head]
            affinity = np.exp(q @ k.T / np.sqrt(q.shape[1]))
            each.append(affinity / affinity.sum(axis=1, keepdims=True) @ v)
        return linear(np.concatenate(each, axis=1), f"{name}.proj")

    def as_map(x: Floats) -> Floats:
        return x[1 + shape.registers :].T.reshape(-1, h, w)

    layers = {}
    for i in range(shape.depth):
        name = f"blocks.{i}"
        x = x + state[f"{name}.ls1.gamma"] * attention(norm(x, f"{name}.norm1"), f"{name}.attn")
        hidden = linear(norm(x, f"{name}.norm2"), f"{name}.mlp.fc1")
        hidden = hidden * (1 + erf(hidden / np.sqrt(2))) / 2
        x = x + state[f"{name}.ls2.gamma"] * linear(hidden, f"{name}.mlp.fc2")
        layers[f"block{i}"] = as_map(x)
        normed = norm(x, "norm")
        layers[f"unit block{i}"] = as_map(normed / np.linalg.norm(normed, axis=1, keepdims=True))
    return layers | {"norm": as_map(norm(x, "norm"))}


def positions(embedding: Floats, h: int, w: int) -> Floats:
    """(n·n, C) → (h·w, C): bicubic with antialiasing, along the rows and then along the columns."""
    n = int(len(embedding) ** 0.5)
    square = embedding.reshape(n, n, -1)
    tall = np.stack([_between(square, (row + 0.5) * n / h, n / h) for row in range(h)])
    columns = tall.transpose(1, 0, 2)
    both = np.stack([_between(columns, (column + 0.5) * n / w, n / w) for column in range(w)], axis=1)
    return both.reshape(h * w, -1)


def _between(samples: Floats, centre: float, step: float) -> Floats:
    """The weighted mean of the samples (n, …), which lie at ½, 1½, …, around a centre."""
    wide = max(step, 1.0)
    first, last = max(floor(centre - 2 * wide), 0), min(ceil(centre + 2 * wide), len(samples))
    weights = [_cubic(abs(i + 0.5 - centre) / wide) for i in range(first, last)]
    return np.tensordot(weights, samples[first:last], axes=1) / sum(weights)


def _cubic(t: float, a: float = -0.5) -> float:
    if t < 1:
        return (a + 2) * t**3 - (a + 3) * t**2 + 1
    return a * t**3 - 5 * a * t**2 + 8 * a * t - 4 * a if t < 2 else 0.0
