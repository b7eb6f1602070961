"""Pictures from results: heatmaps scaled to the threshold, outlines of regions, side by side.

Colours are those of the threshold, not of the image: nothing shows below half of it and the scale ends at twice
the threshold, so a normal part looks calm and two images can be compared.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw

from mhpatchcore.inputs.images import ImageLike, load_pixels
from mhpatchcore.result import Result
from mhpatchcore.runtime.arrays import Array, Floats, Mask
from mhpatchcore.runtime.files import atomic_path

# dark violet → red → yellow: rising lightness reads in grey print, and no red–green contrast is needed
_STOPS = np.array([[60, 10, 90], [150, 20, 110], [220, 60, 60], [250, 150, 40], [252, 240, 120]], np.float64)
OUTLINE, RIM = (0, 255, 255), (0, 40, 60)
SEPARATOR = 4


def heat_strength(heat: Floats, threshold: float) -> Floats:
    """0 at half the threshold and below, 0.5 near the threshold, 1 at twice the threshold and above."""
    if not np.isfinite(threshold) or threshold <= 0:
        threshold = float(heat.max()) or 1.0
    strength: Floats = np.clip((heat / threshold - 0.5) / 1.5, 0, 1)
    return strength


def overlay(pixels: Array, heat: Floats, threshold: float) -> Array:
    """Heat (H, W) laid over pixels (H, W, 3); where it is calm the picture stays as it is."""
    strength = heat_strength(heat, threshold)
    positions = strength * (len(_STOPS) - 1)
    colours = np.stack([np.interp(positions, np.arange(len(_STOPS)), stop) for stop in _STOPS.T], axis=-1)
    opacity = np.minimum(strength * 2, 0.65)[:, :, None]
    blended: Array = (pixels * (1 - opacity) + colours * opacity).astype(np.uint8)
    return blended


def outlined(pixels: Array, mask: Mask) -> Array:
    """Pixels with the border of the mask drawn in a line as wide as the image asks for.

    The line is bright with a dark rim, so that it shows on light and dark parts and in grey print.
    """
    from scipy.ndimage import binary_dilation

    width = max(1, round(min(mask.shape) / 200))
    lit = binary_dilation(mask, iterations=width)
    rimmed = binary_dilation(lit, iterations=width)
    result = pixels.copy()
    result[rimmed & ~lit] = RIM
    result[lit & ~mask] = OUTLINE
    return result


def triptych(source: ImageLike, result: Result) -> Array:
    """Original, heatmap, and predicted segmentation, side by side."""
    pixels = load_pixels(source)
    panels = [
        pixels,
        overlay(pixels, result.map, result.pixel_threshold),
        outlined(pixels, result.mask),
    ]
    gap = np.full((pixels.shape[0], SEPARATOR, 3), 255, np.uint8)
    return np.concatenate([panels[0], gap, panels[1], gap, panels[2]], axis=1)


def contact_sheet(rows: Sequence[tuple[str, Array]], width: int = 720) -> Array:
    """Labelled pictures one below the other, each scaled to the same width."""
    strips = []
    for label, picture in rows:
        image = Image.fromarray(picture)
        image = image.resize((width, round(image.height * width / image.width)), Image.Resampling.LANCZOS)
        strip = Image.new("RGB", (width, image.height + 22), "white")
        ImageDraw.Draw(strip).text((4, 4), label, fill=(30, 30, 30))
        strip.paste(image, (0, 22))
        strips.append(np.asarray(strip))
    return np.concatenate(strips)


def save_picture(path: str | Path, picture: Array) -> None:
    """Write a PNG or JPEG atomically."""
    with atomic_path(path) as temporary:
        Image.fromarray(picture).save(temporary)
