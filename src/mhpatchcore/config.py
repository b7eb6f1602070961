"""Everything that decides what a model will be, as one value. How fast it is made is decided elsewhere."""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, fields, replace
from functools import cache
from math import inf
from numbers import Integral, Real
from typing import Any, NamedTuple, get_type_hints

from mhpatchcore.errors import UserError
from mhpatchcore.inputs.regions import Roi, parse_roi
from mhpatchcore.inputs.turns import AUTO as AUGMENT_AUTO
from mhpatchcore.inputs.turns import TURNS
from mhpatchcore.inputs.views import View
from mhpatchcore.inputs.window import AUTO, EIGHT_BIT, Window, parse_window
from mhpatchcore.metric.shrinkage import parse_shrinkage

CHOICES = {
    "aspect": ("keep", "stretch"),
    "augment": (*TURNS, AUGMENT_AUTO),
    "reduction": ("pca", "ipca", "none"),
    "metric": ("mahalanobis", "euclidean"),
    "constructor": ("always-full", "tree", "offline-greedy", "kmeans", "geores"),
    "start": ("first", "farthest", "random"),
    "score": ("max", "reweighted", "map-max"),
    "calibration": ("cross-image", "held-out", "none"),
    "precision": ("fp32", "int8", "auto"),
}
KINDS: dict[type, tuple[type, str]] = {
    bool: (bool, "true or false"),
    int: (Integral, "a whole number"),
    float: (Real, "a number"),
    str: (str, "a text"),
}
# from … to; the upper ends are far beyond what is of use: nobody should wait for a typing error
RANGES: dict[str, tuple[float, float]] = {
    "resize": (1, 8192),
    "components": (1, 10**6),
    "floor": (0, 1e3),
    "K": (2, 10**7),
    "m_c": (1, 10**6),
    "projection": (1, 10**4),
    "q": (1, 10**7),
    "local": (1, 100),
    "neighbours": (2, 10**4),
    "sigma": (0, 1e3),
    "calibration_images": (1, 10**7),
    "chunk_images": (1, 10**4),
    "seed": (0, inf),
}
SIDE = (32, 2048)
SHARES = ("false_alarm", "variance", "fraction", "alpha")  # 0.05 or "5%"
MOST_SIZES = 4
POOLS = (1, 2, 4)
ZOOM = (0.02, 8.0)


class Size(NamedTuple):
    """One scale at which images are seen: height and width in pixels, and how many patches are averaged each way.

    With `zoom` an image is not seen as a whole but in tiles, which have so many pixels for one of the image.

    >>> print(Size(224, 640), Size(448, 448, 2), Size(512, 512, zoom=1.0), Size(256, 256, 2, 0.5))
    224x640 448/2 tile:512 tile:256/2@0.5
    """

    height: int
    width: int
    pool: int = 1
    zoom: float = 0.0

    def __str__(self) -> str:
        pixels = f"{self.height}" if self.height == self.width else f"{self.height}x{self.width}"
        averaged = "" if self.pool == 1 else f"/{self.pool}"
        shrunk = "" if self.zoom in (0, 1) else f"@{self.zoom:g}"
        return f"{'tile:' if self.zoom else ''}{pixels}{averaged}{shrunk}"


@dataclass(frozen=True)
class Config:
    """A recipe for a detector. The same recipe on the same images gives the same model.

    >>> Config(K=1000).with_changes(shrinkage="oas").K
    1000
    """

    # what comes in
    backbone: str = "efficientnet_lite0"
    tag: str = ""
    layers: tuple[str, ...] = ()
    descriptor: str = ""
    precision: str = "fp32"
    sizes: tuple[Size, ...] = (Size(224, 224), Size(448, 448, 2))
    aspect: str = "keep"
    resize: int | None = None
    window: Window | str = AUTO
    roi: Roi | None = None
    augment: str = "auto"
    # metric
    reduction: str = "pca"
    variance: float | None = 0.99
    components: int | None = None
    metric: str = "mahalanobis"
    shrinkage: str | float = 0.9
    floor: float = 1e-8
    # bank
    constructor: str = "always-full"
    K: int = 5000
    m_c: int = 512
    shuffle: bool = True
    fraction: float | None = None
    projection: int | None = None
    start: str = "first"
    alpha: float = 0.9
    q: int | None = None
    # score
    score: str = "map-max"
    local: int = 9
    neighbours: int = 9
    sigma: float = 4.0
    # threshold
    false_alarm: float = 0.03
    calibration: str = "cross-image"
    calibration_images: int = 1000
    # the rest
    chunk_images: int = 8
    seed: int = 0

    def __post_init__(self) -> None:
        for field in fields(self):
            object.__setattr__(self, field.name, of_its_kind(field.name, getattr(self, field.name)))
        object.__setattr__(self, "shrinkage", parse_shrinkage(self.shrinkage))
        for name, choices in CHOICES.items():
            value = getattr(self, name)
            if value not in choices:
                raise UserError(f"unknown {name} '{value}'; choose one of: {', '.join(choices)}")
        for name, (least, most) in RANGES.items():
            value = getattr(self, name)
            if value is not None and not value >= least:
                raise UserError(f"{name} must be at least {least}, not {value}")
            if value is not None and value > most:
                raise UserError(f"{name} must be at most {most:,}, not {value:,}")
        largest = max(max(size.height, size.width) for size in self.sizes)
        if self.resize is not None and self.resize < largest:
            raise UserError(
                f"resize, the shorter side before the crop, must be at least size ({largest}), not {self.resize}"
            )
        if self.resize is not None and self.tiled:
            raise UserError("tiles show the whole image, and resize crops it: leave one of them out")
        for name in SHARES:
            value = getattr(self, name)
            if value is not None and not (0 < value < 1 or (value == 1 and name in ("variance", "fraction"))):
                raise UserError(f"{name} lies between 0 and 1, such as 0.05 or 5%, not {value}")
        if self.fraction is not None and self.constructor != "offline-greedy":
            raise UserError(
                f"{self.constructor} takes a number of rows K; a fraction is for offline-greedy alone"
            )
        if self.constructor == "kmeans" and self.calibration == "cross-image":
            raise UserError(
                "k-means centroids come from no single image, so images cannot be scored without their own rows: "
                "use `calibration=held-out`, or none"
            )

    @property
    def views(self) -> tuple[View, ...]:
        """How an image becomes the views of each scale; a window that is still to be learnt is that of 8 bits."""
        window = self.window if isinstance(self.window, Window) else EIGHT_BIT
        return tuple(View(size.height, size.width, self.resize, window, size.zoom) for size in self.sizes)

    @property
    def tiled(self) -> bool:
        """Whether some scale sees images in tiles."""
        return any(size.zoom for size in self.sizes)

    @property
    def sees_whole(self) -> bool:
        """Whether some scale sees images as a whole, in views of one shape."""
        return not all(size.zoom for size in self.sizes)

    def with_changes(self, **changes: Any) -> Config:
        """The same recipe but for these settings; a wrong name or value is refused."""
        return replace(self, **{name: of_its_kind(name, value) for name, value in changes.items()})

    def to_json(self) -> dict[str, Any]:
        """All settings by name."""
        return asdict(self)

    @staticmethod
    def from_json(values: Mapping[str, Any]) -> Config:
        """The recipe that `to_json` has told; settings that are not named have their defaults."""
        return Config().with_changes(**values)


def of_its_kind(name: str, value: Any) -> Any:
    """A setting's value in Python's own type, which numpy's numbers are not, or a refusal of another kind of value.

    >>> import numpy as np
    >>> of_its_kind("K", np.int64(5)), of_its_kind("sigma", 2), of_its_kind("resize", None)
    (5, 2.0, None)
    >>> of_its_kind("false_alarm", "5%"), of_its_kind("resize", "none")
    (0.05, None)
    """
    if name == "layers":
        if isinstance(value, str) or not all(isinstance(layer, str) for layer in value or ()):
            raise UserError(f'layers must be a list of texts such as ["layer2", "layer3"], not {value!r}')
        return tuple(value or ())
    if name == "sizes":
        return parse_sizes(value)
    if name == "window":
        return parse_window(value)
    if name == "roi":
        return parse_roi(value)
    if name not in _hints():
        raise UserError(f"unknown setting '{name}'; there are: {', '.join(sorted(_hints()))}")
    hint = _hints()[name]
    wanted = getattr(hint, "__args__", (hint,))
    # TOML and the command line know no None: there it is a word
    if (value is None or (isinstance(value, str) and value == "none")) and type(None) in wanted:
        return None
    if name in SHARES and isinstance(value, str):
        with suppress(ValueError):
            return parse_share(value)
        raise UserError(f"{name} must be a share such as 5% or 0.05, not {value!r}")
    for kind in wanted:
        is_bool = isinstance(value, bool)
        if kind in KINDS and isinstance(value, KINDS[kind][0]) and is_bool == (kind is bool):
            with suppress(OverflowError):  # a whole number that no float can hold
                return kind(value)
    kinds = " or ".join(KINDS[kind][1] for kind in wanted if kind in KINDS)
    raise UserError(f"{name} must be {kinds}, not {value!r}")


def parse_share(text: str) -> float:
    """A share as a number or in percent; ValueError for anything else.

    >>> parse_share("5%"), parse_share("0.05"), parse_share("99.5 %")
    (0.05, 0.05, 0.995)
    """
    number = text.strip().removesuffix("%")
    return float(number) / 100 if number != text.strip() else float(number)


def parse_sizes(value: Any) -> tuple[Size, ...]:
    """The scales at which images are seen, from a number, a text, or a list of sizes.

    >>> [str(size) for size in (*parse_sizes("224, 448/2"), *parse_sizes(320), *parse_sizes([[224, 640]]))]
    ['224', '448/2', '320', '224x640']
    >>> parse_sizes("tile:512@0.5")
    (Size(height=512, width=512, pool=1, zoom=0.5),)
    """
    parts = [part.strip() for part in value.split(",")] if isinstance(value, str) else value
    scales = parts if isinstance(parts, list | tuple) and not isinstance(parts, Size) else [parts]
    found = tuple(_parse_size(scale, value) for scale in scales)
    if not 1 <= len(found) <= MOST_SIZES or len(set(found)) < len(found):
        raise UserError(f"sizes are 1 to {MOST_SIZES} different ones, such as 224 or 224,448, not {value!r}")
    return found


def _parse_size(scale: Any, value: Any) -> Size:
    if isinstance(scale, str):
        scale = _size_in_words(scale)
    if isinstance(scale, Integral) and not isinstance(scale, bool):
        scale = (scale, scale)
    if not (isinstance(scale, list | tuple) and 2 <= len(scale) <= 4 and all(map(_is_whole, scale[:3]))):
        raise UserError(
            f"a size is a number of pixels such as 224, height x width such as 224x640, or tile:512, not {value!r}"
        )
    size = Size(*(int(number) for number in scale[:3]), *scale[3:])
    for side in (size.height, size.width):
        if not SIDE[0] <= side <= SIDE[1]:
            raise UserError(f"size must be from {SIDE[0]} to {SIDE[1]} pixels, not {side}")
    if size.pool not in POOLS:
        raise UserError(f"patches are averaged over /1, /2 or /4, not /{size.pool}")
    if not (isinstance(size.zoom, Real) and (size.zoom == 0 or ZOOM[0] <= size.zoom <= ZOOM[1])):
        raise UserError(
            f"tiles have from {ZOOM[0]} to {ZOOM[1]} pixels for one of the image, not {size.zoom}"
        )
    return size._replace(zoom=float(size.zoom))


def _size_in_words(text: str) -> tuple[int | float, ...] | None:
    """Height, width, pool and zoom, of a text such as 448/2 or tile:512@0.5."""
    match = re.fullmatch(r"(tile:)?(\d{1,5})(?:[x×](\d{1,5}))?(?:/(\d))?(?:@(\d*\.?\d+))?", text)
    if match is None or (match[5] and not match[1]):
        return None
    zoom = float(match[5] or 1) if match[1] else 0.0
    sides = int(match[2]), int(match[3] or match[2])
    return (*sides, int(match[4] or 1), zoom) if zoom or not match[1] else None


def _is_whole(value: Any) -> bool:
    return isinstance(value, Integral) and not isinstance(value, bool)


@cache
def _hints() -> dict[str, Any]:
    return get_type_hints(Config)
