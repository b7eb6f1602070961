"""Backbones by name: a frozen network, built as one ONNX graph that ends in patch descriptors.

images (N, H, W, 3)  →  the architecture's layers  →  descriptor tail  →  (N, h, w, d)
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from mhpatchcore.backbone.session import Backbone, BackboneInfo

__all__ = ["Backbone", "BackboneInfo", "load"]


def load(
    name: str = "efficientnet_lite0",
    *,
    weights: str | Path | None = None,
    tag: str = "tv_in1k",
    height: int = 224,
    width: int = 224,
    layers: Sequence[str] = (),
    descriptor: str = "",
    place: bool = False,
    threads: int = 0,
) -> Backbone:
    """A backbone by name, or from a user's own ONNX file (a path that ends in .onnx).

    `weights` names a local weights file; otherwise they come with the package or from the hub, where `tag`
    picks the training recipe. With `place` the row and column of a patch follow its descriptor. The graph is kept
    in the cache folder, keyed by everything that shapes it.
    """
    # the ONNX tools are needed to build a graph, not to run one from a model file: imported on demand
    from mhpatchcore.backbone import building, custom

    size = (height, width)
    if str(name).endswith(".onnx"):
        info, graph = custom.load_custom(Path(name), size, layers, descriptor, place)
    else:
        info, graph = building.load_named(
            name, Path(weights) if weights else None, tag, size, layers, descriptor, place
        )
    return Backbone(info, graph, threads)
