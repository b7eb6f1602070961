"""Everything that decides what a model will be, as one value. How fast it is made is decided elsewhere."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from math import isfinite
from typing import Any

from mhpatchcore.errors import UserError
from mhpatchcore.images import Preprocessing
from mhpatchcore.shrinkage import parse_shrinkage

CHOICES = {
    "reduction": ("pca", "ipca", "none"),
    "metric": ("mahalanobis", "euclidean"),
    "constructor": ("always-full", "tree", "offline-greedy", "kmeans", "geores", "random"),
    "start": ("first", "centre", "random"),
    "score": ("max", "reweighted", "map-max"),
    "calibration": ("cross-image", "held-out"),
    "stored_as": ("float16", "float32"),
    "precision": ("fp32", "int8", "auto"),
}
LARGEST_SIZE = 2048
AT_LEAST = {
    "size": 32,
    "resize": 1,
    "components": 1,
    "floor": 0,
    "place": 0,
    "K": 2,
    "m_c": 1,
    "projection": 1,
    "q": 1,
    "dense": 0,
    "reach": 0,
    "parts": 1,
    "neighbours": 2,
    "sigma": 0,
    "calibration_images": 1,
    "chunk_images": 1,
    "seed": 0,
}


@dataclass(frozen=True)
class Config:
    """A recipe for a detector. The same recipe on the same images gives the same model.

    >>> Config(K=1000).with_changes(shrinkage="oas").K
    1000
    """

    # what comes in
    backbone: str = "efficientnet_lite0"
    tag: str = "tv_in1k"
    layers: tuple[str, ...] = ()
    descriptor: str = ""
    precision: str = "fp32"
    size: int = 224
    resize: int | None = None
    # geometry
    reduction: str = "pca"
    variance: float | None = 0.99
    components: int | None = None
    metric: str = "mahalanobis"
    shrinkage: str | float = 0.9
    floor: float = 1e-8
    place: float = 0.6
    # bank
    constructor: str = "always-full"
    K: int = 5000
    m_c: int = 512
    dense: float = 0.05
    shuffle: bool = True
    fraction: float | None = None
    projection: int | None = None
    start: str = "first"
    alpha: float = 0.9
    q: int | None = None
    # score
    score: str = "map-max"
    reach: float = 1.0
    parts: int = 3
    neighbours: int = 9
    sigma: float = 4.0
    # threshold
    false_alarm: float = 0.01
    calibration: str = "cross-image"
    calibration_images: int = 100
    # the rest
    chunk_images: int = 8
    stored_as: str = "float16"
    seed: int = 0

    def __post_init__(self) -> None:
        object.__setattr__(self, "layers", tuple(self.layers))
        object.__setattr__(self, "shrinkage", parse_shrinkage(self.shrinkage))
        for name, choices in CHOICES.items():
            value = getattr(self, name)
            if value not in choices:
                raise UserError(f"unknown {name} '{value}'; choose one of: {', '.join(choices)}")
        for name, least in AT_LEAST.items():
            value = getattr(self, name)
            if value is not None and not (value >= least and isfinite(value)):
                raise UserError(f"{name} must be at least {least}, not {value}")
        if self.dense >= 1:
            raise UserError(f"dense is the share of the bank drawn at random, below 1, not {self.dense}")
        if self.size > LARGEST_SIZE:
            raise UserError(
                f"size must be at most {LARGEST_SIZE}, not {self.size}: patches grow with its square"
            )
        if self.resize is not None and self.resize < self.size:
            raise UserError(
                f"resize, the shorter side before the crop, must be at least size ({self.size}), not {self.resize}"
            )
        for name in ("variance", "fraction", "alpha", "false_alarm"):
            value = getattr(self, name)
            if value is not None and not (0 < value < 1 or (value == 1 and name in ("variance", "fraction"))):
                raise UserError(f"{name} lies between 0 and 1, not {value}")
        if self.fraction is not None and self.constructor != "offline-greedy":
            raise UserError(
                f"{self.constructor} takes a number of rows K; a fraction is for offline-greedy alone"
            )

    @property
    def preprocessing(self) -> Preprocessing:
        return Preprocessing(self.size, self.size, self.resize)

    def with_changes(self, **changes: Any) -> Config:
        known = {field.name for field in fields(self)}
        unknown = [name for name in changes if name not in known]
        if unknown:
            raise UserError(f"unknown setting '{unknown[0]}'; there are: {', '.join(sorted(known))}")
        return replace(self, **changes)

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @staticmethod
    def from_json(values: Mapping[str, Any]) -> Config:
        return Config().with_changes(**values)
