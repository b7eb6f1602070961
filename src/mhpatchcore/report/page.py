"""Pages of one file: templates, the pictures in them, and what several pages say of a model in plain words.

Of an image the photo is kept once, at the original resolution up to a cap. Heat varies slowly, so a small layer
stretched over the photo shows all of it, and is computed at its own small size; outlines are vectors. Together they
take little more than the photo alone.
"""

from __future__ import annotations

import base64
import io
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from math import isfinite
from typing import Any, NamedTuple

import numpy as np
from contourpy import contour_generator
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup
from matplotlib.figure import Figure
from PIL import Image

from mhpatchcore import __version__
from mhpatchcore.calibration.choices import share
from mhpatchcore.calibration.threshold import Calibration
from mhpatchcore.config import Config
from mhpatchcore.detector import Detector
from mhpatchcore.report.drawing import OUTLINE, heat_layer
from mhpatchcore.report.figures import figure_bytes
from mhpatchcore.runtime.arrays import Array, Floats
from mhpatchcore.runtime.texts import number

PHOTO_SIDE, HEAT_SIDE, MASK_SIDE = 1024, 256, 512
Facts = list[tuple[str, str]]
# a page that shows both thresholds says what each is for
IMAGE_THRESHOLD = "An image whose score exceeds it is rejected."
PIXEL_THRESHOLD = "Colours and outlines show where the map exceeds it; the verdict does not depend on it."


class Tile(NamedTuple):
    """One figure of merit and what it means."""

    label: str
    value: str
    note: str


@dataclass(frozen=True)
class Picture:
    """An image of width × height pixels: its JPEG, a WebP of the heat, and SVG paths in its pixels.

    `truth` is where the defect really is, or empty where nobody has drawn it.
    """

    width: int
    height: int
    photo: bytes
    heat: bytes = b""
    predicted: str = ""
    truth: str = ""
    caption: str = ""


def render_page(template: str, **context: Any) -> str:
    """The page as text."""
    environment = Environment(
        loader=PackageLoader("mhpatchcore", "report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    filters = (breakable, data_uri, four_digits, number, relative, share, svg)
    environment.filters |= {one.__name__: one for one in filters}
    scale = np.linspace(0, 2, 128, dtype=np.float32)[None].repeat(8, 0)
    return environment.get_template(template).render(
        created=datetime.now(UTC),
        outline_colour="#{:02x}{:02x}{:02x}".format(*OUTLINE),
        heat_scale=encoded(heat_layer(scale, 1.0), "WEBP"),
        **context,
    )


def breakable(name: str) -> Markup:
    """A name that a narrow page may break after its marks, and nowhere else.

    >>> breakable("good/a_1.png")
    Markup('good/<wbr>a_<wbr>1.png')
    """
    return Markup("<wbr>").join(re.split("(?<=[/_-])", name))


def data_uri(content: bytes, mime: str) -> str:
    return f"data:{mime};base64,{base64.b64encode(content).decode('ascii')}"


def svg(figure: Figure) -> str:
    return data_uri(figure_bytes(figure, "svg"), "image/svg+xml")


def four_digits(score: float) -> str:
    """A score among others, so that their digits line up.

    >>> four_digits(230.0), four_digits(63.1234), four_digits(12345.6)
    ('230.0', '63.12', '12346')
    """
    return f"{score:.0f}" if score >= 1000 else f"{score:#.4g}"


def relative(score: float, threshold: float) -> str:
    """A score as a multiple of the threshold; a dash where there is none to compare with."""
    return f"{score / threshold:.3f}" if isfinite(threshold) and threshold > 0 else "–"


def percent(share: float) -> str:
    """
    >>> percent(0.0123), percent(0.5), percent(1.0)
    ('1.2 %', '50 %', '100 %')
    """
    return f"{100 * share:.2g} %" if share < 0.995 else f"{100 * share:.3g} %"


def encoded(pixels: Array, kind: str) -> bytes:
    """Pixels (H, W, 3 or 4) as the bytes of a JPEG or WEBP file."""
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, kind, quality=82)
    return buffer.getvalue()


def outline_path(field: Floats, level: float, height: int, width: int) -> str:
    """Where field (h, w) crosses `level`, as an SVG path in an image of height × width.

    >>> outline_path(np.array([[0, 0, 0], [0, 1, 0], [0, 0, 0]], np.float32), 0.5, 30, 30)
    'M10 15 15 10 20 15 15 20Z'
    """
    if not np.isfinite(level):
        return ""
    # mirrored at the level, the border becomes the outline of what touches it
    rimmed = np.pad(field, 1, mode="edge")
    rim = np.pad(np.zeros(field.shape, bool), 1, constant_values=True)
    rimmed[rim] = np.minimum(rimmed[rim], 2 * level - rimmed[rim])
    scale = np.array([width / field.shape[1], height / field.shape[0]])
    lines = [
        np.clip((line - 0.5) * scale, 0, [width, height])[:-1]
        for line in contour_generator(z=rimmed).lines(level)
        if isinstance(line, np.ndarray)
    ]
    return "".join(f"M{' '.join(f'{value:.4g}' for value in line.ravel())}Z" for line in lines)


def threshold_promise(calibration: Calibration) -> str:
    """What the threshold was made to hold."""
    if not calibration.judges:
        return "The model has no threshold: it scores images, but rejects none."
    threshold = f"The image threshold of {number(calibration.threshold)}"
    if calibration.n == 0:
        return f"{threshold} was set by hand; how many good parts it rejects is not known."
    low, high = (percent(one) for one in calibration.interval)
    set_by = "was set by hand; by" if calibration.by_hand is not None else "was set from"
    return (
        f"{threshold} {set_by} {calibration.n} good images, it should reject about "
        f"{percent(calibration.expected_rate)} of good parts, {low} to {high} in nine of ten cases."
    )


def about_model(detector: Detector, costs: Mapping[str, Any]) -> dict[str, Any]:
    """What stands at the end of a page: the costs of the work (`Costs.to_json`), the model, and its settings."""
    phases = list(costs.get("phases", ()))
    columns = list(dict.fromkeys(column for phase in phases for column in phase))
    rows = [[_quantity(column, phase.get(column)) for column in columns] for phase in phases]
    return {
        "telemetry": [(_spaced(name), _quantity(name, costs[name])) for name in costs if name != "phases"],
        "phases": [[_spaced(column) for column in columns], *rows] if rows else [],
        "provenance": provenance(detector),
        "settings": settings(detector.config),
    }


def provenance(detector: Detector) -> Facts:
    """Where the model comes from."""
    model, calibration, info = detector.model, detector.calibration, detector.scales[0].backbone.info
    views = [
        f"{scale.size[1]} × {scale.size[0]} pixels, {grid[1]} × {grid[0]} patches"
        for scale in model.scales
        for grid in [scale.backbone.info.grid]
    ]
    whitenings = [
        f"{info.dim} → {scale.whitening.k} dimensions, {percent(scale.whitening.retained)} of the variance"
        for scale in model.scales
    ]
    source = f"from {calibration.n} images ({calibration.method})" if calibration.n else "not calibrated"
    image, pixel = (
        number(one) if isfinite(one) else "none"
        for one in (calibration.threshold, calibration.pixel_threshold)
    )
    return [
        ("mhpatchcore", __version__),
        ("Training images", f"{model.n_learnt} ({model.patches} patches)"),
        *([("Left out as suspicious", number(model.excluded))] if model.excluded else []),
        ("Backbone", f"{info.name}, {info.descriptor} of {number(info.layers)}, {info.precision}"),
        ("Weights", info.weights_source),
        ("Weights SHA-256", info.weights_sha256),
        ("View", "; ".join(views)),
        ("Whitening", "; ".join(whitenings)),
        ("Bank", f"{model.rows} rows by {model.config.constructor}"),
        ("Image threshold", f"{image}, {source}. {IMAGE_THRESHOLD}"),
        ("Pixel threshold", f"{pixel}. {PIXEL_THRESHOLD}"),
    ]


def settings(config: Config) -> Facts:
    """All settings, as they would be given."""
    texts = {"sizes": tuple(map(str, config.sizes)), "window": str(config.window)}
    return [(name, number(texts.get(name, getattr(config, name)))) for name in config.to_json()]


def _spaced(name: str) -> str:
    return name.replace("_", " ").replace("rss", "RSS").replace("cpu", "CPU")


def _quantity(name: str, value: object) -> str:
    """Memory in MB, everything else as a number."""
    in_bytes = name.endswith("rss") or name.startswith("bytes")
    return f"{value / 1e6:.0f} MB" if in_bytes and isinstance(value, int) else number(value)
