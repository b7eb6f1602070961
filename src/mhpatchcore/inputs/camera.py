"""What an image says about the camera that took it: light, contrast, focus, noise, colour, and where the part lies.

All of it is measured on a view that is made anyway, in about a millisecond. No measure follows from another: contrast
is relative to brightness, sharpness and noise are relative to contrast, red and blue to green. So a lamp that fades
changes the brightness alone.

Where the part lies is the centre of its edges, for each direction by itself: those that run down the image say how far
right it is. Where edges are about as frequent in all columns they are those of a texture, which lies nowhere.
"""

from __future__ import annotations

import numpy as np

from mhpatchcore.inputs.pixels import BRIGHTNESS
from mhpatchcore.inputs.regions import Extent
from mhpatchcore.runtime.arrays import Array, Floats, Mask

MEASURES = ("brightness", "contrast", "sharpness", "noise", "red", "blue", "part_x", "part_y")
EVERY = 3  # so many rows there are for one in which steps are measured
SHARPEST = 0.99  # the share of steps that are smaller than those of the sharpest edges
FLAT = 0.75  # the share of an image in which there is more noise than structure
CELL = 4  # pixels of the view, the side of a cell in which edges are sought: noise has little of them
EDGE = 2  # times the median step between cells
TEXTURE = 1.2  # n Σ p² of the shares p of edges in n columns: 1 if all are equal; textures have at most 1.05


def image_measures(view: Array, box: Extent, inside: Mask | None = None) -> Floats:
    """The MEASURES (m,) of a view (H, W, 3), of which only the pixels inside (H, W) count; None: all.

    `box` is what it shows of the image, in whose pixels the part's place is given: NaN if there is no part.
    """
    pixels = np.array(view, np.float32)
    if inside is not None:
        pixels[~inside] = np.nan  # which differences pass on to all that reaches beyond the mask
    gray = pixels @ BRIGHTNESS.astype(np.float32)
    known = _known(gray)
    if not known.size:
        return np.full(len(MEASURES), np.nan, np.float32)
    brightness, spread = max(float(known.mean()), 1.0), max(float(known.std()), 1.0)
    red, green, blue = (max(float(_known(pixels[::EVERY, :, i]).mean()), 1.0) for i in range(3))
    steps = _smallest(np.diff(gray[::EVERY], axis=1), SHARPEST)
    bends = _smallest(np.diff(gray[:-2:EVERY] - 2 * gray[1:-1:EVERY] + gray[2::EVERY], 2, axis=1), FLAT)
    cells = _cells(gray)
    top, left, bottom, right = box
    values = (
        brightness,
        spread / brightness,
        steps.max(initial=0) / spread,
        bends.mean() / spread if bends.size else 0,
        red / green,
        blue / green,
        left + (right - left) * _centre_of_edges(cells),
        top + (bottom - top) * _centre_of_edges(cells.T),
    )
    return np.array(values, np.float32)


def _cells(gray: Floats) -> Floats:
    """The means (h, w) of cells of CELL × CELL pixels."""
    rows, columns = (side // CELL for side in gray.shape)
    whole = gray[: rows * CELL, : columns * CELL]
    means: Floats = whole.reshape(rows, CELL, columns, CELL).mean(axis=(1, 3))
    return means


def _centre_of_edges(cells: Floats) -> float:
    """How far right the part lies, as a share of the width; NaN where there is none."""
    steps = np.nan_to_num(np.abs(np.diff(cells, axis=1)))
    profile = steps.sum(axis=0)
    if len(profile) * (profile**2).sum() <= TEXTURE * profile.sum() ** 2:
        return float("nan")
    edges = np.maximum(steps - EDGE * np.median(steps), 0).sum(axis=0)
    if not edges.any():
        return float("nan")
    return float(edges @ np.arange(1, len(edges) + 1) / edges.sum() / (len(edges) + 1))


def _smallest(values: Floats, share: float) -> Floats:
    """So many of the sizes of all known values."""
    sizes = np.abs(_known(values))
    count = int(share * sizes.size)
    return np.partition(sizes, count)[:count] if sizes.size else sizes


def _known(values: Floats) -> Floats:
    finite = np.isfinite(values)
    return values.ravel() if finite.all() else values[finite]
