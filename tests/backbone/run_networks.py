"""Parts of the backbone tests: genuine weights, and what a network puts out."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
from golden_cases import Floats

from mhpatchcore.backbone.building import ARCHITECTURES, build_graph
from mhpatchcore.backbone.graph import Graph, State
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
        return run_model(model, images)
    graph = Graph(network, *size)
    maps = architecture.build(
        graph, state, graph.normalised_image(architecture.mean, architecture.std), ("layer4",)
    )
    if output == "logits":
        logits = architecture.head(graph, state, maps)
        return run_model(graph.model(logits, ["N", 1000]).SerializeToString(), images)
    layer = maps[output]
    shape = ["N", layer.channels, layer.height, layer.width]
    return run_model(graph.model(layer.name, shape).SerializeToString(), images)


def run_model(model: bytes, images: Floats, threads: int = 1) -> Floats:
    result: Floats = make_session(model, threads).run(None, {"image": images.astype(np.float32)})[0]
    return result


def relative_error(found: Floats, expected: Floats) -> float:
    """Largest difference over the largest value."""
    return float(np.abs(found - expected).max() / np.abs(expected).max())
