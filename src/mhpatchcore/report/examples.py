"""Qualitative examples side by side: what came in, what is known, what the detector says."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from PIL import Image

from mhpatchcore.report.captions import heat_unit
from mhpatchcore.report.drawing import outlined, overlay, screen_map
from mhpatchcore.report.figures import OWN_LAYOUT, STYLE
from mhpatchcore.result import Result
from mhpatchcore.runtime.arrays import Array, Mask

PANEL_PIXELS = 256
PANEL, GAP, MARGIN = 1.28, 0.06, 0.3  # inches


@dataclass(frozen=True, eq=False)
class Example:
    """An image (H, W, 3) with a label, what the detector says of it and, where it is known, the truth (H, W)."""

    label: str
    pixels: Array
    result: Result
    truth: Mask | None = None


@rc_context(STYLE | OWN_LAYOUT)  # all sizes are known here: no need to search for a layout
def qualitative_figure(examples: Sequence[Example]) -> Figure:
    """One row for each example: image, ground truth (if there is any), heatmap, predicted segmentation."""
    with_truth = any(example.truth is not None for example in examples)
    titles = ["image", *(["ground truth"] if with_truth else []), "heatmap", "segmentation"]
    heights = [PANEL * example.pixels.shape[0] / example.pixels.shape[1] for example in examples]
    size = MARGIN + (PANEL + GAP) * len(titles), MARGIN + sum(heights) + GAP * len(examples)
    figure = Figure(figsize=size)
    FigureCanvasAgg(figure)
    grid, top = [], size[1] - MARGIN
    for height in heights:
        top -= height
        lefts = [MARGIN + (PANEL + GAP) * column for column in range(len(titles))]
        grid.append([_axes(figure, left, top, height) for left in lefts])
        top -= GAP
    for axes, title in zip(grid[0], titles, strict=True):
        axes.set_title(title, fontsize=9, fontweight="normal")
    for line, example in zip(grid, examples, strict=True):
        for axes, panel in zip(line, _panels(example, with_truth), strict=True):
            axes.imshow(panel)
            axes.set(xticks=[], yticks=[])
            axes.spines[:].set(visible=True, color="#bfbfbf", linewidth=0.6)
        line[0].set_ylabel(example.label, fontsize=7)
    return figure


def _axes(figure: Figure, left: float, bottom: float, height: float) -> Axes:
    """Axes of a panel's width, given in inches."""
    wide, tall = figure.get_size_inches()
    return figure.add_axes((left / wide, bottom / tall, PANEL / wide, height / tall))


def _panels(example: Example, with_truth: bool) -> list[Array]:
    """Pictures (h, w, 3), made small before anything is drawn on them, so that outlines stay visible."""
    pixels = _reduced(example.pixels)
    heat = screen_map(example.result, *pixels.shape[:2])
    hot = overlay(pixels, heat, heat_unit(example.result))
    predicted = outlined(pixels, heat > example.result.mask_limit)
    if not with_truth:
        return [pixels, hot, predicted]
    truth = pixels if example.truth is None else outlined(pixels, _resized(example.truth, *pixels.shape[:2]))
    return [pixels, truth, hot, predicted]


def _resized(mask: Mask, height: int, width: int) -> Mask:
    image = Image.fromarray(mask.astype(np.float32)).resize((width, height), Image.Resampling.BILINEAR)
    return np.asarray(image) >= 0.5


def _reduced(pixels: Array) -> Array:
    """Pixels (H, W, 3) made small enough for print."""
    image = Image.fromarray(pixels)
    image.thumbnail((PANEL_PIXELS, PANEL_PIXELS))
    return np.asarray(image)
