"""A thin pen for writing ONNX graphs: each method appends one node and returns the name of its output.

With it a family of backbones writes its networks, about each of which it declares an `Architecture`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import onnx
from onnx import AttributeProto, TensorProto, compose, helper, numpy_helper

from mhpatchcore.runtime.arrays import Array

State = Mapping[str, Array]

GRAPH_VERSION = 5  # part of the cache key: raise it when any graph built here changes
OPSET = 18
IR_VERSION = 9
IMAGENET_MEAN = (123.675, 116.28, 103.53)
IMAGENET_STD = (58.395, 57.12, 57.375)

Shape = Sequence[int | str]
FLOAT, HALF, INT64 = TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.INT64


class Graph:
    """An ONNX graph under construction: declared inputs, nodes one after the other, and in the end named outputs."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.nodes: list[Any] = []
        self.initializers: list[Any] = []
        self.inputs: list[Any] = []
        self.prefix = ""
        self.opsets = {"": OPSET}
        self.ir_version = IR_VERSION

    @staticmethod
    def reopen(content: bytes) -> Graph:
        """A finished graph, to be continued from its outputs, which keep their names."""
        model = onnx.load_model_from_string(content)
        graph = Graph(model.graph.name)
        graph.nodes, graph.initializers = list(model.graph.node), list(model.graph.initializer)
        graph.inputs = list(model.graph.input)
        graph.opsets = {opset.domain: opset.version for opset in model.opset_import}
        graph.ir_version = model.ir_version
        graph.prefix = "head_"  # keeps new names apart from those that are there
        return graph

    def insert(self, content: bytes, prefix: str, feed: Mapping[str, str]) -> dict[str, str]:
        """A finished graph as a part of this one, its inputs taken from `feed`; gives where its outputs are.

        Constants that are here already, such as the weights of a network at another scale, are shared.
        """
        model = compose.add_prefix(onnx.load_model_from_string(content), prefix)
        known = {_content(tensor): tensor.name for tensor in self.initializers}
        renamed = {f"{prefix}{name}": tensor for name, tensor in feed.items()}
        for tensor in model.graph.initializer:
            name = known.setdefault(_content(tensor), tensor.name)
            if name == tensor.name:
                self.initializers.append(tensor)
            else:
                renamed[tensor.name] = name
        for node in model.graph.node:
            _rename_reads(node, renamed)
            self.nodes.append(node)
        self.opsets |= {opset.domain: opset.version for opset in model.opset_import}
        self.ir_version = max(self.ir_version, model.ir_version)
        return {output.name.removeprefix(prefix): output.name for output in model.graph.output}

    def input(self, name: str, shape: Shape, kind: int = FLOAT) -> str:
        self.inputs.append(helper.make_tensor_value_info(name, kind, list(shape)))
        return name

    def node(self, op: str, inputs: Sequence[str], **attributes: Any) -> str:
        output = f"{self.prefix}{op.lower()}_{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, list(inputs), [output], name=output, **attributes))
        return output

    def select(self, x: str, count: int, axis: int, largest: bool = False) -> tuple[str, str]:
        """The `count` least (or largest) values along an axis, in no order, and their indices."""
        found = self.node("TopK", [x, self.integers(count)], axis=axis, largest=int(largest), sorted=0)
        indices = f"{found}_indices"
        self.nodes[-1].output.append(indices)
        return found, indices

    def number(self, value: float, kind: type = np.float32) -> str:
        return self.constant(np.array(value, kind))

    def integers(self, *values: int) -> str:
        """A constant list of whole numbers: axes, shapes, paddings."""
        return self.constant(np.array(values, np.int64))

    def minimum(self, x: str, axis: int) -> str:
        return self.node("ReduceMin", [x, self.integers(axis)], keepdims=0)

    def cut(self, x: str, *pieces: tuple[int, int]) -> str:
        """x[start:stop, …] along its first axes."""
        starts, stops = (self.integers(*ends) for ends in zip(*pieces, strict=True))
        return self.node("Slice", [x, starts, stops])

    def every(self, x: str, first: int, step: int) -> str:
        """x[first::step] along its first axis."""
        ends = (first, np.iinfo(np.int64).max, 0, step)
        return self.node("Slice", [x, *(self.integers(end) for end in ends)])

    def reshape(self, x: str, *shape: int) -> str:
        return self.node("Reshape", [x, self.integers(*shape)])

    def cast(self, x: str, kind: int) -> str:
        return self.node("Cast", [x], to=kind)

    def constant(self, array: Array) -> str:
        name = f"{self.prefix}constant_{len(self.initializers)}"
        self.initializers.append(numpy_helper.from_array(np.ascontiguousarray(array), name))
        return name

    def normalised_image(self, height: int, width: int, mean: Sequence[float], std: Sequence[float]) -> str:
        """The input "image" (N, H, W, 3) in 0..255 → (N, 3, H, W), each channel (x − mean) / std."""
        image = self.input("image", ("N", height, width, 3))
        x = self.node("Transpose", [image], perm=[0, 3, 1, 2])
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
        edges: dict[str, Any] = {"pads": [padding] * 4} if padding != "same" else {"auto_pad": "SAME_UPPER"}
        how = {"kernel_shape": list(weight.shape[2:]), "strides": [stride, stride], "group": groups}
        return self.node("Conv", inputs, **how, **edges)

    def conv_bn(self, x: str, state: State, conv: str, bn: str, eps: float, **how: Any) -> str:
        """conv∘bn as one convolution: weights w·γ/√(σ²+ε), bias β − μ·γ/√(σ²+ε)."""
        scale = state[f"{bn}.weight"] / np.sqrt(state[f"{bn}.running_var"].astype(np.float64) + eps)
        weight = state[f"{conv}.weight"] * scale[:, None, None, None]
        bias = state[f"{bn}.bias"] - state[f"{bn}.running_mean"] * scale
        return self.conv(x, weight, bias, **how)

    def relu(self, x: str) -> str:
        return self.node("Relu", [x])

    def relu6(self, x: str) -> str:
        return self.node("Clip", [x, self.number(0), self.number(6)])

    def add(self, x: str, y: str) -> str:
        return self.node("Add", [x, y])

    def linear(self, x: str, weight: Array, bias: Array) -> str:
        """x·Wᵀ + b along the last axis, with a weight (outputs, inputs)."""
        product = self.node("MatMul", [x, self.constant(weight.T.astype(np.float32))])
        return self.add(product, self.constant(bias.astype(np.float32)))

    def layer_norm(self, x: str, state: State, name: str, eps: float) -> str:
        """Normalisation along the last axis."""
        inputs = [x, self.constant(state[f"{name}.weight"]), self.constant(state[f"{name}.bias"])]
        return self.node("LayerNormalization", inputs, axis=-1, epsilon=eps)

    def gelu(self, x: str) -> str:
        """x·Φ(x) = x·(1 + erf(x/√2))/2, an operator of its own only from opset 20 on."""
        erf = self.node("Erf", [self.node("Div", [x, self.number(2**0.5)])])
        doubled = self.node("Mul", [x, self.add(erf, self.number(1))])
        return self.node("Mul", [doubled, self.number(0.5)])

    def resize_bilinear(self, x: str, height: int, width: int) -> str:
        """(N, C, h, w) → (N, C, height, width), pixel centres aligned (align_corners=False)."""
        how = {"mode": "linear", "coordinate_transformation_mode": "half_pixel"}
        return self.node("Resize", [x, "", "", self.integers(height, width)], axes=[2, 3], **how)

    def model(
        self, outputs: Mapping[str, tuple[str, Shape]], kinds: Mapping[str, int] = {}, **metadata: str
    ) -> bytes:
        """The finished model, holding only what is needed for its outputs: {name: (tensor, shape)}.

        They are float32, or of the type in `kinds`.
        """
        results = {tensor for tensor, _ in outputs.values()}
        nodes = _needed_nodes(self.nodes, results)
        used = results.union(*map(_reads, nodes))
        constants = [tensor for tensor in self.initializers if tensor.name in used]
        nodes += [helper.make_node("Identity", [tensor], [name]) for name, (tensor, _) in outputs.items()]
        described = [
            helper.make_tensor_value_info(name, kinds.get(name, FLOAT), list(shape))
            for name, (_, shape) in outputs.items()
        ]
        graph = helper.make_graph(nodes, self.name, self.inputs, described)
        opsets = [helper.make_opsetid(domain, version) for domain, version in self.opsets.items()]
        model = helper.make_model(graph, opset_imports=opsets, ir_version=self.ir_version)
        helper.set_model_props(model, metadata)
        model.graph.initializer.extend(constants)  # last, because each step before would copy all weights
        return bytes(model.SerializeToString())


class FeatureMap(NamedTuple):
    """One layer's output: the name of the tensor in the graph, its channels, and its grid."""

    name: str
    channels: int
    height: int
    width: int


def halved(side: int) -> int:
    """The side of a map behind a layer of stride 2, rounded up."""
    return (side + 1) // 2


class Package(NamedTuple):
    """Weights that come as a package of the Python registry, whose `file_class` tells the path of the file."""

    name: str
    file_class: str


class Hub(NamedTuple):
    """Weights on the Hugging Face hub, timm/<name>.<tag>; `tag`, the training recipe, is that which is usual."""

    name: str
    tag: str


@dataclass(frozen=True)
class Architecture:
    """A network by name: where its weights are, how images enter it and which layers describe patches.

    `build` writes the network for images of one size into a graph, as far as the wanted layers, and returns the layers
    by name. `shapes` are the first sides of tensors by which weights of its relatives are told from its own.
    `descriptor` is the one that suits the network, `published` the one that PatchCore takes with its family. The sides
    of images are a `multiple` of some number of pixels. `reduction` is how its channels are reduced unless a user says
    otherwise: by their covariance (pca), or by their correlation.
    """

    name: str
    weights: Package | Hub
    build: Callable[[Graph, State, str, tuple[int, int], Collection[str]], Mapping[str, FeatureMap]]
    layers: tuple[str, ...]
    descriptor: str
    published: str
    shapes: Mapping[str, tuple[int, ...]]
    mean: tuple[float, float, float] = IMAGENET_MEAN
    std: tuple[float, float, float] = IMAGENET_STD
    multiple: int = 1
    reduction: str = "pca"


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
    return set(node.input).union(*(_reads(inner) for inner in _within(node)))


def _rename_reads(node: Any, names: Mapping[str, str]) -> None:
    """Let a node, and those in its branches, read other tensors."""
    for i, name in enumerate(node.input):
        node.input[i] = names.get(name, name)
    for inner in _within(node):
        _rename_reads(inner, names)


def _within(node: Any) -> list[Any]:
    """The nodes in the branches of an If or Loop."""
    kinds = (AttributeProto.GRAPH, AttributeProto.GRAPHS)
    attributes = (attribute for attribute in node.attribute if attribute.type in kinds)
    branches = [graph for attribute in attributes for graph in (attribute.g, *attribute.graphs)]
    return [inner for branch in branches for inner in branch.node]


def _content(tensor: Any) -> tuple[Any, ...]:
    """What a constant holds: equal for equal ones."""
    array = numpy_helper.to_array(tensor)
    return tensor.data_type, array.shape, hashlib.sha256(array.tobytes()).digest()
