"""What a backbone family declares about each of its networks, as data."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

from mhpatchcore.backbone.graph import Graph, State

IMAGENET_MEAN = (123.675, 116.28, 103.53)
IMAGENET_STD = (58.395, 57.12, 57.375)


@dataclass(frozen=True)
class FeatureMap:
    """One layer's output: `name` of the tensor in the graph, its channels, and its grid."""

    name: str
    channels: int
    height: int
    width: int


def halved(side: int) -> int:
    """The side of a map behind a layer of stride 2, rounded up."""
    return (side + 1) // 2


@dataclass(frozen=True)
class Package:
    """Weights that come as a package of the Python registry, whose `file_class` tells the path of the file."""

    name: str
    file_class: str


@dataclass(frozen=True)
class Hub:
    """Weights on the Hugging Face hub, timm/<name>.<tag>; `tag`, the training recipe, is that which is usual."""

    name: str
    tag: str


@dataclass(frozen=True)
class Architecture:
    """A network by name: where its weights are, how images enter it and which layers describe patches.

    `build` writes the network for images of one size into a graph, as far as the wanted layers, and returns the layers
    by name; `head`, where there is one, adds the ImageNet classifier (used to check that the weights are in the right
    places). `descriptor` is the one that suits the network, `published` the one that PatchCore takes with its family.
    The sides of images are a `multiple` of some number of pixels.
    """

    name: str
    weights: Package | Hub
    build: Callable[[Graph, State, str, tuple[int, int], Collection[str]], Mapping[str, FeatureMap]]
    layers: tuple[str, ...]
    descriptor: str
    published: str
    mean: tuple[float, float, float] = IMAGENET_MEAN
    std: tuple[float, float, float] = IMAGENET_STD
    multiple: int = 1
    head: Callable[[Graph, State, Mapping[str, FeatureMap]], str] | None = None
