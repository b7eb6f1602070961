"""A thin pen for writing ONNX graphs: each method appends one node and returns the name of its output."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from mhpatchcore.runtime.arrays import Array

State = Mapping[str, Array]

GRAPH_VERSION = 2  # part of the cache key: raise it when any graph built here changes
OPSET = 18
IR_VERSION = 9


class Graph:
    """An ONNX graph under construction, from uint8-valued images (N, H, W, 3) to named outputs."""

    def __init__(self, name: str, height: int, width: int) -> None:
        self.name = name
        self.height, self.width = height, width
        self.nodes: list[Any] = []
        self.initializers: list[Any] = []
        self.named: dict[str, list[int]] = {}
        self.prefix = ""
        self.opsets = {"": OPSET}
        self.ir_version = IR_VERSION
        self.inputs = [helper.make_tensor_value_info("image", TensorProto.FLOAT, ["N", height, width, 3])]

    @staticmethod
    def reopen(content: bytes) -> Graph:
        """A finished graph, to be continued from its published tensors."""
        model = onnx.load_model_from_string(content)
        dims = model.graph.input[0].type.tensor_type.shape.dim
        graph = Graph(model.graph.name, dims[1].dim_value, dims[2].dim_value)
        graph.nodes, graph.initializers = list(model.graph.node), list(model.graph.initializer)
        graph.opsets = {opset.domain: opset.version for opset in model.opset_import}
        graph.ir_version = model.ir_version
        graph.prefix = "tail_"  # keeps new names apart from those that are there
        for info in model.graph.value_info:
            graph.named[info.name] = [dim.dim_value for dim in info.type.tensor_type.shape.dim[1:]]
        return graph

    def node(self, op: str, inputs: Sequence[str], **attributes: Any) -> str:
        output = f"{self.prefix}{op.lower()}_{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, list(inputs), [output], name=output, **attributes))
        return output

    def select(self, x: str, count: int, axis: int, largest: bool = False) -> tuple[str, str]:
        """The `count` least (or largest) values along an axis, in no order, and their indices."""
        name = f"{self.prefix}topk_{len(self.nodes)}"
        outputs = [name, f"{name}_indices"]
        inputs = [x, self.constant(np.array([count], np.int64))]
        self.nodes.append(
            helper.make_node("TopK", inputs, outputs, name=name, axis=axis, largest=int(largest), sorted=0)
        )
        return outputs[0], outputs[1]

    def cut(self, x: str, *pieces: tuple[int, int]) -> str:
        """x[start:stop, …] along its first axes."""
        starts, stops = (self.constant(np.array(ends, np.int64)) for ends in zip(*pieces, strict=True))
        return self.node("Slice", [x, starts, stops])

    def reshape(self, x: str, *shape: int) -> str:
        return self.node("Reshape", [x, self.constant(np.array(shape, np.int64))])

    def publish(self, x: str, name: str, shape: Sequence[int]) -> None:
        """Give the tensor x (N, *shape) a name by which it can be found in the finished graph."""
        self.nodes.append(helper.make_node("Identity", [x], [name], name=name))
        self.named[name] = list(shape)

    def constant(self, array: Array) -> str:
        name = f"{self.prefix}constant_{len(self.initializers)}"
        self.initializers.append(numpy_helper.from_array(np.ascontiguousarray(array), name))
        return name

    def normalised_image(self, mean: Sequence[float], std: Sequence[float]) -> str:
        """(N, H, W, 3) in 0..255 → (N, 3, H, W), each channel (x − mean) / std."""
        x = self.node("Transpose", ["image"], perm=[0, 3, 1, 2])
        x = self.node("Sub", [x, self.constant(np.asarray(mean, np.float32).reshape(1, 3, 1, 1))])
        return self.node("Mul", [x, self.constant(1 / np.asarray(std, np.float32).reshape(1, 3, 1, 1))])

    def conv(
        self,
        x: str,
        weight: Array,
        bias: Array | None = None,
        stride: int = 1,
        padding: int | str = 0,
        groups: int = 1,
    ) -> str:
        """2-d convolution; `padding` is a width for all sides, or "same" for TensorFlow's asymmetric kind."""
        inputs = [x, self.constant(weight.astype(np.float32))]
        if bias is not None:
            inputs.append(self.constant(bias.astype(np.float32)))
        where: dict[str, Any] = (
            {"auto_pad": "SAME_UPPER"} if padding == "same" else {"pads": [int(padding)] * 4}
        )
        return self.node(
            "Conv",
            inputs,
            kernel_shape=list(weight.shape[2:]),
            strides=[stride, stride],
            group=groups,
            **where,
        )

    def conv_bn(
        self,
        x: str,
        state: State,
        conv: str,
        bn: str,
        eps: float,
        stride: int = 1,
        padding: int | str = 0,
        groups: int = 1,
    ) -> str:
        """Convolution with its batch normalisation folded in."""
        weight, bias = fold_batch_norm(state, conv, bn, eps)
        return self.conv(x, weight, bias, stride, padding, groups)

    def relu(self, x: str) -> str:
        return self.node("Relu", [x])

    def relu6(self, x: str) -> str:
        return self.node(
            "Clip", [x, self.constant(np.array(0, np.float32)), self.constant(np.array(6, np.float32))]
        )

    def add(self, x: str, y: str) -> str:
        return self.node("Add", [x, y])

    def classifier(self, x: str, weight: Array, bias: Array) -> str:
        """Global average pooling and a linear layer: (N, C, h, w) → (N, classes)."""
        pooled = self.node("Flatten", [self.node("GlobalAveragePool", [x])])
        inputs = [pooled, self.constant(weight.astype(np.float32)), self.constant(bias.astype(np.float32))]
        return self.node("Gemm", inputs, transB=1)

    def resize_bilinear(self, x: str, height: int, width: int) -> str:
        """(N, C, h, w) → (N, C, height, width), pixel centres aligned (align_corners=False)."""
        sizes = self.constant(np.array([height, width], np.int64))
        return self.node(
            "Resize",
            [x, "", "", sizes],
            axes=[2, 3],
            mode="linear",
            coordinate_transformation_mode="half_pixel",
        )

    def model(
        self, output: str, output_shape: Sequence[int | str], **also: tuple[str, Sequence[int | str]]
    ) -> Any:
        """The finished `onnx.ModelProto`, holding only what is needed for `output` and what is `also` wanted.

        The first is published as "output", the others (tensor, shape) under their keywords.
        """
        outputs = {"output": (output, output_shape), **also}
        nodes = _needed_nodes(self.nodes, {tensor for tensor, _ in outputs.values()})
        used = {name for node in nodes for name in _reads(node)}
        constants = [tensor for tensor in self.initializers if tensor.name in used]
        nodes += [helper.make_node("Identity", [tensor], [name]) for name, (tensor, _) in outputs.items()]
        results = [
            helper.make_tensor_value_info(name, TensorProto.FLOAT, list(shape))
            for name, (_, shape) in outputs.items()
        ]
        kept = {name for node in nodes for name in node.output}
        shapes = [
            helper.make_tensor_value_info(name, TensorProto.FLOAT, ["N", *shape])
            for name, shape in self.named.items()
            if name in kept
        ]
        graph = helper.make_graph(nodes, self.name, self.inputs, results, value_info=shapes)
        opsets = [helper.make_opsetid(domain, version) for domain, version in self.opsets.items()]
        model = helper.make_model(graph, opset_imports=opsets, ir_version=self.ir_version)
        model.graph.initializer.extend(constants)  # last, because each step before would copy all weights
        onnx.checker.check_model(model)
        return model


def fold_batch_norm(state: State, conv: str, bn: str, eps: float) -> tuple[Array, Array]:
    """Weight and bias of conv∘bn as one convolution: w·γ/√(σ²+ε) and β − μ·γ/√(σ²+ε)."""
    variance = state[f"{bn}.running_var"].astype(np.float64)
    scale = state[f"{bn}.weight"] / np.sqrt(variance + eps)
    weight = state[f"{conv}.weight"] * scale[:, None, None, None]
    bias = state[f"{bn}.bias"] - state[f"{bn}.running_mean"] * scale
    return weight.astype(np.float32), bias.astype(np.float32)


def _needed_nodes(nodes: Sequence[Any], outputs: set[str]) -> list[Any]:
    """The nodes that `outputs` depend on, in their order: the network is cut after its last needed layer."""
    needed, kept = set(outputs), []
    for node in reversed(nodes):
        if any(name in needed for name in node.output):
            needed |= _reads(node)
            kept.append(node)
    return kept[::-1]


def _reads(node: Any) -> set[str]:
    """The tensors a node depends on, including those that the branches of an If or Loop take from outside."""
    branches = [graph for attribute in node.attribute for graph in (attribute.g, *attribute.graphs)]
    return set(node.input).union(*(_reads(inner) for branch in branches for inner in branch.node))
