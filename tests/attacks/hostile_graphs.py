"""What can be put into an ONNX graph that a network for images has no need of."""

from __future__ import annotations

from typing import Any

import numpy as np
from onnx import TensorProto, helper, numpy_helper


def add_node(model: Any, operator: str, **attributes: Any) -> None:
    """A node in front of all, on a constant; what it gives is added to nothing."""
    domain = attributes.pop("domain", "")
    model.graph.initializer.append(numpy_helper.from_array(np.ones(1, np.float32), "hostile_in"))
    node = helper.make_node(operator, ["hostile_in"], ["hostile_out"], domain=domain, **attributes)
    model.graph.node.insert(0, node)
    if domain:
        model.opset_import.append(helper.make_opsetid(domain, 1))
    _reach_output(model, "hostile_out")


def external_weights(model: Any, location: str) -> None:
    """The first weights are in another file, by its name alone."""
    tensor = next(tensor for tensor in model.graph.initializer if tensor.dims)
    tensor.ClearField("raw_data")
    tensor.data_location = TensorProto.EXTERNAL
    for key, value in (
        ("location", location),
        ("offset", "0"),
        ("length", str(4 * int(np.prod(tensor.dims)))),
    ):
        entry = tensor.external_data.add()
        entry.key, entry.value = key, value


def endless_loop(model: Any) -> None:
    """A loop of 2⁶³ − 1 rounds, whose condition is always true."""
    body = helper.make_graph(
        [helper.make_node("Identity", ["condition"], ["again"]), helper.make_node("Identity", ["x"], ["y"])],
        "body",
        [
            helper.make_tensor_value_info("round", TensorProto.INT64, []),
            helper.make_tensor_value_info("condition", TensorProto.BOOL, []),
            helper.make_tensor_value_info("x", TensorProto.FLOAT, [1]),
        ],
        [
            helper.make_tensor_value_info("again", TensorProto.BOOL, []),
            helper.make_tensor_value_info("y", TensorProto.FLOAT, [1]),
        ],
    )
    constants = {
        "hostile_rounds": np.array(2**63 - 1, np.int64),
        "hostile_true": np.array(True),
        "hostile_x": np.ones(1, np.float32),
    }
    for name, array in constants.items():
        model.graph.initializer.append(numpy_helper.from_array(array, name))
    model.graph.node.insert(0, helper.make_node("Loop", list(constants), ["hostile_out"], body=body))
    _reach_output(model, "hostile_out")


def giant_tensor(model: Any, elements: int) -> None:
    """A tensor of so many numbers, from a few bytes in the file."""
    model.graph.initializer.append(numpy_helper.from_array(np.array([elements], np.int64), "hostile_shape"))
    nodes = [
        helper.make_node("ConstantOfShape", ["hostile_shape"], ["hostile_many"]),
        helper.make_node("ReduceMax", ["hostile_many"], ["hostile_out"], keepdims=0),
    ]
    for node in reversed(nodes):
        model.graph.node.insert(0, node)
    _reach_output(model, "hostile_out")


def recursive_function(model: Any) -> None:
    call = helper.make_node("Again", ["x"], ["y"], domain="mine")
    opset = helper.make_opsetid("mine", 1)
    model.functions.append(helper.make_function("mine", "Again", ["x"], ["y"], [call], [opset]))
    add_node(model, "Again", domain="mine")


def _reach_output(model: Any, name: str) -> None:
    """Let the image depend on what the attack makes, so that it cannot be left out as unused."""
    image = next(
        value.name
        for value in model.graph.input
        if value.name not in {tensor.name for tensor in model.graph.initializer}
    )
    for node in model.graph.node:
        node.input[:] = ["hostile_image" if entry == image else entry for entry in node.input]
    model.graph.initializer.append(numpy_helper.from_array(np.zeros(1, np.float32), "hostile_zero"))
    model.graph.node.insert(1, helper.make_node("Mul", [name, "hostile_zero"], ["hostile_nothing"]))
    model.graph.node.insert(2, helper.make_node("Add", [image, "hostile_nothing"], ["hostile_image"]))
    if model.graph.node[0].output[0] != name:  # it takes two nodes to make it
        model.graph.node.insert(1, model.graph.node.pop(3))
