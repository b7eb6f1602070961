"""The way from a view to patch scores as one ONNX graph, so that nothing but the scores leaves ONNX Runtime.

    local maps of each layer → z (1×1 convolutions) → aligned and added → [z, ‖z‖², 1] · targets → minimum over rows

Whitening is affine and alignment is linear, so each layer is whitened on its own grid, where there are fewer positions
and fewer channels to interpolate. `Scorer` is the plain twin of this graph.
"""

from __future__ import annotations

import numpy as np

from mhpatchcore.arrays import Floats
from mhpatchcore.backbone.descriptors import LOCAL
from mhpatchcore.backbone.graph import Graph
from mhpatchcore.backbone.session import Backbone
from mhpatchcore.bank.search import weighted_targets
from mhpatchcore.whitening import Whitening


def scoring_graph(backbone: Backbone, whitening: Whitening, bank: Floats, weights: Floats) -> bytes:
    """The backbone continued to patch scores: "output" (h·w,) and the whitened patches "z" (k, h·w), for one image."""
    height, width = backbone.info.grid
    graph = Graph.reopen(backbone.graph)
    z = _whitened(graph, whitening, height, width)
    z = graph.node("Reshape", [z, graph.constant(np.array([whitening.k, height * width], np.int64))])
    first = graph.constant(np.array([0], np.int64))
    squares = graph.node("ReduceSumSquare", [z, first], keepdims=1)
    ones = graph.constant(np.ones((1, height * width), np.float32))
    queries = graph.node("Concat", [z, squares, ones], axis=0)
    products = graph.node("MatMul", [graph.constant(weighted_targets(bank, weights)), queries])
    scores = graph.node("ReduceMin", [products, first], keepdims=0)
    scores = graph.relu(scores)  # rounding can put the distance to an equal row just below zero
    patches = height * width
    return bytes(graph.model(scores, [patches], z=(z, [whitening.k, patches])).SerializeToString())


def _whitened(graph: Graph, whitening: Whitening, height: int, width: int) -> str:
    """z (1, k, h, w) = Σ over layers of A_l·local_l, aligned, minus A·mean."""
    names = sorted(name for name in graph.named if name.startswith(LOCAL))
    total, start = "", 0
    for i, name in enumerate(names):
        channels, rows, columns = graph.named[name]
        block = whitening.A[:, start : start + channels, None, None]
        offset = -(whitening.A @ whitening.mean) if i == 0 else None
        z = graph.conv(name, block, offset)
        if (rows, columns) != (height, width):
            z = graph.resize_bilinear(z, height, width)
        total = z if i == 0 else graph.add(total, z)
        start += channels
    return total
