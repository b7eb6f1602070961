"""Backbones by name: a frozen network, built as one ONNX graph that ends in patch descriptors.

images (N, H, W, 3)  →  the architecture's layers  →  descriptor tail  →  a map (N, C, h, w) per layer
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from mhpatchcore.backbone.session import Backbone, BackboneInfo

__all__ = ["Backbone", "BackboneInfo", "load", "multiple_of", "reduction_of"]


def load(
    name: str = "efficientnet_lite0",
    *,
    weights: str | Path | None = None,
    tag: str = "",
    height: int | None = None,
    width: int | None = None,
    layers: Sequence[str] = (),
    descriptor: str = "",
    pool: int = 1,
    threads: int = 0,
) -> Backbone:
    """A backbone by name, or from a user's own ONNX file (a path that ends in .onnx).

    `weights` names a local weights file; otherwise they come from a package or from the hub, where `tag` picks the
    training recipe. Without height and width it sees 224 × 224 pixels, or what the ONNX file's description says. With
    `pool` patches are averages of pool × pool. The graph is kept in the cache folder, keyed by all that shapes it.
    """
    # the ONNX tools are needed to build a graph, not to run one from a model file: imported on demand
    from mhpatchcore.backbone import building, custom

    size = None if height is None or width is None else (height, width)
    if str(name).endswith(".onnx"):
        info, graph = custom.load_custom(Path(name), size, layers, descriptor, pool)
    else:
        file = Path(weights) if weights else None
        info, graph = building.load_named(name, file, tag, size or (224, 224), layers, descriptor, pool)
    return Backbone(info, graph, threads)


def multiple_of(name: str) -> int:
    """What the sides of images are multiples of, in pixels, for this network to take them."""
    from mhpatchcore.backbone.building import ARCHITECTURES

    return ARCHITECTURES[name].multiple if name in ARCHITECTURES else 1


def reduction_of(name: str) -> str:
    """How the channels of this network are reduced unless a user says otherwise: pca, or correlation."""
    from mhpatchcore.backbone.building import ARCHITECTURES

    return ARCHITECTURES[name].reduction if name in ARCHITECTURES else "pca"
