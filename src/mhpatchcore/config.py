"""Everything that decides what a model will be, as one value. How fast it is made is decided elsewhere."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from functools import cache
from math import isfinite
from numbers import Integral, Real
from typing import Any, get_type_hints

from mhpatchcore.errors import UserError
from mhpatchcore.inputs.images import Preprocessing
from mhpatchcore.metric.shrinkage import parse_shrinkage

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
KINDS: dict[type, tuple[type, str]] = {
    bool: (bool, "true or false"),
    int: (Integral, "a whole number"),
    float: (Real, "a number"),
    str: (str, "a text"),
}
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
    "span": 1,
    "parts": 1,
    "neighbours": 2,
    "sigma": 0,
    "calibration_images": 1,
    "chunk_images": 1,
    "seed": 0,
}
# far beyond what is of use: nobody should wait for a typing error
AT_MOST = {
    "size": 2048,
    "resize": 8192,
    "floor": 1e3,
    "place": 1e3,
    "K": 10**7,
    "m_c": 10**6,
    "projection": 10**4,
    "q": 10**7,
    "reach": 10,
    "span": 100,
    "parts": 100,
    "neighbours": 10**4,
    "sigma": 1e3,
    "chunk_images": 10**4,
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
    span: int = 9
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
        for field in fields(self):
            object.__setattr__(self, field.name, of_its_kind(field.name, getattr(self, field.name)))
        object.__setattr__(self, "shrinkage", parse_shrinkage(self.shrinkage))
        for name, choices in CHOICES.items():
            value = getattr(self, name)
            if value not in choices:
                raise UserError(f"unknown {name} '{value}'; choose one of: {', '.join(choices)}")
        for name, least in AT_LEAST.items():
            value = getattr(self, name)
            if value is not None and not (value >= least and isfinite(value)):
                raise UserError(f"{name} must be at least {least}, not {value}")
        for name, most in AT_MOST.items():
            value = getattr(self, name)
            if value is not None and value > most:
                raise UserError(f"{name} must be at most {most:,}, not {value:,}")
        if self.dense >= 1:
            raise UserError(f"dense is the share of the bank drawn at random, below 1, not {self.dense}")
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
        return replace(self, **{name: of_its_kind(name, value) for name, value in changes.items()})

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @staticmethod
    def from_json(values: Mapping[str, Any]) -> Config:
        return Config().with_changes(**values)


def of_its_kind(name: str, value: Any) -> Any:
    """A setting's value in Python's own type, which numpy's numbers are not, or a refusal of another kind of value.

    >>> import numpy as np
    >>> of_its_kind("K", np.int64(5)), of_its_kind("sigma", 2), of_its_kind("resize", None)
    (5, 2.0, None)
    """
    if name == "layers":
        if isinstance(value, str) or not all(isinstance(layer, str) for layer in value or ()):
            raise UserError(f'layers must be a list of texts such as ["layer2", "layer3"], not {value!r}')
        return tuple(value or ())
    if name not in _hints():
        raise UserError(f"unknown setting '{name}'; there are: {', '.join(sorted(_hints()))}")
    hint = _hints()[name]
    wanted = getattr(hint, "__args__", (hint,))
    if value is None and type(None) in wanted:
        return None
    for kind in wanted:
        is_bool = isinstance(value, bool)
        if kind in KINDS and isinstance(value, KINDS[kind][0]) and is_bool == (kind is bool):
            return kind(value)
    kinds = " or ".join(KINDS[kind][1] for kind in wanted if kind in KINDS)
    raise UserError(f"{name} must be {kinds}, not {value!r}")


@cache
def _hints() -> dict[str, Any]:
    return get_type_hints(Config)
