"""From the layers of one view to its scores, as an ONNX graph: the only way in which anything is scored.

layers → z (1×1 convolutions, aligned, added) → [z, ‖z‖², 1] · targets → least distances
       → the farthest patches against what their nearest rows span (`local.py`) → score, map

In squared distances, as in the paper:

    a(u) = min_{m∈M} δ(u, m),  δ(u, m) = ‖z(u) − m‖²      where the image departs from normal: the map
    max          s = max_u a(u)
    reweighted   s = w·a(u*),  w = 1 − exp(a(u*)) / Σ_{m∈N_b(m*)} exp(δ(u*, m))
    map-max      s = the maximum of the smoothed map

The input `penalty` (K,) is added to the distance of every bank row: zeros, or EXCLUDED for rows that must not count.
The input `inside` (h·w,) is 1 for patches that count and 0 for others, whose distances are then zero.
The graph begins at a view (`whole_graph`), at stored layers (`head_graph`) or at whitened patches (`rows_graph`), and
is the same from there on.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from types import MappingProxyType

import numpy as np

from mhpatchcore.backbone.descriptors import LOCAL
from mhpatchcore.backbone.graph import FLOAT, HALF, Graph, Shape
from mhpatchcore.backbone.session import Backbone
from mhpatchcore.metric.distances import search_targets
from mhpatchcore.metric.whitening import Whitening
from mhpatchcore.runtime.arrays import Floats
from mhpatchcore.scoring.local import RIDGE, compared, map_parts, rows_around, rows_per_run
from mhpatchcore.scoring.maps import smooth_upsampling

EXCLUDED = np.float32(1e30)
TINY = 1e-12
DISTANCES = 2**19  # between patches and rows, formed at a time: 2 MB
SCORES = ("score", "peak", "nearest", "judged")


@dataclass(frozen=True, eq=False)
class Head:
    """All that scores the views of one scale: the network, the metric, the bank's whitened rows and how they are used.

    bank (K, k), weights (K,) of its rows (`local.py`); `local` rows span what is known, `neighbours` is b of the
    reweighted rule, `sigma` smooths maps, in pixels of the view.
    """

    backbone: Backbone
    whitening: Whitening
    bank: Floats
    weights: Floats
    score: str = "map-max"
    local: int = 1
    neighbours: int = 9
    sigma: float = 4.0

    @property
    def grid(self) -> tuple[int, int]:
        return self.backbone.info.grid

    @property
    def around(self) -> int:
        return rows_around(self.local, *self.bank.shape)

    @cached_property
    def whole_graph(self) -> bytes:
        """From a view (1, H, W, 3) to the scores of SCORES, and the whitened patches "z" (k, h·w)."""
        graph = Graph.reopen(self.backbone.graph)
        z = _whitened(graph, self)
        return _finished(graph, z, self, {"z": (z, (self.whitening.k, self.backbone.info.patches))})

    @cached_property
    def head_graph(self) -> bytes:
        """From stored layers local_0, local_1, … (1, C, h, w), halves, to the same scores."""
        graph = _at_layers(self)
        return _finished(graph, _whitened(graph, self), self)

    @cached_property
    def table_graph(self) -> bytes:
        """From stored layers to the "distances" (K, h·w) of every patch to every row."""
        graph = _at_layers(self)
        queries = _queries(graph, _whitened(graph, self), self)
        distances = graph.node("MatMul", [_targets(graph, self), queries])
        return graph.model({"distances": (distances, (len(self.bank), self.backbone.info.patches))})

    @cached_property
    def rows_graph(self) -> bytes:
        """From whitened patches z (k, h·w) to the same scores."""
        graph = Graph("rows")
        z = graph.input("z", (self.whitening.k, self.backbone.info.patches))
        return _finished(graph, z, self)

    @property
    def no_penalty(self) -> Floats:
        return np.zeros(len(self.bank), np.float32)

    @property
    def everywhere(self) -> Floats:
        """As the input `inside`: all patches count."""
        return np.ones(self.backbone.info.patches, np.float32)


def _at_layers(head: Head) -> Graph:
    """A graph that begins at stored layers."""
    graph = Graph("head")
    for i, shape in enumerate(head.backbone.info.maps):
        graph.input(f"{LOCAL}{i}", (1, *shape), HALF)
    return graph


def _queries(graph: Graph, z: str, head: Head) -> str:
    """The columns [z, ‖z‖², 1] (k + 2, h·w), whose products with targets are distances."""
    ones = graph.constant(np.ones((1, head.backbone.info.patches), np.float32))
    squares = graph.node("ReduceSumSquare", [z, graph.integers(0)], keepdims=1)
    return graph.node("Concat", [z, squares, ones], axis=0)


def _finished(
    graph: Graph, z: str, head: Head, further: Mapping[str, tuple[str, Shape]] = MappingProxyType({})
) -> bytes:
    """Outputs "score" (1,), "peak" (1,) of the map, distances "nearest" (the map's) and "judged" (h·w,); and more."""
    patches = head.backbone.info.patches
    queries, targets = _queries(graph, z, head), _targets(graph, head)
    inside = graph.input("inside", (patches,))
    found = _least(graph, queries, targets, head)
    counted = {x: graph.node("Mul", [x, inside]) for x in dict.fromkeys(found)}
    least, nearest = (counted[x] for x in found)
    judged = least if head.around == 1 else _spanned(graph, least, queries, targets, head)
    peak = _map_peak(graph, nearest, head)
    if head.score == "map-max":
        score = peak if judged == nearest else _map_peak(graph, judged, head)
    elif head.score == "max":
        score = graph.node("ReduceMax", [judged, graph.integers(0)], keepdims=1)
    else:
        score = _reweighted(graph, judged, queries, targets, head)
    outputs: dict[str, tuple[str, Shape]] = {
        "score": (score, (1,)),
        "peak": (peak, (1,)),
        "nearest": (nearest, (patches,)),
        "judged": (judged, (patches,)),
    }
    return graph.model({**outputs, **further})


def _whitened(graph: Graph, head: Head) -> str:
    """z (k, h·w) = Σ over layers of A_l·local_l, aligned, minus A·mean."""
    whitening, (height, width) = head.whitening, head.grid
    total, start = "", 0
    for i, (channels, rows, columns) in enumerate(head.backbone.info.maps):
        block = whitening.A[:, start : start + channels, None, None]
        layer = graph.cast(f"{LOCAL}{i}", FLOAT)
        z = graph.conv(layer, block, -(whitening.A @ whitening.mean) if i == 0 else None)
        if (rows, columns) != (height, width):
            z = graph.resize_bilinear(z, height, width)
        total = z if i == 0 else graph.add(total, z)
        start += channels
    return graph.reshape(total, whitening.k, height * width)


def _targets(graph: Graph, head: Head) -> str:
    """The rows [−2m, 1, ‖m‖² + penalty] (K, k + 2)."""
    targets, K = search_targets(head.bank), len(head.bank)
    penalty = graph.input("penalty", (K,))
    norms = graph.add(graph.constant(targets[:, -1:]), graph.reshape(penalty, K, 1))
    return graph.node("Concat", [graph.constant(targets[:, :-1]), norms], axis=1)


def _rows(graph: Graph, targets: str, which: str, weights: Floats) -> str:
    """The bank's rows w·m (…, k) by their indices, with weights (K, 1).

    They are in the targets as −2m: taking that by −w/2 gives the same bits, and the bank is held once.
    """
    found = graph.node("Gather", [targets, which])
    without_last_two = [graph.integers(end) for end in (0, -2, -1)]
    found = graph.node("Slice", [found, *without_last_two])
    return graph.node("Mul", [found, graph.node("Gather", [graph.constant(-weights / 2), which])])


def _least(graph: Graph, queries: str, targets: str, head: Head) -> tuple[str, str]:
    """The least distances, and the means of the least in each part of the bank: 2 × (h·w,).

    Minima over runs of rows first: at most DISTANCES are formed at a time, which stay in the cache until their minima
    are taken. Rounding can put the distance to an equal row just below zero.
    """
    K, patches = len(head.bank), head.backbone.info.patches
    parts, run = map_parts(head.local, K), rows_per_run(K)
    step = run * max(1, DISTANCES // (run * patches))
    minima = []
    for start in range(0, K, step):
        stop = min(start + step, K)
        rows = targets if step >= K else graph.cut(targets, (start, stop))
        distances = graph.node("MatMul", [rows, queries])
        minima.append(graph.minimum(graph.reshape(distances, (stop - start) // run, run, patches), axis=1))
    runs = minima[0] if len(minima) == 1 else graph.node("Concat", minima, axis=0)
    least = graph.relu(graph.minimum(runs, axis=0))
    if parts == 1:
        return least, least
    # a part may hold nothing but excluded rows
    none_left = graph.constant(np.array(EXCLUDED / 2, np.float32))
    pieces = []
    for part in range(parts):
        piece = graph.relu(graph.minimum(graph.every(runs, part, parts), axis=0))
        pieces.append(graph.node("Where", [graph.node("Greater", [piece, none_left]), least, piece]))
    return least, graph.node("Mean", pieces)


def _map_peak(graph: Graph, distances: str, head: Head) -> str:
    """The maximum (1,) of the smoothed map."""
    info = head.backbone.info
    rows = smooth_upsampling(info.height, info.grid[0], head.sigma)
    columns = smooth_upsampling(info.width, info.grid[1], head.sigma)
    return peak_of(graph, map_of(graph, distances, rows, columns))


def map_of(graph: Graph, distances: str, rows: Floats, columns: Floats) -> str:
    """rows · a · columnsᵀ, of distances a (h·w,)."""
    a = graph.reshape(distances, rows.shape[1], columns.shape[1])
    return graph.node("MatMul", [graph.node("MatMul", [graph.constant(rows), a]), graph.constant(columns.T)])


def peak_of(graph: Graph, heat: str) -> str:
    """The maximum (1,) of a map."""
    return graph.node("ReduceMax", [graph.reshape(heat, -1), graph.integers(0)], keepdims=1)


def _reweighted(graph: Graph, judged: str, queries: str, targets: str, head: Head) -> str:
    """w·a(u*) (1,). The largest δ is subtracted from all exponents, which keeps them finite; it cancels."""
    K, k = head.bank.shape
    b = min(head.neighbours, K)
    worst = graph.node("ArgMax", [judged], axis=0, keepdims=1)  # u*
    a = graph.node("Gather", [judged, worst])
    looking = graph.node("Gather", [queries, worst], axis=1)  # (k + 2, 1)
    of_worst = graph.reshape(graph.node("MatMul", [targets, looking]), K)
    nearest = graph.node("ArgMin", [of_worst], axis=0, keepdims=1)  # m*
    row = graph.reshape(_rows(graph, targets, nearest, np.ones((K, 1), np.float32)), k, 1)
    norm = graph.node("ReduceSumSquare", [row, graph.integers(0)], keepdims=1)
    query = graph.node("Concat", [row, norm, graph.constant(np.ones((1, 1), np.float32))], axis=0)
    _, around = graph.select(graph.reshape(graph.node("MatMul", [targets, query]), K), b, axis=0)  # N_b(m*)
    excluded = graph.node("Gather", ["penalty", around])
    # a penalty is in the distances already: taken off twice, its row adds nothing where too few others are left
    exponents = graph.node("Sub", [graph.node("Gather", [of_worst, around]), graph.add(excluded, excluded)])
    tau = graph.node("ReduceMax", [exponents, graph.integers(0)], keepdims=1)
    least = graph.node("Gather", [of_worst, nearest])
    terms, first = (graph.node("Exp", [graph.node("Sub", [x, tau])]) for x in (exponents, least))
    share = graph.node("Div", [first, graph.node("ReduceSum", [terms, graph.integers(0)], keepdims=1)])
    weight = graph.node("Sub", [graph.constant(np.ones(1, np.float32)), share])
    return graph.node("Mul", [weight, a])


def _spanned(graph: Graph, nearest: str, queries: str, targets: str, head: Head) -> str:
    """Distances (h·w,) to what the nearest rows span, as `local.py` defines them."""
    b, k, count = head.around, head.bank.shape[1], compared(head.backbone.info.patches)
    root = np.sqrt(head.weights)[:, None]
    farthest, far = graph.select(nearest, count, axis=0, largest=True)
    looking = graph.node("Gather", [queries, far], axis=1)  # (k + 2, count)
    _, rows = graph.select(graph.node("MatMul", [targets, looking]), b, axis=0)  # (b, count)
    rows = graph.node("Transpose", [rows], perm=[1, 0])
    m, w = _rows(graph, targets, rows, root), graph.node("Gather", [graph.constant(root), rows])
    z = graph.reshape(graph.node("Transpose", [graph.cut(looking, (0, k))], perm=[1, 0]), count, 1, k)
    v = graph.node("Sub", [graph.node("Mul", [w, z]), m])  # (count, b, k)
    found = _span_distances(graph, v, graph.node("Gather", ["penalty", rows]), b, count)
    found = graph.node("Mul", [found, graph.node("Gather", ["inside", far])])
    total, was = (graph.node("ReduceSum", [x], keepdims=1) for x in (found, farthest))
    ratio = graph.node("Div", [total, graph.node("Max", [was, graph.constant(np.array([TINY], np.float32))])])
    return graph.node("ScatterElements", [graph.node("Mul", [nearest, ratio]), far, found])


def _span_distances(graph: Graph, v: str, penalty: str, b: int, count: int) -> str:
    """h = 1 / (1ᵀ(V + λI)⁻¹1) (count,) of the differences v (count, b, k).

    Rows with a penalty (count, b) take no part: they do not count in λ, and the penalty, which is added to their own λ,
    makes their weight c vanish.

    Bordered by ones, V + λI is eliminated row by row: what is left in the corner is −1ᵀ(V + λI)⁻¹1. The patches are the
    last axis, so that every step is a few products of long vectors.
    """
    share, least, one = (graph.constant(np.array(x, np.float32)) for x in (RIDGE, TINY, 1))
    counts = graph.cast(graph.node("Less", [penalty, one]), FLOAT)  # 1 for rows that take part, 0 for others
    v = graph.node("Mul", [v, graph.reshape(counts, count, b, 1)])
    V = graph.node("MatMul", [v, graph.node("Transpose", [v], perm=[0, 2, 1])])
    trace = graph.node("ReduceSumSquare", [v, graph.integers(1, 2)], keepdims=0)  # (count,)
    mean = graph.node("Div", [trace, graph.node("ReduceSum", [counts, graph.integers(1)], keepdims=0)])
    excess = graph.node("Transpose", [penalty], perm=[1, 0])
    ridge = graph.add(graph.add(graph.node("Mul", [mean, share]), least), excess)  # (b, count)
    ridge = graph.reshape(graph.node("Pad", [ridge, graph.integers(0, 0, 1, 0)]), b + 1, 1, count)
    diagonal, corner = (np.diag([x] * b + [y]).astype(np.float32)[:, :, None] for x, y in ((1, 0), (0, -1)))
    V = graph.node("Transpose", [V], perm=[1, 2, 0])  # (b, b, count)
    bordered = graph.node("Pad", [V, graph.integers(0, 0, 0, 1, 1, 0), one])
    left = graph.add(bordered, graph.constant(corner))  # zero in the corner
    left = graph.add(left, graph.node("Mul", [graph.constant(diagonal), ridge]))
    for i in range(b):
        row = graph.cut(left, (i, i + 1))
        scaled = graph.node("Div", [row, graph.cut(row, (0, 1), (i, i + 1))])
        column = graph.reshape(row, b + 1, 1, count)
        left = graph.node("Sub", [left, graph.node("Mul", [column, scaled])])
    rest = graph.reshape(graph.cut(left, (b, b + 1), (b, b + 1)), count)
    return graph.node("Reciprocal", [graph.node("Neg", [rest])])
