"""`Config`: everything that decides what a model will be, as one value."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field, fields, replace
from math import inf
from numbers import Integral, Real
from typing import Any, NamedTuple, get_type_hints

from mhpatchcore.errors import UserError
from mhpatchcore.inputs.regions import Roi, parse_roi
from mhpatchcore.inputs.views import AUTO as AUGMENT_AUTO
from mhpatchcore.inputs.views import TURNS, View
from mhpatchcore.inputs.window import AUTO, EIGHT_BIT, Window, parse_window
from mhpatchcore.metric.shrinkage import parse_shrinkage

KINDS: dict[type, tuple[type, str]] = {
    bool: (bool, "true or false"),
    int: (Integral, "a whole number"),
    float: (Real, "a number"),
    str: (str, "a text"),
}
SIDE = (32, 2048)
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
    if _is_whole(scale):
        scale = (scale, scale)
    if isinstance(scale, list | tuple) and 2 <= len(scale) <= 4 and all(map(_is_whole, scale[:3])):
        height, width, pool, zoom = Size(*scale)
        sees = all(SIDE[0] <= side <= SIDE[1] for side in (height, width)) and pool in POOLS
        if sees and isinstance(zoom, Real) and (zoom == 0 or ZOOM[0] <= zoom <= ZOOM[1]):
            return Size(int(height), int(width), int(pool), float(zoom))
    raise UserError(
        f"a size is a number of pixels from {SIDE[0]} to {SIDE[1]} such as 224, height x width such as 224x640, 448/2 "
        f"or 448/4 (patches averaged), or tile:512@0.5 (from {ZOOM[0]} to {ZOOM[1]} pixels for one of the image), "
        f"not {value!r}"
    )


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


def _parse_layers(value: Any) -> tuple[str, ...]:
    """Names of layers, from a list or from a text with commas between them."""
    names = value.replace(",", " ").split() if isinstance(value, str) else value or ()
    if not (isinstance(names, list | tuple) and all(isinstance(name, str) for name in names)):
        raise UserError(f"layers must be texts such as layer2,layer3, not {value!r}")
    return tuple(names)


# where a setting is on a help page
SEEN, METRIC, BANK = "What the network sees", "Metric", "Bank"
SCORE, THRESHOLD, REST = "Score", "Threshold", "The rest"


@dataclass(frozen=True)
class Setting:
    """What is known of a setting besides its type and its default: the metadata of its field in `Config`."""

    help: str
    panel: str
    common: bool = False  # one that most users look for
    choices: tuple[str, ...] = ()
    # least and most; the upper ends only catch typing errors, before anybody waits for them
    limits: tuple[float, float] | None = None
    share: bool = False  # 0.05 or "5%", between 0 and 1
    can_be_all: bool = False  # a share that can be 1
    parse: Callable[[Any], Any] | None = None
    flags: tuple[str, ...] = ()  # on the command line, where they are not made of the name
    metavar: str = ""


def setting(default: Any, help: str, panel: str, **more: Any) -> Any:
    """A field of `Config`."""
    return field(default=default, metadata={"setting": Setting(help, panel, **more)})


@dataclass(frozen=True)
class Config:
    """All settings of a model. The same settings on the same images give the same model.

    The page of settings in the reference has the range and the meaning of each.

    >>> Config(K=1000).with_changes(shrinkage="oas").K
    1000
    """

    # fmt: off
    # what comes in
    backbone: str = setting(
        "efficientnet_lite0", "efficientnet_lite0 (comes with the installation), resnet18, resnet50, wide_resnet50_2, "
        "…, or an .onnx file", SEEN, common=True)
    tag: str = setting("", "Training recipe of weights from the hub", SEEN)
    layers: tuple[str, ...] = setting(
        (), "Layers that describe patches, separated by commas, e.g. layer2,layer3; otherwise what suits the backbone",
        SEEN, parse=_parse_layers, metavar="NAMES")
    descriptor: str = setting(
        "", "concat, patchcore, or published (patchcore for ResNets and your own networks); otherwise what suits the "
        "backbone", SEEN)
    precision: str = setting(
        "fp32", "fp32, int8, or auto (int8 where it is known to be faster)", SEEN, choices=("fp32", "int8", "auto"))
    sizes: tuple[Size, ...] = setting(
        (Size(224, 224), Size(448, 448, 2)), "What the network sees, in pixels: 224, or height x width: 224x640, or "
        "several scales: 224,448/2 (/2: patches are averaged two by two); tile:512 sees large images in tiles, at full "
        "resolution", SEEN, common=True, parse=parse_sizes, flags=("--size",), metavar="PIXELS")
    aspect: str = setting(
        "keep", "keep the shape of the images, or stretch them to squares", SEEN, choices=("keep", "stretch"))
    resize: int | None = setting(
        None, "Resize the shorter side to this and crop the centre (the paper: 256), or none to see all of it", SEEN,
        limits=(1, 8192))
    window: Window | str = setting(
        AUTO, "Which values are black and white, for images with more than 8 bits: LOW,HIGH, or auto to learn them",
        SEEN, common=True, parse=parse_window, metavar="LOW,HIGH")
    roi: Roi | None = setting(
        None, "Where to look: a rectangle TOP,LEFT,BOTTOM,RIGHT in pixels or in shares of the image, a .json file of "
        "corners, a mask picture, or a folder of masks or a .csv file with a region for each image", SEEN, common=True,
        parse=parse_roi, metavar="REGION")
    augment: str = setting(
        "auto", "Learn turned copies of the images too: rotations (every 45°), flips (with quarter turns) or none; "
        "auto tries both on few images, and learns what makes them more alike", SEEN, common=True,
        choices=(*TURNS, AUGMENT_AUTO))
    # metric
    reduction: str = setting(
        "auto", "pca, ipca (the paper's literal path), correlation (pca of channels at unit spread) or none; auto: "
        "correlation for transformers, pca for others", METRIC,
        choices=("auto", "pca", "ipca", "correlation", "none"))
    variance: float | None = setting(0.99, "Share of the variance to retain", METRIC, share=True, can_be_all=True)
    components: int | None = setting(None, "Keep this many directions instead", METRIC, limits=(1, 10**6))
    metric: str = setting(
        "mahalanobis", "mahalanobis or euclidean", METRIC, choices=("mahalanobis", "euclidean"))
    shrinkage: str | float = setting(
        0.9, "A number from 0 to 1, or oas, rblw, ledoit-wolf, or none (jitter alone, no floor)", METRIC)
    floor: float = setting(1e-8, "Least eigenvalue, relative to their mean", METRIC, limits=(0, 1e3))
    # bank
    constructor: str = setting(
        "always-full", "always-full, tree, offline-greedy, kmeans or geores", BANK,
        choices=("always-full", "tree", "offline-greedy", "kmeans", "geores"))
    K: int = setting(5000, "Rows of the bank (K)", BANK, limits=(2, 10**7), flags=("--rows", "-K"))
    m_c: int = setting(
        512, "Rows kept of each chunk of images (m_c)", BANK, limits=(1, 10**6), flags=("--local-rows",))
    shuffle: bool = setting(True, "Make the bank from the images in random order, or as they come", BANK)
    fraction: float | None = setting(
        None, "offline-greedy: this share of all patches", BANK, share=True, can_be_all=True)
    projection: int | None = setting(
        None, "offline-greedy: select in so many random directions", BANK, limits=(1, 10**4))
    start: str = setting(
        "first", "Where farthest-first selection begins: first row, farthest from the mean (the paper's authors) or "
        "random (the original PatchCore)", BANK, choices=("first", "farthest", "random"))
    alpha: float = setting(0.9, "geores: share of the main bank", BANK, share=True)
    q: int | None = setting(None, "geores: candidates for the tail, otherwise K", BANK, limits=(1, 10**7))
    # score
    score: str = setting(
        "map-max", "map-max, max or reweighted", SCORE, choices=("max", "reweighted", "map-max"))
    local: int = setting(
        9, "Nearest bank rows between which a patch counts as known in the image score (1 as in the paper)", SCORE,
        limits=(1, 100))
    neighbours: int = setting(
        9, "reweighted: bank rows that the weight looks at (b)", SCORE, limits=(2, 10**4))
    sigma: float = setting(4.0, "Smoothing of the map, in pixels of the view", SCORE, limits=(0, 1e3))
    # threshold
    false_alarm: float = setting(
        0.03, "Share of good parts that may be rejected", THRESHOLD, common=True, share=True)
    calibration: str = setting(
        "cross-image", "cross-image, held-out, or none (no threshold)", THRESHOLD,
        choices=("cross-image", "held-out", "none"))
    calibration_images: int = setting(1000, "Images used for the threshold, at most", THRESHOLD, limits=(1, 10**7))
    # the rest
    chunk_images: int = setting(8, "Images per chunk", REST, limits=(1, 10**4))
    seed: int = setting(0, "Seed of everything random", REST, limits=(0, inf))
    # fmt: on

    def __post_init__(self) -> None:
        for name in SETTINGS:
            object.__setattr__(self, name, coerce_setting(name, getattr(self, name)))
        object.__setattr__(self, "shrinkage", parse_shrinkage(self.shrinkage))
        for name, known in SETTINGS.items():
            _check(name, known, getattr(self, name))
        largest = max(max(size.height, size.width) for size in self.sizes)
        if self.resize is not None and self.resize < largest:
            raise UserError(
                f"resize, the shorter side before the crop, must be at least size ({largest}), not {self.resize}"
            )
        if self.resize is not None and self.tiled:
            raise UserError("tiles show the whole image, and resize crops it: leave one of them out")
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
        """How an image becomes the views of each scale; a window that is not learnt yet is that of 8 bits."""
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
        return replace(self, **{name: coerce_setting(name, value) for name, value in changes.items()})

    def to_json(self) -> dict[str, Any]:
        """All settings by name."""
        return asdict(self)

    @staticmethod
    def from_json(values: Mapping[str, Any]) -> Config:
        """The recipe that `to_json` describes; settings that are not named have their defaults."""
        return Config().with_changes(**values)


SETTINGS: dict[str, Setting] = {one.name: one.metadata["setting"] for one in fields(Config)}
HINTS = get_type_hints(Config)
CHOICES = {name: known.choices for name, known in SETTINGS.items() if known.choices}


def _check(name: str, known: Setting, value: Any) -> None:
    """Refuse a value that is not one of the choices, or out of range."""
    if known.choices and value not in known.choices:
        raise UserError(f"unknown {name} '{value}'; choose one of: {', '.join(known.choices)}")
    if value is None:
        return
    if known.limits is not None:
        least, most = known.limits
        if not value >= least:
            raise UserError(f"{name} must be at least {least}, not {value}")
        if value > most:
            raise UserError(f"{name} must be at most {most:,}, not {value:,}")
    if known.share and not (0 < value < 1 or (value == 1 and known.can_be_all)):
        raise UserError(f"{name} lies between 0 and 1, such as 0.05 or 5%, not {value}")


def coerce_setting(name: str, value: Any) -> Any:
    """A setting's value in Python's own type, not numpy's; a value of another kind is refused.

    >>> import numpy as np
    >>> coerce_setting("K", np.int64(5)), coerce_setting("sigma", 2), coerce_setting("resize", None)
    (5, 2.0, None)
    >>> coerce_setting("false_alarm", "5%"), coerce_setting("resize", "none")
    (0.05, None)
    """
    known = SETTINGS.get(name)
    if known is None:
        raise UserError(f"unknown setting '{name}'; there are: {', '.join(sorted(SETTINGS))}")
    if known.parse is not None:
        return known.parse(value)
    hint = HINTS[name]
    wanted = getattr(hint, "__args__", (hint,))
    # TOML and the command line know no None: there it is a word
    if (value is None or (isinstance(value, str) and value == "none")) and type(None) in wanted:
        return None
    if known.share and isinstance(value, str):
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
