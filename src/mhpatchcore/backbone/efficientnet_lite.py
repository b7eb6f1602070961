"""EfficientNet-Lite0: inverted residuals with ReLU6 and TensorFlow's "same" padding, no squeeze-excite."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from mhpatchcore.backbone.architecture import Architecture, FeatureMap
from mhpatchcore.backbone.graph import Graph, State

EPS = 1e-3


@dataclass(frozen=True)
class Stage:
    """A run of equal blocks; the first one takes the stride."""

    repeats: int
    stride: int


STAGES = (Stage(1, 1), Stage(2, 2), Stage(2, 2), Stage(3, 2), Stage(3, 1), Stage(4, 2), Stage(1, 1))


def build(graph: Graph, state: State, x: str, _wanted: Collection[str]) -> Mapping[str, FeatureMap]:
    """Write the network from the normalised image `x` to block15: it is small enough not to stop early."""
    x = graph.relu6(graph.conv_bn(x, state, "_conv_stem", "_bn0", EPS, stride=2, padding="same"))
    height, width = _halved(graph.height), _halved(graph.width)
    maps: dict[str, FeatureMap] = {}
    for stage in STAGES:
        for repeat in range(stage.repeats):
            stride = stage.stride if repeat == 0 else 1
            if stride == 2:
                height, width = _halved(height), _halved(width)
            index = len(maps)
            x = _block(graph, state, f"_blocks.{index}", x, stride, residual=repeat > 0)
            channels = state[f"_blocks.{index}._project_conv.weight"].shape[0]
            maps[f"block{index}"] = FeatureMap(x, channels, height, width)
    return maps


def head(graph: Graph, state: State, maps: Mapping[str, FeatureMap]) -> str:
    """ImageNet logits (N, 1000)."""
    x = graph.relu6(graph.conv_bn(maps["block15"].name, state, "_conv_head", "_bn1", EPS))
    return graph.classifier(x, state["_fc.weight"], state["_fc.bias"])


def _block(graph: Graph, state: State, name: str, x: str, stride: int, residual: bool) -> str:
    y = x
    if f"{name}._expand_conv.weight" in state:
        y = graph.relu6(graph.conv_bn(y, state, f"{name}._expand_conv", f"{name}._bn0", EPS))
    channels = state[f"{name}._depthwise_conv.weight"].shape[0]
    y = graph.conv_bn(
        y, state, f"{name}._depthwise_conv", f"{name}._bn1", EPS, stride, padding="same", groups=channels
    )
    y = graph.conv_bn(graph.relu6(y), state, f"{name}._project_conv", f"{name}._bn2", EPS)
    return graph.add(x, y) if residual else y


def _halved(side: int) -> int:
    return (side + 1) // 2


ARCHITECTURES = {
    "efficientnet_lite0": Architecture(
        "efficientnet_lite0",
        build,
        head,
        layers=("block4", "block10"),
        descriptor="concat",
        published="concat",
        mean=(127.0, 127.0, 127.0),
        std=(128.0, 128.0, 128.0),
    )
}
