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


# The canonical setting of the paper. Its incremental PCA keeps all components, which equals the eigendecomposition
# of the exact covariance; `--reduction ipca` takes the literal path to the same directions. Everything but the backbone
# is named, so that a change of the default does not move the paper's rows.
MH: dict[str, Any] = {
    "descriptor": "published",
    "size": 224,
    "resize": 256,
    "reduction": "pca",
    "variance": 0.99,
    "components": None,
    "metric": "mahalanobis",
    "shrinkage": 0.07,
    "floor": 1e-8,
    "place": 0.0,
    "constructor": "tree",
    "K": 1000,
    "m_c": 256,
    "dense": 0.0,
    "shuffle": False,
    "fraction": None,
    "projection": None,
    "start": "first",
    "alpha": 0.9,
    "q": None,
    "score": "reweighted",
    "reach": 0.0,
    "span": 1,
    "parts": 1,
    "neighbours": 9,
    "sigma": 4.0,
    "false_alarm": 0.01,
    "calibration": "cross-image",
    "calibration_images": 100,
    "chunk_images": 8,
    "stored_as": "float16",
    "precision": "fp32",
    "seed": 0,
}


def _mh(name: str, title: str, role: str, **changes: Any) -> Preset:
    return Preset(name, title, role, MH | changes)


def _geores(name: str, title: str, role: str, **changes: Any) -> Preset:
    return _mh(name, title, role, constructor="geores", **changes)


_ALL = (
    Preset("default", "mhpatchcore", "what `fit` does without flags"),
    # so few rows cannot stand for looks and places both
    Preset("fast", "mhpatchcore, fast", "smaller view and bank", {"size": 160, "K": 1000, "place": 0.0}),
    Preset("accurate", "mhpatchcore, accurate", "larger view", {"size": 320}),
    _mh(
        "patchcore",
        "Original PatchCore",
        "full-pool offline reference: greedy 10 %, Euclidean, maximum",
        metric="euclidean",
        reduction="none",
        constructor="offline-greedy",
        fraction=0.1,
        score="max",
    ),
    _mh(
        "streaming-euclidean",
        "Streaming PatchCore (Euclidean)",
        "the same stream and bank as mh, without whitening",
        metric="euclidean",
    ),
    _mh("mh", "Streaming Mahalanobis PatchCore", "the paper's main configuration"),
    _mh(
        "mh-kmeans", "Mahalanobis + mini-batch k-means", "centroids instead of patches", constructor="kmeans"
    ),
    _mh("mh-k1000-c1024", "K=1000, m_c=1024", "larger chunk summaries", m_c=1024),
    _mh("mh-k5000-c256", "K=5000, m_c=256", "larger bank", K=5000),
    _mh("mh-k5000-c1024", "K=5000, m_c=1024", "larger bank and summaries", K=5000, m_c=1024),
    _mh("mh-k5000-c4096", "K=5000, m_c=4096", "high budget", K=5000, m_c=4096),
    _geores("geores-k1000", "GeoReS K=1000, α=0.95", "residual tail at the canonical size", alpha=0.95),
    _geores("geores-k2000", "GeoReS K=2000, α=0.90", "residual tail, more rows", K=2000, alpha=0.9),
    _geores(
        "geores-k5000", "GeoReS K=5000, α=0.90", "residual tail, high budget", K=5000, m_c=4096, alpha=0.9
    ),
)

PRESETS: dict[str, Preset] = {preset.name: preset for preset in _ALL}
LADDER_SIZES = (300, 500, 750, 1000, 1500, 2000)


def preset(name: str) -> Preset:
    if name not in PRESETS:
        raise UserError(f"unknown preset '{name}'; choose one of: {', '.join(PRESETS)}")
    return PRESETS[name]
