"""The ResNet family (torchvision key names): resnet18, resnet50, wide_resnet50_2."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from functools import partial
from typing import NamedTuple

from mhpatchcore.backbone.graph import Architecture, FeatureMap, Graph, Hub, State, halved

EPS = 1e-5


class Shape(NamedTuple):
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
    x = graph.relu(graph.conv_bn(x, state, "conv1", "bn1", EPS, stride=2, padding=3))
    x = graph.node("MaxPool", [x], kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1])
    height, width = (halved(halved(side)) for side in size)
    maps: dict[str, FeatureMap] = {}
    for stage, blocks in enumerate(shape.blocks):
        for block in range(blocks):
            stride = 2 if stage > 0 and block == 0 else 1
            x = _block(graph, state, f"layer{stage + 1}.{block}", x, stride, shape.bottleneck)
        if stage > 0:
            height, width = halved(height), halved(width)
        channels = (256 if shape.bottleneck else 64) * 2**stage
        maps[f"layer{stage + 1}"] = FeatureMap(x, channels, height, width)
        if set(wanted) <= maps.keys():
            break
    return maps


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


# the published descriptor has 1024 numbers, fewer than a bottleneck network has channels; a basic one has 384, and
# these localise better as they are than blown up (docs/explanation/decisions.md)
ARCHITECTURES = {
    name: Architecture(
        name,
        Hub(name, tag="tv_in1k"),
        partial(build, shape),
        layers=("layer2", "layer3"),
        descriptor="patchcore" if shape.bottleneck else "concat",
        published="patchcore",
        shapes={"layer1.0.conv2.weight": (shape.width,)},
    )
    for name, shape in SHAPES.items()
}
