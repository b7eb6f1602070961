"""One picture that shows why: the image with its worst places, and beside each the normal patches nearest to it.

All crops show the same share of the view, so they are at one scale, and the patch itself is boxed in each of them.
"""

from __future__ import annotations

from math import isfinite
from textwrap import fill
from typing import Any

import numpy as np
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from matplotlib.patheffects import withStroke
from PIL import Image

from mhpatchcore.inputs.loading import load_pixels
from mhpatchcore.inputs.regions import Extent
from mhpatchcore.inputs.sources import ImageLike
from mhpatchcore.inputs.views import Box
from mhpatchcore.inputs.window import Window
from mhpatchcore.inspection.evidence import NEAREST, Evidence, NormalPatch, Place
from mhpatchcore.report.drawing import outline_note, outlined, screen_map, screen_size, verdict_line
from mhpatchcore.report.figures import STYLE, figure_bytes
from mhpatchcore.runtime.arrays import Array
from mhpatchcore.scoring.maps import ViewScores

PATCH = "#E69F00"
CELLS = 8.5  # of the grid, across a crop
WHOLE_WIDTH, CROP_WIDTH, LINE_HEIGHT = 4.6, 1.9, 2.65
NAME_LENGTH, TITLE_LETTERS, NOTE_LETTERS = 24, 58, 70


def evidence_png(image: ImageLike, evidence: Evidence) -> bytes:
    """The evidence for an image as a PNG file."""
    return figure_bytes(evidence_figure(load_pixels(image, evidence.result.window), evidence), "png")


@rc_context(STYLE)
def evidence_figure(pixels: Array, evidence: Evidence) -> Figure:
    """The image (H, W, 3) on the left; one line of crops for each place on the right."""
    result = evidence.result
    lines, columns = len(evidence.places), NEAREST + 1
    tall = min(WHOLE_WIDTH * pixels.shape[0] / pixels.shape[1], 8.0) + 0.6
    figure = Figure(figsize=(WHOLE_WIDTH + CROP_WIDTH * columns, max(LINE_HEIGHT * lines + 0.3, tall)))
    widths = [WHOLE_WIDTH, CROP_WIDTH * columns]
    whole, places = figure.subfigures(1, 2, squeeze=False, width_ratios=widths)[0]
    _draw_whole(whole.subplots(), pixels, evidence)
    title = "Patches of this image, and the nearest normal patches at the same scale"
    places.suptitle(title, fontsize=10, x=0.01, ha="left")
    grid = places.subplots(lines, columns, squeeze=False)
    for i, (line, place) in enumerate(zip(grid, evidence.places, strict=True), start=1):
        note = _place_note(place, evidence.pixel_threshold)
        view = result.views[place.view]
        _draw_crop(line[0], pixels, place.box, crop_of_place(place, view), f"{i}  this image", note)
        for axes, patch in zip(line[1:], place.nearest, strict=False):
            _draw_normal(axes, patch, view, result.window)
        for axes in line[1 + len(place.nearest) :]:
            axes.set_axis_off()
    return figure


def _draw_whole(axes: Axes, pixels: Array, evidence: Evidence) -> None:
    result = evidence.result
    tall, wide = pixels.shape[:2]
    height, width = screen_size(tall, wide)
    small = np.asarray(Image.fromarray(pixels).resize((width, height), Image.Resampling.LANCZOS))
    mask = screen_map(result, height, width) > result.mask_limit
    axes.imshow(outlined(small, mask), extent=(0, wide, tall, 0))
    style: dict[str, Any] = {
        "color": "white",
        "ha": "center",
        "va": "bottom",
        "fontsize": 12,
        "weight": "bold",
    }
    for i, place in enumerate(evidence.places, start=1):
        _draw_box(axes, place.box)
        top, left, _, right = place.box
        above = max(top, 0.07 * tall)  # within the image, also where the patch touches its edge
        text = axes.text((left + right) / 2, above, str(i), **style)
        text.set_path_effects([withStroke(linewidth=3, foreground="black")])
    note = f"cyan: {outline_note(result)} · box: the patch that was compared"
    _label(axes, fill(verdict_line(result), TITLE_LETTERS), fill(note, NOTE_LETTERS))


def _draw_normal(axes: Axes, patch: NormalPatch, view: ViewScores, window: Window | None) -> None:
    name = "normal" if patch.image is None else _shortened(patch.image)
    note = f"distance {patch.distance:.4g}\n{_where(patch)}"
    crop = crop_of_normal(patch, view)
    if crop is not None and patch.file is not None and patch.box is not None:
        _draw_crop(axes, load_pixels(patch.file, window), patch.box, crop, name, note)
        return
    averaged = patch.image is None
    text = "an average of\nmany normal patches" if averaged else "image not found:\n--normals says where"
    axes.text(0.5, 0.5, text, transform=axes.transAxes, ha="center", va="center", fontsize=8, color="#404040")
    axes.set_aspect("equal", adjustable="box")
    _label(axes, name, note)


def _draw_crop(axes: Axes, pixels: Array, box: Box, crop: Extent, title: str, note: str) -> None:
    """What lies in the crop, with the box; beyond the image's edge there is nothing."""
    top, left, bottom, right = crop
    y, x = max(0, int(top)), max(0, int(left))
    piece = pixels[y : int(bottom) + 2, x : int(right) + 2]
    extent = (x, x + piece.shape[1], y + piece.shape[0], y)
    axes.imshow(piece, extent=extent, interpolation="bilinear")
    axes.set(xlim=(left, right), ylim=(bottom, top))
    _draw_box(axes, box)
    _label(axes, title, note)


def crop_of_place(place: Place, view: ViewScores) -> Extent:
    """What is shown around a patch of the image, in its pixels."""
    return _surroundings(place.box, view.geometry.sides, view)


def crop_of_normal(patch: NormalPatch, view: ViewScores) -> Extent | None:
    """The same around a normal patch that was compared with one of `view`; None where its image was not found."""
    box, seen = patch.box, patch.view_box
    if box is None or seen is None:
        return None
    # a view of this size, in the pixels of the normal image
    tall, wide = (view.size[i] * (box[i + 2] - box[i]) / (seen[i + 2] - seen[i]) for i in range(2))
    return _surroundings(box, (tall, wide), view)


def _surroundings(box: Box, sides: tuple[float, float], view: ViewScores) -> Extent:
    """CELLS cells of the grid around a box, where a view's height and width in the image are `sides`."""
    tall, wide = (CELLS * side / n for side, n in zip(sides, view.distances.shape, strict=True))
    top, left = (box[0] + box[2] - tall) / 2, (box[1] + box[3] - wide) / 2
    return top, left, top + tall, left + wide


def _draw_box(axes: Axes, box: Box) -> None:
    top, left, bottom, right = box
    for colour, width in (("black", 3.2), (PATCH, 1.6)):  # a dark casing, so that it shows on any ground
        style: dict[str, Any] = {"fill": False, "edgecolor": colour, "linewidth": width}
        axes.add_patch(Rectangle((left, top), right - left, bottom - top, **style))


def _label(axes: Axes, title: str, note: str) -> None:
    axes.set(xticks=[], yticks=[], facecolor="#e8e8e8")
    axes.grid(False)
    axes.spines[:].set(visible=True, color="#bfbfbf", linewidth=0.6)
    axes.set_anchor("N")
    axes.set_title(title, fontsize=9, parse_math=False)  # a file name may hold dollars
    axes.set_xlabel(note, fontsize=8, parse_math=False)


def _place_note(place: Place, threshold: float) -> str:
    layers = [f"{one.share:.0%} {one.layer} ({one.stride} px grid)" for one in place.layers]
    score = f"{place.score:.4g}"
    if isfinite(threshold) and threshold > 0:
        score += f" = {place.score / threshold:.2f} × pixel threshold"
    return "\n".join([score, *layers])


def _where(patch: NormalPatch) -> str:
    """The middle of the patch, in its file's pixels or, without a file, in those of the view."""
    box = patch.box or patch.view_box
    if box is None:
        return ""
    unit = "row" if patch.box else "view row"
    turned = f"\n{patch.turned}" if patch.turned else ""
    return f"{unit} {(box[0] + box[2]) // 2}, column {(box[1] + box[3]) // 2}{turned}"


def _shortened(name: str) -> str:
    """The end of a name, and a mark for every character that no font can show.

    >>> _shortened("a/folder/with/a/long/name/of/an/image.png"), _shortened("two\\nlines.png")
    ('…ng/name/of/an/image.png', 'two?lines.png')
    """
    shown = "".join(letter if letter.isprintable() else "?" for letter in name)
    return shown if len(shown) <= NAME_LENGTH else "…" + shown[-(NAME_LENGTH - 1) :]
