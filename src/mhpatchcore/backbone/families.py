"""The networks of all families by name."""

from __future__ import annotations

from mhpatchcore.backbone import efficientnet_lite, resnet, vit
from mhpatchcore.backbone.architecture import Architecture

ARCHITECTURES: dict[str, Architecture] = {
    **efficientnet_lite.ARCHITECTURES,
    **resnet.ARCHITECTURES,
    **vit.ARCHITECTURES,
}
