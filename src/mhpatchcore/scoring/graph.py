"""The way from a view to patch scores as one ONNX graph, so that nothing but the scores leaves ONNX Runtime.

local maps of each layer → z (1×1 convolutions) → aligned and added → [z, ‖z‖², 1] · targets → minima over rows
→ the farthest patches against what their nearest rows span → smoothed maps

Whitening is affine and alignment is linear, so each layer is whitened on its own grid, where there are fewer positions
and fewer channels to interpolate. `Scorer` is the plain twin of this graph.
"""

from __future__ import annotations

import numpy as np

from mhpatchcore.backbone.descriptors import LOCAL
from mhpatchcore.backbone.graph import Graph
from mhpatchcore.backbone.session import Backbone, BackboneInfo
from mhpatchcore.metric.distances import RUN, BankPart
from mhpatchcore.metric.whitening import Whitening
from mhpatchcore.scoring.maps import smooth_upsampling
from mhpatchcore.scoring.rules import Scorer
from mhpatchcore.scoring.span import RIDGE, TINY, looked_at


def scoring_graph(backbone: Backbone, whitening: Whitening, scorer: Scorer) -> bytes:
    """The backbone continued to patch scores, for one image.

    Outputs: "output" (h·w,) distances to the bank as the image score takes them, "typical" (h·w,) as the map does, the
    "peaks" (2,) of their smoothed maps, and the whitened patches "z" (k, h·w), all as `Scorer` takes them.
    """
    height, width = backbone.info.grid
    patches, k = height * width, len(whitening.A)
    graph = Graph.reopen(backbone.graph)
    z = graph.reshape(_whitened(graph, whitening, height, width), k, patches)
    squares = graph.node("ReduceSumSquare", [z, graph.constant(np.array([0], np.int64))], keepdims=1)
    queries = graph.node("Concat", [z, squares, graph.constant(np.ones((1, patches), np.float32))], axis=0)
    least = [_least(graph, part, queries, patches) for part in scorer.parts]
    for_image, for_map = zip(*least, strict=True)
    nearest, typical = graph.node("Min", for_image), graph.node("Mean", for_map)
    if scorer.around > 1:
        nearest = _spanned(graph, nearest, queries, scorer, patches)
    peaks = [_map_peak(graph, a, backbone.info, scorer.config.sigma) for a in (nearest, typical)]
    outputs = {
        "typical": (typical, [patches]),
        "peaks": (graph.node("Concat", peaks, axis=0), [2]),
        "z": (z, [k, patches]),
    }
    return bytes(graph.model(nearest, [patches], **outputs).SerializeToString())


def _map_peak(graph: Graph, distances: str, info: BackboneInfo, sigma: float) -> str:
    """The maximum (1,) of the smoothed map, which is rows · a · columnsᵀ."""
    rows = smooth_upsampling(info.height, info.grid[0], sigma)
    columns = smooth_upsampling(info.width, info.grid[1], sigma)
    a = graph.reshape(distances, *info.grid)
    heat = graph.node("MatMul", [graph.node("MatMul", [graph.constant(rows), a]), graph.constant(columns.T)])
    first = graph.constant(np.array([0], np.int64))
    return graph.node("ReduceMax", [graph.reshape(heat, -1), first], keepdims=1)


def _least(graph: Graph, part: BankPart, queries: str, patches: int) -> tuple[str, str]:
    """Least distances (h·w,) to the rows of a part, for the image score and for the map.

    Minima over runs of rows first: they fit into the cache, and cores can share them. Rounding can put the distance to
    an equal row just below zero.
    """
    runs = -(-len(part.targets) // RUN)
    filled = np.pad(part.targets, ((0, runs * RUN - len(part.targets)), (0, 0)), mode="edge")
    products = graph.node("MatMul", [graph.constant(filled), queries])
    of_runs = _least_of(graph, graph.reshape(products, -1, RUN, patches), axis=1)
    image = graph.relu(_least_of(graph, of_runs, axis=0))
    if part.relief is None:
        return image, image
    relieved = graph.node("Mul", [of_runs, graph.constant(part.relief[:, None])])
    return image, graph.relu(_least_of(graph, relieved, axis=0))


def _least_of(graph: Graph, x: str, axis: int) -> str:
    return graph.node("ReduceMin", [x, graph.constant(np.array([axis], np.int64))], keepdims=0)


def _spanned(graph: Graph, nearest: str, queries: str, scorer: Scorer, patches: int) -> str:
    """Distances (h·w,) to what the nearest rows span, as `spanned` in bank/span.py."""
    count, b, k = looked_at(patches), scorer.around, scorer.bank.shape[1]
    order = np.concatenate([part.rows for part in scorer.parts])
    root = np.sqrt(scorer.weights[order])[:, None]
    farthest, far = graph.select(nearest, count, axis=0, largest=True)
    looking = graph.node("Gather", [queries, far], axis=1)  # (k + 2, count)
    targets = graph.constant(np.concatenate([part.targets for part in scorer.parts]))
    distances, rows = graph.select(graph.node("MatMul", [targets, looking]), b, axis=0)  # (b, count)
    rows = graph.node("Transpose", [rows], perm=[1, 0])
    m, w = (graph.node("Gather", [graph.constant(x), rows]) for x in (root * scorer.bank[order], root))
    z = graph.reshape(graph.node("Transpose", [graph.cut(looking, (0, k))], perm=[1, 0]), count, 1, k)
    v = graph.node("Sub", [graph.node("Mul", [w, z]), m])  # (count, b, k)
    squares = graph.relu(distances)  # rounding may leave less than nothing
    trace = graph.node("ReduceSum", [squares, graph.constant(np.array([0], np.int64))], keepdims=0)
    found = _span_distances(graph, v, trace, b, count)
    total, was = (graph.node("ReduceSum", [x], keepdims=1) for x in (found, farthest))
    ratio = graph.node("Div", [total, graph.node("Max", [was, graph.constant(np.array([TINY], np.float32))])])
    return graph.node("ScatterElements", [graph.node("Mul", [nearest, ratio]), far, found])


def _span_distances(graph: Graph, v: str, trace: str, b: int, count: int) -> str:
    """1 / (1ᵀ(V + λI)⁻¹1) (count,) of the differences v (count, b, k), whose squares add up to `trace` (count,).

    Bordered by ones, V + λI is eliminated row by row: what is left in the corner is −1ᵀ(V + λI)⁻¹1. The patches are the
    last axis, so that every step is a few products of long vectors.
    """
    V = graph.node("MatMul", [v, graph.node("Transpose", [v], perm=[0, 2, 1])])
    V = graph.node("Transpose", [V], perm=[1, 2, 0])  # (b, b, count)
    share, least, one = (graph.constant(np.array(x, np.float32)) for x in (RIDGE / b, TINY, 1))
    ridge = graph.add(graph.node("Mul", [trace, share]), least)  # (count,)
    border = graph.constant(np.array([0, 0, 0, 1, 1, 0], np.int64))
    diagonal, corner = (np.diag([x] * b + [y]).astype(np.float32)[:, :, None] for x, y in ((1, 0), (0, -1)))
    left = graph.add(graph.node("Pad", [V, border, one]), graph.constant(corner))  # zero in the corner
    left = graph.add(left, graph.node("Mul", [graph.constant(diagonal), ridge]))
    for i in range(b):
        row = graph.cut(left, (i, i + 1))
        scaled = graph.node("Div", [row, graph.cut(row, (0, 1), (i, i + 1))])
        column = graph.reshape(row, b + 1, 1, count)
        left = graph.node("Sub", [left, graph.node("Mul", [column, scaled])])
    rest = graph.reshape(graph.cut(left, (b, b + 1), (b, b + 1)), count)
    return graph.node("Reciprocal", [graph.node("Neg", [rest])])


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
