"""Networks of others: are they harmless to run, and a user's own ONNX file as a backbone.

`net.onnx`, whose outputs are feature maps, is described by `net.toml` (or `net.json`) beside it:

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
from collections.abc import Iterator, Sequence
from graphlib import CycleError, TopologicalSorter
from math import prod
from pathlib import Path
from types import UnionType
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, compose, helper, inliner, shape_inference, version_converter

from mhpatchcore.backbone.descriptors import descriptor_model
from mhpatchcore.backbone.graph import OPSET, FeatureMap, Graph
from mhpatchcore.backbone.session import Backbone, BackboneInfo, check_sees, make_session
from mhpatchcore.errors import UserError, WeightsError, in_one_line

PREFIX = "user/"
ENDLESS = ("Loop", "Scan")
MOST_ELEMENTS = 2**29  # of one tensor, 2 GB
SMALL = 1024  # elements of a constant that may be a shape

# what a description must say: the type of the values, how many, and an example
NEEDED: dict[str, tuple[type | UnionType, int | None, str]] = {
    "outputs": (str, None, '["layer2", "layer3"]'),
    "size": (int, 2, "[224, 224]"),
    "mean": (int | float, 3, "[123.675, 116.28, 103.53]"),
    "std": (int | float, 3, "[58.395, 57.12, 57.375]"),
}


def load_custom(
    path: Path, size: tuple[int, int] | None, layers: Sequence[str], kind: str, pool: int
) -> tuple[BackboneInfo, bytes]:
    """The user's network between our normalisation and our descriptor tail, as one graph.

    Without a size it is that of the description.
    """
    if not path.is_file():
        raise WeightsError(f"there is no ONNX file {path}; check the path")
    description = _read_description(path)
    made_for = (description["size"][0], description["size"][1])
    size, layers = size or made_for, tuple(layers) or tuple(description["outputs"])
    kind = "patchcore" if kind == "published" else kind or description.get("descriptor", "concat")
    network = _read_network(path, size)
    # old files list their weights as inputs as well
    weights = {tensor.name for tensor in network.graph.initializer}
    entry = next(value.name for value in network.graph.input if value.name not in weights)
    maps = _feature_maps(network, entry, size, made_for, layers, path)

    graph = Graph(path.stem)
    image = graph.normalised_image(*size, description["mean"], description["std"])
    graph.nodes.append(helper.make_node("Identity", [image], [entry]))
    graph.nodes.extend(network.graph.node)
    graph.initializers.extend(network.graph.initializer)
    graph.opsets |= _opsets(network)  # the operator versions it was written for
    graph.ir_version = max(graph.ir_version, network.ir_version)
    model, shapes = descriptor_model(graph, maps, kind, pool)
    sha256 = hashlib.sha256(path.read_bytes()).hexdigest()
    info = BackboneInfo(path.name, sha256, f"file {path.name}", layers, kind, *size, shapes, pool)
    check_sees(Backbone(info, model))
    return info, model


def _read_description(path: Path) -> dict[str, Any]:
    """The TOML or JSON file beside an ONNX file, with what it must say."""
    toml, other = path.with_suffix(".toml"), path.with_suffix(".json")
    beside = toml if toml.is_file() else other
    if not beside.is_file():
        raise UserError(f"{path} needs a description beside it: {toml.name} with outputs, size, mean and std")
    try:
        text = beside.read_text(encoding="utf-8")
        description = dict(tomllib.loads(text) if beside is toml else json.loads(text))
    except (ValueError, TypeError, RecursionError) as error:
        raise UserError(f"cannot read {beside}: {in_one_line(error)}") from error
    for key, (kind, count, example) in NEEDED.items():
        values = description.get(key)
        is_list = isinstance(values, list) and all(isinstance(value, kind) for value in values)
        if not (is_list and values and len(values) == (count or len(values))):
            raise UserError(f"{beside} must say {key}, for example {key} = {example}")
    return description


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


def _feature_maps(
    network: Any,
    entry: str,
    size: tuple[int, int],
    made_for: tuple[int, int],
    layers: Sequence[str],
    path: Path,
) -> list[FeatureMap]:
    """Shapes of the named outputs, found by running the network once."""
    outputs = [output.name.removeprefix(PREFIX) for output in network.graph.output]
    unknown = [layer for layer in layers if layer not in outputs]
    if unknown:
        raise UserError(f"{path} has no output '{unknown[0]}'; it has: {', '.join(outputs)}")
    names = [PREFIX + layer for layer in layers]
    try:
        session = make_session(network.SerializeToString())
        arrays = session.run(names, {entry: np.zeros((1, 3, *size), np.float32)})
    except Exception as error:  # ONNX Runtime's errors have no common base
        cure = "correct the size in its description"
        if size != made_for:
            cure = f"use the size in its description, {made_for[0]}x{made_for[1]}, and `aspect=stretch`"
        raise UserError(
            f"{path} does not run on an image (1, 3, {size[0]}, {size[1]}) ({in_one_line(error)}): {cure}"
        ) from error
    for layer, array in zip(layers, arrays, strict=True):
        if array.ndim != 4 or array.dtype != np.float32:
            raise UserError(f"output '{layer}' of {path} is no float32 feature map (N, C, h, w)")
    return [FeatureMap(name, *array.shape[1:]) for name, array in zip(names, arrays, strict=True)]


def check_harmless(model: Any, image: Sequence[int]) -> dict[str, tuple[int, ...]]:
    """ValueError for a network that reads files, that may run forever, or that makes tensors beyond all use.

    Whoever made the file decides what it computes, but not what it does to the machine. ONNX Runtime executes no code
    of a file, but a graph may name other files to read, run forever, or ask for any amount of memory. Networks that
    look at an image need none of that. `image` is the shape of the network's input. The shapes of all tensors that are
    known before it runs are returned, with zeros where they are not.
    """
    if model.functions:
        raise ValueError("it has functions of its own")
    for graph in _graphs(model.graph):
        for tensor in graph.initializer:
            if tensor.data_location == TensorProto.EXTERNAL:
                raise ValueError(f"its weights {tensor.name} are in another file")
        for node in graph.node:
            if node.op_type in ENDLESS:
                raise ValueError(f"it may run forever: it has the operator {node.op_type}")
    shapes = _shapes(model, image)
    for name, shape in shapes.items():
        if prod(shape) > MOST_ELEMENTS:
            raise ValueError(f"its tensor {name} would have {prod(shape):,} numbers")
    return shapes


def check_functions_end(model: Any) -> None:
    """ValueError for functions that call themselves, which older versions of ONNX inline until the process dies."""
    calls: dict[tuple[str, str], list[tuple[str, str]]] = {}
    for function in model.functions:
        nodes = (node for graph in _graphs(function) for node in graph.node)
        calls[function.domain, function.name] = [(node.domain, node.op_type) for node in nodes]
    try:
        TopologicalSorter(calls).prepare()
    except CycleError as error:
        raise ValueError(f"its function {error.args[1][0][1]} calls itself") from error


def _graphs(graph: Any) -> Iterator[Any]:
    """The graph, or a function, and the branches within it."""
    yield graph
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.HasField("t") and attribute.t.data_location == TensorProto.EXTERNAL:
                raise ValueError(f"its constant {node.name} is in another file")
            for branch in (attribute.g, *attribute.graphs):
                yield from _graphs(branch)


def _shapes(model: Any, image: Sequence[int]) -> dict[str, tuple[int, ...]]:
    weights = {tensor.name for tensor in model.graph.initializer}
    images = [value for value in model.graph.input if value.name not in weights]
    inputs = [
        helper.make_tensor_value_info(one.name, one.type.tensor_type.elem_type, image) for one in images
    ]
    constants = [tensor for tensor in model.graph.initializer if prod(tensor.dims) <= SMALL]
    # weights are large, and only their shapes are of interest
    inputs += [
        helper.make_tensor_value_info(tensor.name, tensor.data_type, tensor.dims)
        for tensor in model.graph.initializer
        if prod(tensor.dims) > SMALL
    ]
    graph = helper.make_graph(model.graph.node, "outline", inputs, [], constants)
    outline = onnx.ModelProto(ir_version=model.ir_version, opset_import=model.opset_import, graph=graph)
    try:
        inferred = shape_inference.infer_shapes(outline, data_prop=True)
    except (RuntimeError, shape_inference.InferenceError) as error:
        raise ValueError(in_one_line(error)) from error
    return {
        value.name: tuple(dim.dim_value for dim in value.type.tensor_type.shape.dim)
        for value in inferred.graph.value_info
    }
