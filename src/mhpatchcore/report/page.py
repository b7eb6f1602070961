"""Pages of one file: templates, what stands on every page, and images as the parts a page needs to draw them.

Of an image the photo is kept once, at the original resolution up to a cap. Heat varies slowly, so a small layer
stretched over the photo shows all of it, and is computed at its own small size; outlines are vectors. Together they
take little more than the photo alone.
"""

from __future__ import annotations

import base64
import io
import re
from dataclasses import dataclass
from datetime import UTC, datetime
from math import ceil
from typing import Any

import numpy as np
from contourpy import contour_generator
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup
from PIL import Image

from mhpatchcore.calibration.choices import share
from mhpatchcore.errors import ImageError
from mhpatchcore.inputs.datasets import Sample, read_mask
from mhpatchcore.report import wording
from mhpatchcore.report.drawing import OUTLINE, heat_layer, heat_unit, screen_map, screen_pixels, screen_size
from mhpatchcore.result import Result
from mhpatchcore.runtime.arrays import Array, Floats, Mask

PHOTO_SIDE, HEAT_SIDE, MASK_SIDE = 1024, 256, 512


def render_page(template: str, **context: Any) -> str:
    """The page as text."""
    environment = Environment(
        loader=PackageLoader("mhpatchcore", "report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "breakable": breakable,
        "data_uri": data_uri,
        "four_digits": wording.four_digits,
        "number": wording.number,
        "relative": wording.relative,
        "share": share,
    }
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
    return Markup("").join(
        Markup("{}<wbr>").format(part) if part in "/_-" else part
        for part in re.split("([/_-])", name)
        if part
    )


def data_uri(content: bytes, mime: str) -> str:
    return f"data:{mime};base64,{base64.b64encode(content).decode('ascii')}"


@dataclass(frozen=True)
class Picture:
    """An image of width × height pixels: JPEG of the image, WebP of the heat, SVG paths in its pixels.

    `truth` is where the defect really is, or empty where nobody has drawn it.
    """

    width: int
    height: int
    photo: bytes
    heat: bytes
    predicted: str
    truth: str


def picture_of(sample: Sample, result: Result) -> Picture:
    height, width = result.size
    heat = screen_map(result, *screen_size(height, width, HEAT_SIDE))
    photo = screen_pixels(sample.path, result.window, PHOTO_SIDE)
    truth = _truth_path(sample, height, width)
    return picture((height, width), photo, heat, heat_unit(result), result.mask_limit, truth)


def picture(
    size: tuple[int, int], photo: Array, heat: Floats, unit: float, limit: float, truth: str = ""
) -> Picture:
    """An image of size (height, width): its photo and its heat, each at a size of their own.

    Colours are scaled to `unit`; outlined is where the heat exceeds `limit`.
    """
    return Picture(
        width=size[1],
        height=size[0],
        photo=encoded(photo, "JPEG"),
        heat=encoded(heat_layer(heat, unit), "WEBP"),
        predicted=outline_path(heat, limit, *size),
        truth=truth,
    )


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


def encoded(pixels: Array, kind: str, quality: int = 82) -> bytes:
    """Pixels (H, W, 3 or 4) as the bytes of a JPEG or WEBP file."""
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, kind, quality=quality)
    return buffer.getvalue()


def _truth_path(sample: Sample, height: int, width: int) -> str:
    if sample.mask is None:
        return ""
    try:
        mask = _pooled(read_mask(sample.mask, height, width), MASK_SIDE)
    except ImageError:
        return ""  # the evaluation reports it
    return outline_path(mask.astype(np.float32), 0.5, height, width)


def _pooled(mask: Mask, side: int) -> Mask:
    """A mask (H, W) made at most side × side by any-pooling, so that a thin scratch does not vanish."""
    step = ceil(max(mask.shape) / side)
    rows, columns = (-n % step for n in mask.shape)
    padded = np.pad(mask, ((0, rows), (0, columns)))
    blocks = padded.reshape(padded.shape[0] // step, step, padded.shape[1] // step, step)
    return np.asarray(blocks.any(axis=(1, 3)))
