"""Pictures from results: heatmaps scaled to the threshold, outlines of regions, side by side, with a legend.

Colours are those of the pixel threshold, not of the image: nothing shows below half of it and the scale ends at twice
the threshold, so a normal part looks calm and two images can be compared.

There are two thresholds. The image score decides the verdict, by the image threshold. The pixel threshold belongs to
the map and decides nothing but what is coloured and outlined.

Pictures are drawn at the size of a screen. The map is computed at that size, which is cheap; only the full size, on
request, takes the time and the memory of the original.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import isfinite
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from mhpatchcore.inputs.decode import decoded
from mhpatchcore.inputs.loading import apply_window, load_pixels
from mhpatchcore.inputs.sources import ImageLike, describe
from mhpatchcore.inputs.window import Window
from mhpatchcore.result import PEAK_SHARE, Result
from mhpatchcore.runtime.arrays import Array, Floats, Mask
from mhpatchcore.runtime.files import atomic_path
from mhpatchcore.runtime.texts import number

# dark violet → red → yellow: rising lightness reads in grey print, and no red–green contrast is needed
_STOPS = np.array([[60, 10, 90], [150, 20, 110], [220, 60, 60], [250, 150, 40], [252, 240, 120]], np.float64)
_STRENGTHS = np.linspace(0, 1, 1024)
_OPACITY = 255 * np.minimum(2 * _STRENGTHS, 0.65)
_COLOURS = np.stack(
    [*(np.interp(_STRENGTHS, np.linspace(0, 1, len(_STOPS)), stop) for stop in _STOPS.T), _OPACITY], axis=1
).astype(np.uint8)
OUTLINE, RIM = (0, 255, 255), (0, 40, 60)
SEPARATOR = 4
SCREEN = 1200  # pixels, the longest side of a picture
BAND = 2**19  # pixels that are coloured at a time
LEAST_WIDTH, BAR_WIDTH, INK = 760, 220, (30, 30, 30)


def verdict_line(result: Result) -> str:
    """The verdict, and the numbers behind it."""
    score = f"score {number(result.score)}"
    if not isfinite(result.threshold):
        return f"{result.verdict}: {score}"
    side = "not above" if result.score <= result.threshold else "above"
    threshold = f"the image threshold {number(result.threshold)}"
    name = f", {'like a known ' * result.is_like_known}{result.defect}" if result.defect else ""
    return f"{result.verdict}{name}: {score}, {side} {threshold} (p-value {result.p_value:.2g})"


def outline_note(result: Result) -> str:
    """What is outlined: the map above the pixel threshold, or on a rejected image above less."""
    threshold = f"the pixel threshold {number(result.pixel_threshold)}"
    if result.mask_limit < result.pixel_threshold:
        share = f"the map above {number(result.mask_limit)}, which is {100 * PEAK_SHARE:.0f} % of its peak"
        return f"{share} ({threshold} lies higher)" if isfinite(result.pixel_threshold) else share
    if not isfinite(result.pixel_threshold):
        return "nothing: the model has no pixel threshold"
    return f"the map above {threshold}" if result.mask.any() else f"nothing: the map stays below {threshold}"


def heat_unit(result: Result) -> float:
    """The map value that colours are scaled to: the pixel threshold or, for a model without one, the map's peak."""
    threshold = result.pixel_threshold
    return threshold if isfinite(threshold) and threshold > 0 else max(result.peak, 1e-12)


def heat_strength(heat: Floats, unit: float) -> Floats:
    """0 at half the unit and below, 1/3 at the unit (the threshold), 1 at twice the unit and above."""
    return np.asarray(np.clip((heat / np.float32(unit) - np.float32(0.5)) / np.float32(1.5), 0, 1))


def heat_layer(heat: Floats, unit: float) -> Array:
    """Heat (H, W) as a picture (H, W, 4) to be laid over the image; where it is calm nothing shows."""
    return np.asarray(_COLOURS[(heat_strength(heat, unit) * (len(_COLOURS) - 1)).astype(np.int16)])


def outline_layer(mask: Mask) -> Array:
    """The border of a mask (H, W) as a picture (H, W, 4)."""
    layer, (line, rim) = np.zeros((*mask.shape, 4), np.uint8), _border(mask)
    layer[rim], layer[line] = (*RIM, 255), (*OUTLINE, 255)
    return layer


def _border(mask: Mask) -> tuple[Mask, Mask]:
    """A line around all that a mask (H, W) marks, as wide as the image asks for, and the line's rim.

    The line is bright with a dark rim, so that it shows on light and dark parts and in grey print.
    """
    width = max(1, round(min(mask.shape) / 200))
    lit = _dilated(mask, width)
    return lit & ~mask, _dilated(lit, width) & ~lit


def overlay(pixels: Array, heat: Floats, unit: float) -> Array:
    """Heat (H, W) over pixels (H, W, 3); where it is calm the picture stays as it is."""
    below, above = Image.fromarray(pixels).convert("RGBA"), Image.fromarray(heat_layer(heat, unit))
    return np.asarray(Image.alpha_composite(below, above).convert("RGB"))


def outlined(pixels: Array, mask: Mask) -> Array:
    """Pixels (H, W, 3) with the border of the mask."""
    result, (line, rim) = pixels.copy(), _border(mask)
    result[rim], result[line] = RIM, OUTLINE
    return result


def screen_size(height: int, width: int, longest: int = SCREEN) -> tuple[int, int]:
    """Height and width at which an image is drawn.

    >>> screen_size(4000, 6000), screen_size(300, 400)
    ((800, 1200), (300, 400))
    """
    scale = min(1.0, longest / max(height, width))
    return max(1, round(height * scale)), max(1, round(width * scale))


def screen_pixels(source: ImageLike, window: Window | None = None, longest: int = SCREEN) -> Array:
    """The image (h, w, 3) uint8 at the size at which it is drawn; a large JPEG is decoded at about that size.

    The window says which values are black and white.
    """

    def reduced(height: int, width: int) -> int:
        return next((times for times in (8, 4, 2) if max(height, width) >= times * longest), 1)

    image = apply_window(decoded(source, reduced), window, describe(source))
    height, width = screen_size(image.height, image.width, longest)
    shown = image.resized(height, width, resample=Image.Resampling.LANCZOS)
    return np.asarray(np.clip(shown, 0, 255).astype(np.uint8))


def screen_map(result: Result, height: int, width: int) -> Floats:
    """The map of the whole image, drawn at height × width."""
    return result.map_over((0, 0, *result.size), height, width)


def panels(source: ImageLike, result: Result, full_size: bool = False) -> Array:
    """Original, heatmap, and predicted segmentation, side by side."""
    pixels = load_pixels(source, result.window) if full_size else screen_pixels(source, result.window)
    height, width = pixels.shape[:2]
    sheet = np.full((height, 3 * width + 2 * SEPARATOR, 3), 255, np.uint8)
    plain, hot, found = (sheet[:, i * (width + SEPARATOR) :][:, :width] for i in range(3))
    plain[:] = pixels
    # the map is made some rows at a time, so that the map of a large image is never in memory as a whole
    mask = np.empty((height, width), bool)
    rows = max(1, BAND // width)
    for top in range(0, height, rows):
        bottom = min(top + rows, height)
        tall = result.size[0] / height
        heat = result.map_over((top * tall, 0, bottom * tall, result.size[1]), bottom - top, width)
        hot[top:bottom] = overlay(pixels[top:bottom], heat, heat_unit(result))
        mask[top:bottom] = heat > result.mask_limit
    found[:] = outlined(pixels, mask)
    return sheet


def triptych(source: ImageLike, result: Result, full_size: bool = False) -> Array:
    """`panels` above a legend: the verdict, the scale of the colours, and what is outlined."""
    above = panels(source, result, full_size)
    below = _legend(result, max(above.shape[1], LEAST_WIDTH))
    wider = np.full((len(above), below.shape[1] - above.shape[1], 3), 255, np.uint8)
    return np.concatenate([np.concatenate([above, wider], axis=1), below])


def contact_sheet(rows: Sequence[tuple[str, Array]], width: int = 720) -> Array:
    """Labelled pictures one below the other, each scaled to the same width."""
    strips = []
    for label, picture in rows:
        image = Image.fromarray(picture)
        image = image.resize((width, round(image.height * width / image.width)), Image.Resampling.LANCZOS)
        strip = Image.new("RGB", (width, image.height + 22), "white")
        ImageDraw.Draw(strip).text((4, 4), label, fill=INK)
        strip.paste(image, (0, 22))
        strips.append(np.asarray(strip))
    return np.concatenate(strips)


def save_picture(path: str | Path, picture: Array) -> None:
    """Write a PNG or JPEG atomically."""
    with atomic_path(path) as temporary:
        # half the time of the usual level 6, for files that are a quarter larger
        Image.fromarray(picture).save(temporary, compress_level=3)


def _legend(result: Result, width: int) -> Array:
    """Two lines of text around a bar of the heatmap's colours, (h, width, 3)."""
    scale = max(1.0, width / 1200)
    size, margin = round(15 * scale), round(8 * scale)
    line = round(1.5 * size)
    font = ImageFont.load_default(size)
    image = Image.new("RGB", (width, 3 * line + 3 * margin), "white")
    draw = ImageDraw.Draw(image)
    draw.text((margin, margin), verdict_line(result), fill=INK, font=font)
    unit, bar = heat_unit(result), round(BAR_WIDTH * scale)
    top, left = margin + line + margin // 2, margin
    draw.text((left, top), f"heat: {number(unit / 2)}", fill=INK, font=font)
    left += round(draw.textlength(f"heat: {number(unit / 2)} ", font=font))
    ramp = np.linspace(unit / 2, 2 * unit, bar, dtype=np.float32)[None].repeat(size, 0)
    ground = np.full((size, bar, 3), 200, np.uint8)
    image.paste(Image.fromarray(overlay(ground, ramp, unit)), (left, top + size // 6))
    at_unit = left + bar // 3
    draw.line((at_unit, top, at_unit, top + size + size // 3), fill=INK, width=max(1, round(scale)))
    name = "pixel threshold" if unit == result.pixel_threshold else "peak of this map"
    end = f" {number(2 * unit)} and more; the mark is the {name}, {number(unit)}"
    draw.text((left + bar, top), end, fill=INK, font=font)
    draw.text((margin, top + line + margin // 2), f"outline: {outline_note(result)}", fill=INK, font=font)
    return np.asarray(image)


def _dilated(mask: Mask, width: int) -> Mask:
    """A mask (H, W) with a border of `width` pixels around all that it marks."""
    size = 2 * width + 1
    for axis in (0, 1):
        ends = [(width + 1, width) if side == axis else (0, 0) for side in (0, 1)]
        counts = np.moveaxis(np.cumsum(np.pad(mask, ends), axis, dtype=np.int32), axis, 0)
        mask = np.moveaxis(counts[size:] > counts[:-size], 0, axis)
    return mask
