"""Is a network harmless to run? Whoever made the file decides what it computes, but not what it does to the machine.

ONNX Runtime executes no code of a file, but a graph may name other files to read, run forever, or ask for any amount of
memory. Networks that look at an image need none of that.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from graphlib import CycleError, TopologicalSorter
from math import prod
from typing import Any

import onnx
from onnx import TensorProto, helper, shape_inference

from mhpatchcore.errors import in_one_line

ENDLESS = ("Loop", "Scan")
MOST_ELEMENTS = 2**29  # of one tensor, 2 GB
SMALL = 1024  # elements of a constant that may be a shape


def check_harmless(model: Any, image: Sequence[int]) -> None:
    """ValueError for a network that reads files, that may run forever, or that makes tensors beyond all use.

    `image` is the shape of its input.
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
    for name, elements in _tensor_sizes(model, image):
        if elements > MOST_ELEMENTS:
            raise ValueError(f"its tensor {name} would have {elements:,} numbers")


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


def _tensor_sizes(model: Any, image: Sequence[int]) -> Iterator[tuple[str, int]]:
    """Names and numbers of elements of all tensors whose shape is known before it runs."""
    weights = {tensor.name for tensor in model.graph.initializer}  # old files list them as inputs too
    images = [value for value in model.graph.input if value.name not in weights]
    inputs = [
        helper.make_tensor_value_info(one.name, one.type.tensor_type.elem_type, image) for one in images
    ]
    constants = []
    for tensor in model.graph.initializer:
        if prod(tensor.dims) <= SMALL:
            constants.append(tensor)
        else:  # weights are large, and only their shapes are of interest
            inputs.append(helper.make_tensor_value_info(tensor.name, tensor.data_type, tensor.dims))
    graph = helper.make_graph(model.graph.node, "outline", inputs, [], constants)
    outline = onnx.ModelProto(ir_version=model.ir_version, opset_import=model.opset_import, graph=graph)
    try:
        inferred = shape_inference.infer_shapes(outline, data_prop=True)
    except (RuntimeError, shape_inference.InferenceError) as error:
        raise ValueError(in_one_line(error)) from error
    for value in inferred.graph.value_info:
        yield value.name, prod(dim.dim_value for dim in value.type.tensor_type.shape.dim)
