"""From feature maps to one descriptor per patch, as the tail of the backbone's graph.

`concat`: 3×3 mean of each layer, aligned bilinearly to the finest layer's grid, concatenated.

`patchcore`: PatchCore's locally aware descriptor (unfold 3×3 → align → adaptive pooling to d0 → aggregation
to d0). Every step is linear, so unfolding and both poolings collapse into one 3×3 convolution per layer. Each
output mixes only neighbouring channels, so that convolution is grouped and nothing is ever unfolded. With 512
channels it is the depthwise kernel [1 1 1; 1 2 1; 1 1 1]/10, with 1024 the mean of two channels' 3×3 means.

Where a patch is can be told along with what it looks like: two last columns, its row and column in the grid.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import gcd

import numpy as np

from mhpatchcore.backbone.architecture import FeatureMap
from mhpatchcore.backbone.graph import Graph
from mhpatchcore.errors import UserError
from mhpatchcore.runtime.arrays import Doubles, Floats

PATCHCORE_DIM = 1024
LOCAL = "local_"


def append_descriptors(
    graph: Graph, maps: Sequence[FeatureMap], kind: str, place: bool = False
) -> FeatureMap:
    """Add the descriptor tail; the result is (N, h, w, d) on the grid of the first (finest) layer.

    With `place` it is (N, h, w, d + 2).
    """
    tails = {"concat": _local_means, "patchcore": _patchcore}
    if kind not in tails:
        raise UserError(f"unknown descriptor '{kind}'; choose one of: {', '.join(tails)}")
    height, width = maps[0].height, maps[0].width
    if any(layer.height > height or layer.width > width for layer in maps):
        raise UserError("list the layer with the finest grid first: the others are aligned to it")
    locals_ = tails[kind](graph, maps)
    if place:
        locals_.append(_place_map(graph, maps[0]))
    aligned = []
    for i, layer in enumerate(locals_):
        # published, so that scoring can whiten each layer on its own grid, before alignment
        name = f"{LOCAL}{i}"
        graph.publish(layer.name, name, (layer.channels, layer.height, layer.width))
        same = (layer.height, layer.width) == (height, width)
        aligned.append(name if same else graph.resize_bilinear(name, height, width))
    joined = aligned[0] if len(aligned) == 1 else graph.node("Concat", aligned, axis=1)
    rows = graph.node("Transpose", [joined], perm=[0, 2, 3, 1])
    return FeatureMap(rows, sum(layer.channels for layer in locals_), height, width)


def place_columns(grid: tuple[int, int]) -> Floats:
    """The row and column of every patch of a grid (h·w, 2), in cells, which halves hold exactly."""
    row, column = np.indices(grid, np.float32)
    return np.stack([row.ravel(), column.ravel()], axis=1)


def _place_map(graph: Graph, like: FeatureMap) -> FeatureMap:
    """The places of a layer's grid as a map of two channels, for as many images as the layer has."""
    places = place_columns((like.height, like.width)).T.reshape(1, 2, like.height, like.width)
    images = graph.node("Shape", [like.name], start=0, end=1)
    shape = graph.node("Concat", [images, graph.constant(np.array(places.shape[1:], np.int64))], axis=0)
    return FeatureMap(graph.node("Expand", [graph.constant(places), shape]), 2, like.height, like.width)


def _local_means(graph: Graph, maps: Sequence[FeatureMap]) -> list[FeatureMap]:
    """Zero-padded 3×3 mean of every layer."""
    return [
        FeatureMap(
            graph.node(
                "AveragePool", [layer.name], kernel_shape=[3, 3], pads=[1, 1, 1, 1], count_include_pad=1
            ),
            layer.channels,
            layer.height,
            layer.width,
        )
        for layer in maps
    ]


def _patchcore(graph: Graph, maps: Sequence[FeatureMap]) -> list[FeatureMap]:
    """PatchCore's pooling of every layer, each giving its share of the d0 outputs."""
    if PATCHCORE_DIM % len(maps):
        raise UserError(
            f"the patchcore descriptor takes 1, 2 or 4 layers, not {len(maps)}: choose other layers or concat"
        )
    outputs = PATCHCORE_DIM // len(maps)
    pooled = []
    for layer in maps:
        weight, groups = patchcore_kernel(layer.channels, len(maps))
        name = graph.conv(layer.name, weight, padding=1, groups=groups)
        pooled.append(FeatureMap(name, outputs, layer.height, layer.width))
    return pooled


def patchcore_kernel(channels: int, n_layers: int) -> tuple[Doubles, int]:
    """Unfold 3×3 → pool to d0 → aggregate, for one of `n_layers` layers, as a grouped convolution.

    Returns the kernel (d0/n_layers, channels/groups, 3, 3) and the number of groups.

    >>> kernel, groups = patchcore_kernel(512, 2)
    >>> groups, (kernel[0, 0] * 10).round(6).tolist()
    (512, [[1.0, 1.0, 1.0], [1.0, 2.0, 1.0], [1.0, 1.0, 1.0]])
    >>> kernel, groups = patchcore_kernel(1024, 2)
    >>> groups, kernel.shape, bool(np.allclose(kernel, 1 / 18))
    (512, (512, 2, 3, 3), True)
    """
    outputs = PATCHCORE_DIM // n_layers
    # adaptive windows start anew at every multiple of `groups`, so all groups share one kernel
    groups = gcd(channels, outputs)
    entries = 9 * channels // groups
    pool = adaptive_pooling(entries, PATCHCORE_DIM // groups)
    aggregate = adaptive_pooling(PATCHCORE_DIM // groups, outputs // groups)
    kernel = (aggregate @ pool).reshape(outputs // groups, channels // groups, 3, 3)
    return np.tile(kernel, (groups, 1, 1, 1)), groups


def adaptive_pooling(n_in: int, n_out: int) -> Doubles:
    """The matrix (n_out, n_in) of 1-d adaptive average pooling: row i averages ⌊i·r⌋ … ⌈(i+1)·r⌉, r = n_in/n_out.

    >>> adaptive_pooling(3, 2)
    array([[0.5, 0.5, 0. ],
           [0. , 0.5, 0.5]])
    """
    matrix = np.zeros((n_out, n_in))
    for row in range(n_out):
        start, stop = row * n_in // n_out, -(-(row + 1) * n_in // n_out)
        matrix[row, start:stop] = 1 / (stop - start)
    return matrix
