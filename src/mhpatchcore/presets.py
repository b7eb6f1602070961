"""Named configurations: the paper's, as data, and this project's own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from mhpatchcore.config import Config
from mhpatchcore.errors import UserError


@dataclass(frozen=True)
class Preset:
    """A configuration by name: a title for tables, what it is for, and how it departs from the default."""

    name: str
    title: str
    role: str
    changes: Mapping[str, Any] = field(default_factory=dict)

    @property
    def config(self) -> Config:
        return Config().with_changes(**self.changes)


# The paper's network. The hash of these weights is not known beforehand, so they are not pinned in
# `backbone/building.py`: they are used as the hub gives them, and every model and row of results records their SHA-256.
WIDE_RESNET: dict[str, Any] = {
    "backbone": "wide_resnet50_2",
    "tag": "tv2_in1k",
    "layers": ("layer2", "layer3"),
}
# The canonical setting of the paper, and of its authors' release where the paper is silent
# (docs/explanation/beyond-the-paper.md compares the two). Its incremental PCA keeps all components, which equals the
# eigendecomposition of the exact covariance; `--reduction ipca` takes the literal path to the same directions.
# Everything but the network is named, so that a change of the default does not move the paper's rows. All of them learn
# from all images: the threshold, of which the paper knows nothing, comes from images that were learnt from, or there is
# none.
MH: dict[str, Any] = {
    "descriptor": "published",
    "sizes": ((224, 224),),
    "aspect": "stretch",
    "resize": 256,
    "window": "auto",
    "roi": None,
    "augment": "none",
    "reduction": "pca",
    "variance": 0.99,
    "components": None,
    "metric": "mahalanobis",
    "shrinkage": 0.07,
    "floor": 1e-8,
    "constructor": "tree",
    "K": 1000,
    "m_c": 256,
    "shuffle": False,
    "fraction": None,
    "projection": None,
    "start": "farthest",
    "alpha": 0.9,
    "q": None,
    "score": "reweighted",
    "local": 1,
    "neighbours": 9,
    "sigma": 4.0,
    "false_alarm": 0.03,
    "calibration": "cross-image",
    "calibration_images": 1000,
    "chunk_images": 16,
    "precision": "fp32",
    "seed": 0,
}


def _mh(name: str, title: str, role: str, **changes: Any) -> Preset:
    return Preset(name, title, f"{role}; the network is left open", MH | changes)


def _budget(name: str, role: str, K: int, m_c: int) -> Preset:
    return _mh(name, f"Streaming Mahalanobis K={K}, m_c={m_c}", role, K=K, m_c=m_c)


def _geores(name: str, role: str, K: int, m_c: int, alpha: float) -> Preset:
    title = f"Streaming Mahalanobis + GeoReS K={K}, α={alpha:.2f}"
    return _mh(name, title, role, constructor="geores", K=K, m_c=m_c, alpha=alpha, q=K)


_ALL = (
    Preset("default", "mhpatchcore", "what `fit` does without flags"),
    Preset("fast", "mhpatchcore, fast", "one scale and a smaller bank", {"sizes": (224,), "K": 2000}),
    Preset(
        "accurate",
        "mhpatchcore, accurate",
        "a larger network, every patch of the finer scale",
        {"backbone": "efficientnet_lite2", "sizes": (224, 448)},
    ),
    _mh(
        "patchcore",
        "Original PatchCore",
        "full-pool offline reference: greedy 10 % in 128 random directions, Euclidean, maximum",
        metric="euclidean",
        reduction="none",
        constructor="offline-greedy",
        fraction=0.1,
        projection=128,
        start="random",
        score="max",
    ),
    _mh(
        "streaming-euclidean",
        "Streaming PatchCore (Euclidean)",
        "the same stream and bank as mh, without whitening",
        metric="euclidean",
    ),
    _mh("mh", "Streaming Mahalanobis PatchCore", "the paper's main configuration"),
    Preset(
        "paper",
        "The paper's run (WideResNet-50-2)",
        "mh with the paper's network, wide_resnet50_2 with the weights tv2_in1k from the hub, which are not pinned: "
        "the model records their hash",
        MH | WIDE_RESNET,
    ),
    _mh(
        "mh-kmeans",
        "Streaming Mahalanobis + mini-batch k-means",
        "centroids instead of patches; no threshold, since no image's own rows can be told apart",
        constructor="kmeans",
        calibration="none",
    ),
    _budget("mh-k1000-c1024", "larger chunk summaries", 1000, 1024),
    _budget("mh-k5000-c256", "larger bank", 5000, 256),
    _budget("mh-k5000-c1024", "larger bank and summaries", 5000, 1024),
    _budget("mh-k5000-c4096", "high budget", 5000, 4096),
    _geores("geores-k1000", "residual tail at the canonical size", 1000, 1024, 0.95),
    _geores("geores-k2000", "residual tail, more rows", 2000, 1024, 0.9),
    _geores("geores-k5000", "residual tail, high budget", 5000, 4096, 0.9),
)

PRESETS: dict[str, Preset] = {preset.name: preset for preset in _ALL}
# what a grid runs with any network; presets that have a network of their own are asked for by name
OPEN_NETWORK = tuple(name for name, preset in PRESETS.items() if "backbone" not in preset.changes)
# the eleven configurations of the paper's tables
PAPER = tuple(name for name in OPEN_NETWORK if "constructor" in PRESETS[name].changes)
LADDER_SIZES = (300, 500, 750, 1000, 1500, 2000)


def preset(name: str) -> Preset:
    if name not in PRESETS:
        raise UserError(f"unknown preset '{name}'; choose one of: {', '.join(PRESETS)}")
    return PRESETS[name]
