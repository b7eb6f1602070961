"""Heads for tests: a tiny network, a made-up metric and a made-up bank."""

from __future__ import annotations

from typing import Any

import numpy as np

from mhpatchcore.backbone.descriptors import descriptor_model
from mhpatchcore.backbone.graph import FeatureMap, Graph
from mhpatchcore.backbone.session import Backbone, BackboneInfo
from mhpatchcore.metric.whitening import Whitening
from mhpatchcore.scoring.graph import Head

CHANNELS = (5, 7)


def tiny_network(height: int, width: int, layers: int = 2, seed: int = 0) -> Backbone:
    """Convolutions of stride 4 and then 2: layers of 5 and 7 channels."""
    rng = np.random.default_rng(seed)
    graph = Graph("tiny")
    x = graph.normalised_image(height, width, (128, 128, 128), (64, 64, 64))
    maps, channels, stride = [], 3, 4
    for wanted in CHANNELS[:layers]:
        x = graph.relu(graph.conv(x, rng.normal(size=(wanted, channels, 3, 3)) / 3, stride=stride, padding=1))
        height_, width_ = (-(-side // stride) for side in ((height, width) if not maps else maps[-1][1:]))
        maps.append((x, height_, width_))
        channels, stride = wanted, 2
    described = [FeatureMap(x, c, h, w) for (x, h, w), c in zip(maps, CHANNELS, strict=False)]
    model, shapes = descriptor_model(graph, described, "concat")
    names = tuple(f"layer{i}" for i in range(layers))
    info = BackboneInfo("tiny", "0", "made up", names, "concat", height, width, shapes)
    return Backbone(info, model, threads=1)


def made_up_head(
    K: int, k: int = 9, size: tuple[int, int] = (48, 64), layers: int = 2, seed: int = 0, **rule: Any
) -> Head:
    """A head whose bank lies among the patches of noise images."""
    network = tiny_network(*size, layers)
    rng = np.random.default_rng(seed)
    d = network.info.dim
    whitening = Whitening(rng.normal(size=(k, d)), rng.normal(size=d), 0.0, 0.0, 1.0)
    rows = [whitening.of_maps(stored(network, image)) for image in range(100, 103)]
    pool = np.concatenate(rows)
    bank = np.ascontiguousarray(pool[rng.permutation(len(pool))[:K]], np.float32)
    weights = rng.uniform(0.2, 1, len(bank)).astype(np.float32)
    return Head(network, whitening, bank, weights, **rule)


def noise(head_or_network: Head | Backbone, seed: int) -> np.ndarray:
    """A picture (H, W, 3) of coarse noise."""
    network = head_or_network.backbone if isinstance(head_or_network, Head) else head_or_network
    height, width = network.info.height, network.info.width
    coarse = np.random.default_rng(seed).integers(0, 256, (-(-height // 8), -(-width // 8), 3))
    return coarse.repeat(8, axis=0).repeat(8, axis=1)[:height, :width].astype(np.uint8)


def stored(network: Backbone, seed: int) -> list[np.ndarray]:
    """The layers (C, h, w) of a picture."""
    return [layer[0] for layer in network(noise(network, seed)[None])]
