"""A user's own network: an ONNX file whose outputs are feature maps, described by a TOML or JSON file beside it.

`net.onnx` is described by `net.toml` (or `net.json`):

    outputs = ["layer2", "layer3"]     # tensors (N, C, h, w), the finest grid first
    size = [224, 224]                  # height and width that it was made for
    mean = [123.675, 116.28, 103.53]   # subtracted from pixels in 0..255 …
    std = [58.395, 57.12, 57.375]      # … and divided by
    descriptor = "concat"              # or "patchcore"

It runs at any other size that is asked for, if it can.
"""

from __future__ import annotations

import hashlib
import json
import tomllib
from collections.abc import Sequence
from pathlib import Path
from types import UnionType
from typing import Any

import numpy as np
import onnx
from onnx import compose, helper, inliner, version_converter

from mhpatchcore.backbone.descriptors import append_descriptors, descriptor_model
from mhpatchcore.backbone.graph import OPSET, FeatureMap, Graph
from mhpatchcore.backbone.safety import check_functions_end, check_harmless
from mhpatchcore.backbone.session import Backbone, BackboneInfo, check_sees, make_session
from mhpatchcore.errors import UserError, WeightsError, in_one_line

PREFIX = "user/"

# what a description must say: the type of the values, how many, and an example
NEEDED: dict[str, tuple[type | UnionType, int | None, str]] = {
    "outputs": (str, None, '["layer2", "layer3"]'),
    "size": (int, 2, "[224, 224]"),
    "mean": (int | float, 3, "[123.675, 116.28, 103.53]"),
    "std": (int | float, 3, "[58.395, 57.12, 57.375]"),
}


def load_custom(
    path: Path, size: tuple[int, int] | None, layers: Sequence[str], descriptor: str, pool: int = 1
) -> tuple[BackboneInfo, bytes]:
    """The user's network between our normalisation and our descriptor tail, as one graph.

    Without a size it is that of the description.
    """
    if not path.is_file():
        raise WeightsError(f"there is no ONNX file {path}; check the path")
    description = read_description(path)
    made_for = (description["size"][0], description["size"][1])
    size = size or made_for
    layers = tuple(layers) or tuple(description["outputs"])
    if descriptor == "published":
        descriptor = "patchcore"
    descriptor = descriptor or description.get("descriptor", "concat")
    network = _read_network(path, size)
    maps = _feature_maps(network, size, made_for, layers, path)

    graph = Graph(path.stem)
    image = graph.normalised_image(*size, description["mean"], description["std"])
    _insert(graph, network, image)
    local = append_descriptors(graph, maps, descriptor, pool)
    info = BackboneInfo(
        name=path.name,
        weights_sha256=hashlib.sha256(path.read_bytes()).hexdigest(),
        weights_source=f"file {path.name}",
        layers=layers,
        descriptor=descriptor,
        height=size[0],
        width=size[1],
        maps=tuple((layer.channels, layer.height, layer.width) for layer in local),
        pool=pool,
    )
    model = descriptor_model(graph, local)
    check_sees(Backbone(info, model))
    return info, model


def read_description(path: Path) -> dict[str, Any]:
    """The TOML or JSON file beside an ONNX file, with what it must say."""
    for suffix in (".toml", ".json"):
        beside = path.with_suffix(suffix)
        if beside.is_file():
            try:
                text = beside.read_text(encoding="utf-8")
                description = tomllib.loads(text) if suffix == ".toml" else json.loads(text)
            except (ValueError, RecursionError) as error:
                raise UserError(f"cannot read {beside}: {in_one_line(error)}") from error
            for key, (kind, count, example) in NEEDED.items():
                values = description.get(key) if isinstance(description, dict) else None
                is_list = isinstance(values, list) and all(isinstance(value, kind) for value in values)
                if not (is_list and values and len(values) == (count or len(values))):
                    raise UserError(f"{beside} must say {key}, for example {key} = {example}")
            return dict(description)
    raise UserError(
        f"{path} needs a description beside it: {path.with_suffix('.toml').name} with outputs, size, mean and std"
    )


def _read_network(path: Path, size: tuple[int, int]) -> Any:
    try:
        network = onnx.load(path)
        check_functions_end(network)
        network = inliner.inline_local_functions(network)
        onnx.checker.check_model(network)
        check_harmless(network, (1, 3, *size))
        if _opsets(network)[""] < OPSET:
            network = version_converter.convert_version(network, OPSET)
        return compose.add_prefix(network, PREFIX)
    except Exception as error:  # protobuf and the converter raise many kinds
        raise WeightsError(f"cannot read the ONNX file {path}: {in_one_line(error)}") from error


def _opsets(network: Any) -> dict[str, int]:
    """Versions by domain; ONNX's own domain has two spellings."""
    imports = network.opset_import
    return {"" if opset.domain == "ai.onnx" else opset.domain: opset.version for opset in imports}


def _entry(network: Any) -> str:
    """The name of the network's input; old files list their weights as inputs as well."""
    weights = {tensor.name for tensor in network.graph.initializer}
    return str(next(value.name for value in network.graph.input if value.name not in weights))


def _feature_maps(
    network: Any, size: tuple[int, int], made_for: tuple[int, int], layers: Sequence[str], path: Path
) -> list[FeatureMap]:
    """Shapes of the named outputs, found by running the network once."""
    outputs = [output.name for output in network.graph.output]
    unknown = [layer for layer in layers if PREFIX + layer not in outputs]
    if unknown:
        known = ", ".join(name.removeprefix(PREFIX) for name in outputs)
        raise UserError(f"{path} has no output '{unknown[0]}'; it has: {known}")
    names = [PREFIX + layer for layer in layers]
    try:
        session = make_session(network.SerializeToString())
        arrays = session.run(names, {_entry(network): np.zeros((1, 3, *size), np.float32)})
    except Exception as error:  # ONNX Runtime's errors have no common base
        cure = (
            f"use the size in its description, {made_for[0]}x{made_for[1]}, and `aspect=stretch`"
            if size != made_for
            else "correct the size in its description"
        )
        raise UserError(
            f"{path} does not run on an image (1, 3, {size[0]}, {size[1]}) ({in_one_line(error)}): {cure}"
        ) from error
    wrong = [
        name
        for name, array in zip(layers, arrays, strict=True)
        if array.ndim != 4 or array.dtype != np.float32
    ]
    if wrong:
        raise UserError(f"output '{wrong[0]}' of {path} is no float32 feature map (N, C, h, w)")
    return [FeatureMap(name, *array.shape[1:]) for name, array in zip(names, arrays, strict=True)]


def _insert(graph: Graph, network: Any, image: str) -> None:
    """Put the network behind the tensor `image`, under the operator versions it was written for."""
    graph.nodes.append(helper.make_node("Identity", [image], [_entry(network)]))
    graph.nodes.extend(network.graph.node)
    graph.initializers.extend(network.graph.initializer)
    graph.opsets |= _opsets(network)
    graph.ir_version = max(graph.ir_version, network.ir_version)
