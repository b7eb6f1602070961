"""Pillow's bilinear resize as an ONNX graph, pixel for pixel: columns first, then rows, rounded in between.

Along one axis an output o lies at (2o + 1)·p + c and a pixel x at (2x + 1)·q, in units in which the triangle reaches
2·max(p, q) to either side; p/q is the scale, and c the beginning of a crop. So the weights are whole numbers,

    w(o, x) = max(0, 2·max(p, q) − |(2x + 1)·q − (2o + 1)·p − c|)          0 ≤ x < length

and their shares in 2²² parts, which Pillow rounds to whole numbers k, come from a long division. Sums of k·pixel are
products of matrices of bytes: k has three digits of 8 bits, which are carried afterwards. Up to sides of some 10,000
pixels every number stays below 2²⁴, where float32 is exact too. So runtimes that have no 64-bit numbers, or divide
integers as floats, give the same pixels.

BLOCK neighbouring outputs share a window of pixels, so that the matrices are small.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from onnx import TensorProto

from mhpatchcore.backbone.graph import FLOAT, INT64, Graph
from mhpatchcore.inputs.views import View

BLOCK = 4
DIGIT = 256
# bits of the long division, for each of the three digits of a share: 22 in all, few at a time to stay below 2²⁴
DIVISION = ((3, 3), (4, 4), (4, 4))
ONE, HALF = 2 ** sum(DIVISION[0]), 2 ** (sum(DIVISION[0]) - 1)  # in the highest digit
UINT8, INT32 = TensorProto.UINT8, TensorProto.INT32


@dataclass(frozen=True)
class Axis:
    """One axis of the image: how many pixels it has and how `outputs` of a view lie on it; names of whole numbers."""

    length: str
    outputs: int
    p: str
    q: str
    c: str


def resized(graph: Graph, pixels: str, views: Sequence[View], exact: bool) -> list[str]:
    """An image (1, H, W, C) as views (1, height, width, C), float32.

    `exact` is for bytes, which Pillow rounds to bytes; other values are float32 and stay so.
    """
    height, width = (_whole(graph, graph.node("Shape", [pixels], start=i, end=i + 1)) for i in (1, 2))
    flat = graph.node("Reshape", [pixels, _shape(graph, height, -1)])
    columns = graph.node("Transpose", [flat], perm=[1, 0])  # (W·C, H): two axes are turned fast
    columns = graph.node("Reshape", [columns, _shape(graph, width, -1)])
    seen = []
    for view in views:
        shorter = graph.node("Min", [height, width])
        across = _axis(graph, width, view.width, shorter, view.resize)
        down = _axis(graph, height, view.height, shorter, view.resize)
        narrow = _resampled(graph, columns, across, exact)
        rows = graph.node(
            "Transpose", [graph.node("Reshape", [narrow, _shape(graph, -1, height)])], perm=[1, 0]
        )
        small = graph.reshape(_resampled(graph, rows, down, exact), 1, view.height, view.width, -1)
        seen.append(graph.cast(small, FLOAT) if exact else small)
    return seen


def _axis(graph: Graph, length: str, outputs: int, shorter: str, resize: int | None) -> Axis:
    """The whole axis, or the middle of it where the shorter side is resized to `resize` first (`View.geometry`)."""
    if resize is None:
        return Axis(length, outputs, length, graph.number(outputs, np.int32), graph.number(0, np.int32))
    q = graph.number(resize, np.int32)
    middle = graph.node("Mul", [graph.number(outputs, np.int32), shorter])
    return Axis(length, outputs, shorter, q, graph.node("Sub", [graph.node("Mul", [length, q]), middle]))


def _resampled(graph: Graph, x: str, axis: Axis, exact: bool) -> str:
    """(length, rest) → (outputs, rest)."""
    places, weights = _weights(graph, axis)
    total = graph.node("ReduceSum", [weights, graph.integers(2)], keepdims=1)
    last = graph.node("Sub", [axis.length, graph.number(1, np.int32)])
    around = graph.node("Gather", [x, graph.node("Min", [places, last])], axis=0)  # (blocks, window, rest)
    if exact:
        digits = graph.cast(graph.node("Concat", _digits(graph, weights, total), axis=1), UINT8)
        sums = _rounded(graph, graph.node("MatMulInteger", [digits, around]))
    else:
        sums = graph.node("MatMul", [graph.node("Div", [weights, total]), around])
    rows = -(-axis.outputs // BLOCK) * BLOCK
    return graph.cut(graph.reshape(sums, rows, -1), (0, axis.outputs))


def _weights(graph: Graph, axis: Axis) -> tuple[str, str]:
    """The pixels that blocks of outputs look at (blocks, window), and their weights (blocks, BLOCK, window)."""
    blocks = -(-axis.outputs // BLOCK)
    o = np.arange(blocks * BLOCK, dtype=np.int32).reshape(blocks, BLOCK, 1)
    reach = graph.node("Mul", [graph.node("Max", [axis.p, axis.q]), graph.number(2, np.int32)])
    middles = graph.add(graph.node("Mul", [graph.constant(2 * o + 1), axis.p]), axis.c)
    first = graph.node("Sub", [graph.reshape(graph.cut(middles, (0, blocks), (0, 1)), blocks, 1), reach])
    twice = graph.node("Mul", [axis.q, graph.number(2, np.int32)])
    first = graph.node("Div", [graph.node("Max", [first, graph.number(0, np.int32)]), twice])
    span = graph.add(graph.node("Mul", [graph.number(BLOCK, np.int32), axis.p]), reach)
    window = graph.add(graph.node("Div", [span, axis.q]), graph.number(2, np.int32))
    places = graph.add(
        first, graph.node("Range", [graph.number(0, np.int32), window, graph.number(1, np.int32)])
    )
    x = graph.node("Unsqueeze", [places, graph.integers(1)])
    lies = graph.node("Mul", [graph.add(graph.add(x, x), graph.number(1, np.int32)), axis.q])
    apart = graph.node("Abs", [graph.node("Sub", [lies, middles])])
    weights = graph.node("Max", [graph.node("Sub", [reach, apart]), graph.number(0, np.int32)])
    there = graph.cast(graph.node("Less", [x, axis.length]), INT32)
    return places, graph.cast(graph.node("Mul", [weights, there]), FLOAT)


def _digits(graph: Graph, weights: str, total: str) -> list[str]:
    """round(2²²·weights/total), in digits of 8 bits, the highest first."""
    rest, found = weights, []
    for steps in DIVISION:
        digit = ""
        for bits in steps:
            base = graph.number(2**bits)
            rest = graph.node("Mul", [rest, base])
            times = graph.node("Floor", [graph.node("Div", [rest, total])])
            rest = graph.node("Sub", [rest, graph.node("Mul", [times, total])])
            digit = graph.add(graph.node("Mul", [digit, base]), times) if digit else times
        found.append(digit)
    carry = graph.cast(graph.node("GreaterOrEqual", [graph.add(rest, rest), total]), FLOAT)
    for i in (2, 1):
        digit = graph.add(found[i], carry)
        carry = graph.node("Floor", [graph.node("Div", [digit, graph.number(DIGIT)])])
        found[i] = graph.node("Sub", [digit, graph.node("Mul", [carry, graph.number(DIGIT)])])
    return [graph.add(found[0], carry), *found[1:]]


def _rounded(graph: Graph, sums: str) -> str:
    """The sums (blocks, 3·BLOCK, rest) of each digit → rounded to bytes (blocks, BLOCK, rest)."""
    high, middle, low = (
        graph.node("Slice", [sums, *(graph.integers(end) for end in (i * BLOCK, (i + 1) * BLOCK, 1))])
        for i in range(3)
    )
    middle = graph.add(middle, graph.node("Div", [low, graph.number(DIGIT, np.int32)]))
    high = graph.add(high, graph.node("Div", [middle, graph.number(DIGIT, np.int32)]))
    pixels = graph.node("Div", [graph.add(high, graph.number(HALF, np.int32)), graph.number(ONE, np.int32)])
    return graph.cast(pixels, UINT8)


def _whole(graph: Graph, shape: str) -> str:
    """A side, which is a list of one long number, as a number of 32 bits."""
    return graph.cast(graph.node("Squeeze", [shape]), INT32)


def _shape(graph: Graph, *sides: Any) -> str:
    """A shape of numbers and of names of numbers."""
    parts = [
        graph.reshape(graph.cast(side, INT64), 1) if isinstance(side, str) else graph.integers(side)
        for side in sides
    ]
    return graph.node("Concat", parts, axis=0)
