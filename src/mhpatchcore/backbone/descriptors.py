"""From feature maps to one descriptor per patch, as the tail of the backbone's graph.

`concat`: 3×3 mean of each layer, aligned bilinearly to the finest layer's grid, concatenated.

`patchcore`: PatchCore's locally aware descriptor (unfold 3×3 → align → adaptive pooling to d0 → aggregation
to d0). Every step is linear, so unfolding and both poolings collapse into one 3×3 convolution per layer. Each
output mixes only neighbouring channels, so that convolution is grouped and nothing is ever unfolded. With 512
channels it is the depthwise kernel [1 1 1; 1 2 1; 1 1 1]/10, with 1024 the mean of two channels' 3×3 means.

Every layer stays on its own grid, as halves (float16): alignment is linear, so code that needs rows of all layers
aligns them (`session.aligned_rows`), and code that needs less (moments, whitening) does less work. That descriptors are
halves is our choice, not the paper's; the bank, the calibration and scoring all see the same numbers.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import gcd

import numpy as np

from mhpatchcore.backbone.graph import HALF, FeatureMap, Graph
from mhpatchcore.errors import UserError
from mhpatchcore.runtime.arrays import Doubles

PATCHCORE_DIM = 1024
LOCAL = "local_"
KINDS = ("concat", "patchcore")


def descriptor_model(
    graph: Graph, layers: Sequence[FeatureMap], kind: str, pool: int = 1
) -> tuple[bytes, tuple[tuple[int, int, int], ...]]:
    """The finished network, whose outputs local_0, local_1, … are halves (N, C, h, w), and their shapes (C, h, w).

    The finest grid comes first. With `pool` layers finer than a grid of `pool` times fewer rows and columns are
    averaged onto that.
    """
    if kind not in KINDS:
        raise UserError(f"unknown descriptor '{kind}'; choose one of: {', '.join(KINDS)}")
    finest = layers[0]
    if any(layer.height > finest.height or layer.width > finest.width for layer in layers):
        raise UserError("list the layer with the finest grid first: the others are aligned to it")
    if kind == "concat":
        local = [_local_mean(graph, layer) for layer in layers]
    else:
        local = [_patchcore(graph, layer, len(layers)) for layer in layers]
    local = [_pooled(graph, layer, pool * layer.height // finest.height) for layer in local]
    halves = [graph.cast(layer.name, HALF) for layer in local]
    shapes = tuple((layer.channels, layer.height, layer.width) for layer in local)
    outputs = {f"{LOCAL}{i}": (halves[i], ("N", *shape)) for i, shape in enumerate(shapes)}
    return graph.model(outputs, dict.fromkeys(outputs, HALF)), shapes


def _local_mean(graph: Graph, layer: FeatureMap) -> FeatureMap:
    """Zero-padded 3×3 mean."""
    window = {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1], "count_include_pad": 1}
    return layer._replace(name=graph.node("AveragePool", [layer.name], **window))


def _patchcore(graph: Graph, layer: FeatureMap, n_layers: int) -> FeatureMap:
    """PatchCore's pooling of a layer, which gives its share of the d0 outputs."""
    if PATCHCORE_DIM % n_layers:
        raise UserError(
            f"the patchcore descriptor takes 1, 2 or 4 layers, not {n_layers}: choose other layers or concat"
        )
    weight, groups = patchcore_kernel(layer.channels, n_layers)
    return layer._replace(
        name=graph.conv(layer.name, weight, padding=1, groups=groups), channels=PATCHCORE_DIM // n_layers
    )


def _pooled(graph: Graph, layer: FeatureMap, times: int) -> FeatureMap:
    """A layer averaged over `times` × `times` cells."""
    if times <= 1:
        return layer
    # where cells do not divide, the last averages are over fewer of them: nothing goes unseen
    window = {"kernel_shape": [times, times], "strides": [times, times], "ceil_mode": 1}
    name = graph.node("AveragePool", [layer.name], **window)
    return FeatureMap(name, layer.channels, -(-layer.height // times), -(-layer.width // times))


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
