"""Building a named network's graph from its weights, once, and keeping it in the cache folder."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path

from mhpatchcore.backbone import efficientnet_lite, resnet
from mhpatchcore.backbone.architecture import Architecture, FeatureMap
from mhpatchcore.backbone.descriptors import append_descriptors
from mhpatchcore.backbone.graph import GRAPH_VERSION, Graph, State
from mhpatchcore.backbone.session import BackboneInfo
from mhpatchcore.backbone.weights import load_weights
from mhpatchcore.errors import UserError, WeightsError
from mhpatchcore.files import atomic_path, write_text

ARCHITECTURES: dict[str, Architecture] = {**efficientnet_lite.ARCHITECTURES, **resnet.ARCHITECTURES}


def load_named(
    name: str, file: Path | None, tag: str, size: tuple[int, int], layers: Sequence[str], descriptor: str
) -> tuple[BackboneInfo, bytes]:
    """The description and the graph of a named network, from the cache or built now."""
    if name not in ARCHITECTURES:
        raise UserError(
            f"unknown backbone '{name}'; choose one of {', '.join(ARCHITECTURES)}, or an .onnx file"
        )
    architecture = ARCHITECTURES[name]
    layers, descriptor = tuple(layers) or architecture.layers, descriptor or architecture.descriptor
    weights = load_weights(name, tag, file)
    key = f"{name}-{weights.sha256[:16]}-{'-'.join(layers)}-{descriptor}-{size[0]}x{size[1]}-v{GRAPH_VERSION}"
    graph_path, info_path = cache_folder() / f"{key}.onnx", cache_folder() / f"{key}.json"
    if not (graph_path.is_file() and info_path.is_file()):
        graph, tail = build_graph(architecture, weights.state, size, layers, descriptor)
        info = BackboneInfo(
            name=name,
            weights_sha256=weights.sha256,
            weights_source=weights.source,
            layers=layers,
            descriptor=descriptor,
            height=size[0],
            width=size[1],
            grid=(tail.height, tail.width),
            dim=tail.channels,
        )
        with atomic_path(graph_path) as path:
            path.write_bytes(graph)
        write_text(info_path, json.dumps(info.to_json()))
    return BackboneInfo.from_json(json.loads(info_path.read_text())), graph_path.read_bytes()


def build_graph(
    architecture: Architecture,
    state: State,
    size: tuple[int, int],
    layers: Sequence[str],
    descriptor: str,
) -> tuple[bytes, FeatureMap]:
    """The network cut after its last needed layer, ending in descriptors: ONNX bytes and the final map."""
    graph = Graph(architecture.name, *size)
    try:
        maps = architecture.build(graph, state, graph.normalised_image(architecture.mean, architecture.std))
    except KeyError as missing:
        raise WeightsError(
            f"the weights hold no tensor {missing}: they are not for {architecture.name}"
        ) from None
    unknown = [layer for layer in layers if layer not in maps]
    if unknown:
        raise UserError(f"{architecture.name} has no layer '{unknown[0]}'; it has: {', '.join(maps)}")
    tail = append_descriptors(graph, [maps[layer] for layer in layers], descriptor)
    return graph.model(tail.name, ["N", tail.height, tail.width, tail.channels]).SerializeToString(), tail


def cache_folder() -> Path:
    """$MHPATCHCORE_CACHE, or mhpatchcore in the user's cache folder."""
    chosen = os.environ.get("MHPATCHCORE_CACHE")
    if chosen:
        return Path(chosen)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "mhpatchcore"
