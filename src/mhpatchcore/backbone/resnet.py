"""The ResNet family (torchvision key names): resnet18, resnet50, wide_resnet50_2."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import partial

from mhpatchcore.backbone.graph import Architecture, FeatureMap, Graph, Hub, State, halved
from mhpatchcore.errors import WeightsError

EPS = 1e-5


@dataclass(frozen=True)
class Shape:
    """Blocks per stage, whether a block is the three-convolution bottleneck, and layer1's inner channels."""

    blocks: tuple[int, int, int, int]
    bottleneck: bool
    width: int


SHAPES = {
    "resnet18": Shape((2, 2, 2, 2), bottleneck=False, width=64),
    "resnet50": Shape((3, 4, 6, 3), bottleneck=True, width=64),
    "wide_resnet50_2": Shape((3, 4, 6, 3), bottleneck=True, width=128),
}


def build(
    shape: Shape, graph: Graph, state: State, x: str, size: tuple[int, int], wanted: Collection[str]
) -> Mapping[str, FeatureMap]:
    """Write the network from the normalised image `x` to the last wanted of layer1 … layer4."""
    found = state["layer1.0.conv2.weight"].shape[0]
    if found != shape.width:  # the names alone do not tell a wide network from a narrow one
        raise WeightsError(
            f"the weights are {found} channels wide where {graph.name} has {shape.width}: "
            "they are for another network"
        )
    x = graph.relu(graph.conv_bn(x, state, "conv1", "bn1", EPS, stride=2, padding=3))
    x = graph.node("MaxPool", [x], kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1])
    height, width = (halved(halved(side)) for side in size)
    maps: dict[str, FeatureMap] = {}
    for stage, blocks in enumerate(shape.blocks, start=1):
        for block in range(blocks):
            stride = 2 if stage > 1 and block == 0 else 1
            x = _block(graph, state, f"layer{stage}.{block}", x, stride, shape.bottleneck)
        if stage > 1:
            height, width = halved(height), halved(width)
        last = "conv3" if shape.bottleneck else "conv2"
        channels = state[f"layer{stage}.0.{last}.weight"].shape[0]
        maps[f"layer{stage}"] = FeatureMap(x, channels, height, width)
        if set(wanted) <= maps.keys():
            break
    return maps


def head(graph: Graph, state: State, maps: Mapping[str, FeatureMap]) -> str:
    """ImageNet logits (N, 1000)."""
    return graph.classifier(maps["layer4"].name, state["fc.weight"], state["fc.bias"])


def _block(graph: Graph, state: State, name: str, x: str, stride: int, bottleneck: bool) -> str:
    # torchvision puts the stride of a bottleneck on its 3×3 convolution ("v1.5")
    convs = [(1, 1), (3, stride), (1, 1)] if bottleneck else [(3, stride), (3, 1)]
    y = x
    for i, (kernel, step) in enumerate(convs, start=1):
        y = graph.conv_bn(y, state, f"{name}.conv{i}", f"{name}.bn{i}", EPS, stride=step, padding=kernel // 2)
        if i < len(convs):
            y = graph.relu(y)
    if f"{name}.downsample.0.weight" in state:
        x = graph.conv_bn(x, state, f"{name}.downsample.0", f"{name}.downsample.1", EPS, stride=stride)
    return graph.relu(graph.add(y, x))


def _architecture(name: str, shape: Shape) -> Architecture:
    # the published descriptor has 1024 numbers, fewer than a bottleneck network has channels; a basic one has 384, and
    # these localise better as they are than blown up (docs/explanation/decisions.md)
    descriptor = "patchcore" if shape.bottleneck else "concat"
    return Architecture(
        name,
        Hub(name, tag="tv_in1k"),
        partial(build, shape),
        layers=("layer2", "layer3"),
        descriptor=descriptor,
        published="patchcore",
        head=head,
    )


ARCHITECTURES = {name: _architecture(name, shape) for name, shape in SHAPES.items()}
