"""The way from a view to patch scores as one ONNX graph, so that nothing but the scores leaves ONNX Runtime.

local maps of each layer → z (1×1 convolutions) → aligned and added → [z, ‖z‖², 1] · targets → minima over rows
→ smoothed maps

Whitening is affine and alignment is linear, so each layer is whitened on its own grid, where there are fewer positions
and fewer channels to interpolate. `Scorer` is the plain twin of this graph.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from mhpatchcore.backbone.descriptors import LOCAL
from mhpatchcore.backbone.graph import Graph
from mhpatchcore.backbone.session import Backbone, BackboneInfo
from mhpatchcore.bank.search import RUN, BankPart
from mhpatchcore.maps import smooth_upsampling
from mhpatchcore.whitening import Whitening


def scoring_graph(backbone: Backbone, whitening: Whitening, parts: Sequence[BankPart], sigma: float) -> bytes:
    """The backbone continued to patch scores, for one image.

    Outputs: "output" (h·w,) distances to the nearest bank row, "typical" (h·w,) their mean over the bank's parts, the
    "peaks" (2,) of their smoothed maps, and the whitened patches "z" (k, h·w), all as `Scorer` takes them.
    """
    height, width = backbone.info.grid
    patches = height * width
    graph = Graph.reopen(backbone.graph)
    z = _whitened(graph, whitening, height, width)
    z = graph.node("Reshape", [z, graph.constant(np.array([len(whitening.A), patches], np.int64))])
    first = graph.constant(np.array([0], np.int64))
    squares = graph.node("ReduceSumSquare", [z, first], keepdims=1)
    queries = graph.node("Concat", [z, squares, graph.constant(np.ones((1, patches), np.float32))], axis=0)
    for_image, for_map = zip(*(_least(graph, part, queries, patches) for part in parts), strict=True)
    nearest, typical = graph.node("Min", for_image), graph.node("Mean", for_map)
    peaks = [_map_peak(graph, a, backbone.info, sigma) for a in (nearest, typical)]
    outputs = {
        "typical": (typical, [patches]),
        "peaks": (graph.node("Concat", peaks, axis=0), [2]),
        "z": (z, [len(whitening.A), patches]),
    }
    return bytes(graph.model(nearest, [patches], **outputs).SerializeToString())


def _map_peak(graph: Graph, distances: str, info: BackboneInfo, sigma: float) -> str:
    """The maximum (1,) of the smoothed map, which is rows · a · columnsᵀ."""
    rows = smooth_upsampling(info.height, info.grid[0], sigma)
    columns = smooth_upsampling(info.width, info.grid[1], sigma)
    a = graph.node("Reshape", [distances, graph.constant(np.array(info.grid, np.int64))])
    heat = graph.node("MatMul", [graph.node("MatMul", [graph.constant(rows), a]), graph.constant(columns.T)])
    flat = graph.node("Reshape", [heat, graph.constant(np.array([-1], np.int64))])
    return graph.node("ReduceMax", [flat, graph.constant(np.array([0], np.int64))], keepdims=1)


def _least(graph: Graph, part: BankPart, queries: str, patches: int) -> tuple[str, str]:
    """Least distances (h·w,) to the rows of a part, for the image score and for the map.

    Minima over runs of rows first: they fit into the cache, and cores can share them. Rounding can put the distance to
    an equal row just below zero.
    """
    runs = -(-len(part.targets) // RUN)
    filled = np.pad(part.targets, ((0, runs * RUN - len(part.targets)), (0, 0)), mode="edge")
    products = graph.node("MatMul", [graph.constant(filled), queries])
    shape = graph.constant(np.array([runs, RUN, patches], np.int64))
    of_runs = _least_of(graph, graph.node("Reshape", [products, shape]), axis=1)
    image = graph.relu(_least_of(graph, of_runs, axis=0))
    if part.relief is None:
        return image, image
    relieved = graph.node("Mul", [of_runs, graph.constant(part.relief[:, None])])
    return image, graph.relu(_least_of(graph, relieved, axis=0))


def _least_of(graph: Graph, x: str, axis: int) -> str:
    return graph.node("ReduceMin", [x, graph.constant(np.array([axis], np.int64))], keepdims=0)


def _whitened(graph: Graph, whitening: Whitening, height: int, width: int) -> str:
    """z (1, k, h, w) = Σ over layers of A_l·local_l, aligned, minus A·mean."""
    total, start = "", 0
    for i in range(sum(name.startswith(LOCAL) for name in graph.named)):
        name = f"{LOCAL}{i}"
        channels, rows, columns = graph.named[name]
        block = whitening.A[:, start : start + channels, None, None]
        offset = -(whitening.A @ whitening.mean) if i == 0 else None
        z = graph.conv(name, block, offset)
        if (rows, columns) != (height, width):
            z = graph.resize_bilinear(z, height, width)
        total = z if i == 0 else graph.add(total, z)
        start += channels
    return total
