"""Parts of the backbone tests: genuine weights, and what a network puts out."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import onnx
import pytest
from golden_cases import Floats
from plain_alignment import aligned

from mhpatchcore.backbone import efficientnet_lite
from mhpatchcore.backbone.building import ARCHITECTURES, build_graph
from mhpatchcore.backbone.graph import FeatureMap, Graph, State
from mhpatchcore.backbone.session import make_session
from mhpatchcore.backbone.statedict import read_state_dict


def genuine_resnet18() -> State:
    """The ResNet-18 weights that $MHPATCHCORE_RESNET18 names; without it the test is skipped."""
    path = os.environ.get("MHPATCHCORE_RESNET18")
    if not path or not Path(path).is_file():
        pytest.skip("set MHPATCHCORE_RESNET18 to a file with genuine ResNet-18 weights")
    return read_state_dict(Path(path))


def run_network(network: str, state: State, images: Floats, output: str) -> Floats:
    """One output of a named network: a layer (N, C, h, w), "logits", or the published "descriptors"."""
    architecture, size = ARCHITECTURES[network], images.shape[1:3]
    if output == "descriptors":
        model, _ = build_graph(architecture, state, size, architecture.layers, architecture.published)
        return unrounded_descriptors(model, images)
    graph = Graph(network)
    image = graph.normalised_image(*size, architecture.mean, architecture.std)
    maps = architecture.build(graph, state, image, size, ("layer4",))
    if output == "logits":
        outputs = {"logits": (classifier(network, graph, state, maps), ("N", 1000))}
    else:
        layer = maps[output]
        outputs = {"layer": (layer.name, ("N", layer.channels, layer.height, layer.width))}
    (found,) = run_model(graph.model(outputs), images)
    return found


def classifier(network: str, graph: Graph, state: State, maps: Mapping[str, FeatureMap]) -> str:
    """The ImageNet logits (N, 1000) behind a network's last layer."""
    x, layer = list(maps.values())[-1].name, "fc"
    if network.startswith("efficientnet"):
        x, layer = graph.relu6(graph.conv_bn(x, state, "_conv_head", "_bn1", efficientnet_lite.EPS)), "_fc"
    pooled = graph.node("Flatten", [graph.node("GlobalAveragePool", [x])])
    inputs = [pooled, graph.constant(state[f"{layer}.weight"]), graph.constant(state[f"{layer}.bias"])]
    return graph.node("Gemm", inputs, transB=1)


def run_model(model: bytes, images: Floats, threads: int = 1) -> list[Floats]:
    found: list[Floats] = make_session(model, threads).run(None, {"image": images.astype(np.float32)})
    return found


def without_rounding(model: bytes) -> bytes:
    """A network that puts its descriptors out as they are before they are rounded to halves."""
    network = onnx.load_from_string(model)
    made_by = {name: node for node in network.graph.node for name in node.output}
    for output in network.graph.output:
        cast = made_by[made_by[output.name].input[0]]
        assert cast.op_type == "Cast"
        made_by[output.name].input[0] = cast.input[0]
        output.type.tensor_type.elem_type = onnx.TensorProto.FLOAT
    return bytes(network.SerializeToString())


def unrounded_descriptors(model: bytes, images: Floats) -> Floats:
    """Descriptors (N, h, w, d) of a network as they are before it rounds them to halves, aligned by definition."""
    maps = run_model(without_rounding(model), images)
    rounded = run_model(model, images)
    assert all(np.array_equal(a.astype(np.float16), b) for a, b in zip(maps, rounded, strict=True))
    height, width = maps[0].shape[2:]
    each = [aligned(layer.astype(np.float64), height, width) for layer in maps]
    return np.moveaxis(np.concatenate(each, axis=1), 1, -1)


def relative_error(found: Floats, expected: Floats) -> float:
    """Largest difference over the largest value."""
    return float(np.abs(found - expected).max() / np.abs(expected).max())
