"""A user's own network: an ONNX file whose outputs are feature maps, described by a TOML or JSON file beside it.

`net.onnx` is described by `net.toml` (or `net.json`):

    outputs = ["layer2", "layer3"]     # tensors (N, C, h, w), the finest grid first
    size = [224, 224]                  # height and width that it takes
    mean = [123.675, 116.28, 103.53]   # subtracted from pixels in 0..255 …
    std = [58.395, 57.12, 57.375]      # … and divided by
    descriptor = "concat"              # or "patchcore"
"""

from __future__ import annotations

import hashlib
import json
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from mhpatchcore.backbone.architecture import FeatureMap
from mhpatchcore.backbone.descriptors import append_descriptors
from mhpatchcore.backbone.graph import OPSET, Graph
from mhpatchcore.backbone.session import BackboneInfo, make_session
from mhpatchcore.errors import UserError, WeightsError

PREFIX = "user/"


def load_custom(
    path: Path, size: tuple[int, int], layers: Sequence[str], descriptor: str
) -> tuple[BackboneInfo, bytes]:
    """The user's network between our normalisation and our descriptor tail, as one graph."""
    description = read_description(path)
    if tuple(description["size"]) != size:
        size = (int(description["size"][0]), int(description["size"][1]))
    layers = tuple(layers) or tuple(description["outputs"])
    descriptor = descriptor or description.get("descriptor", "concat")
    network = _read_network(path)
    maps = _feature_maps(network, size, layers, path)

    graph = Graph(path.stem, *size)
    image = graph.normalised_image(description["mean"], description["std"])
    _insert(graph, network, image)
    tail = append_descriptors(graph, maps, descriptor)
    info = BackboneInfo(
        name=path.name,
        weights_sha256=hashlib.sha256(path.read_bytes()).hexdigest(),
        weights_source=f"file {path.name}",
        layers=layers,
        descriptor=descriptor,
        height=size[0],
        width=size[1],
        grid=(tail.height, tail.width),
        dim=tail.channels,
    )
    model = graph.model(tail.name, ["N", tail.height, tail.width, tail.channels])
    return info, model.SerializeToString()


def read_description(path: Path) -> dict[str, Any]:
    """The TOML or JSON file beside an ONNX file, with what it must say."""
    for suffix in (".toml", ".json"):
        beside = path.with_suffix(suffix)
        if beside.is_file():
            try:
                text = beside.read_text(encoding="utf-8")
                description = tomllib.loads(text) if suffix == ".toml" else json.loads(text)
            except ValueError as error:
                raise UserError(f"cannot read {beside}: {error}") from error
            missing = [key for key in ("outputs", "size", "mean", "std") if key not in description]
            if missing:
                raise UserError(f"{beside} does not say '{missing[0]}'; it needs outputs, size, mean and std")
            return dict(description)
    raise UserError(
        f"{path} needs a description beside it: {path.with_suffix('.toml').name} with outputs, size, mean and std"
    )


def _read_network(path: Path) -> Any:
    import onnx
    from onnx import compose, version_converter

    try:
        network = onnx.load(path)
        if network.opset_import[0].version < OPSET:
            network = version_converter.convert_version(network, OPSET)
    except Exception as error:  # protobuf and the converter raise many kinds
        raise WeightsError(f"cannot read the ONNX file {path}: {error}") from error
    return compose.add_prefix(network, PREFIX)


def _feature_maps(network: Any, size: tuple[int, int], layers: Sequence[str], path: Path) -> list[FeatureMap]:
    """Shapes of the named outputs, found by running the network once."""
    session = make_session(network.SerializeToString())
    outputs = [output.name for output in session.get_outputs()]
    unknown = [layer for layer in layers if PREFIX + layer not in outputs]
    if unknown:
        known = ", ".join(name.removeprefix(PREFIX) for name in outputs)
        raise UserError(f"{path} has no output '{unknown[0]}'; it has: {known}")
    names = [PREFIX + layer for layer in layers]
    feed = {session.get_inputs()[0].name: np.zeros((1, 3, *size), np.float32)}
    arrays = session.run(names, feed)
    flat = [name for name, array in zip(layers, arrays, strict=True) if array.ndim != 4]
    if flat:
        raise UserError(f"output '{flat[0]}' of {path} is no feature map (N, C, h, w)")
    return [FeatureMap(name, *array.shape[1:]) for name, array in zip(names, arrays, strict=True)]


def _insert(graph: Graph, network: Any, image: str) -> None:
    """Put the network's nodes behind the tensor `image`."""
    entry = network.graph.input[0].name
    for node in network.graph.node:
        for i, name in enumerate(node.input):
            if name == entry:
                node.input[i] = image
        graph.nodes.append(node)
    graph.initializers.extend(network.graph.initializer)
