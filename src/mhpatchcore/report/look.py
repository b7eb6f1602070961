"""The page about a look: what the images are, what the network will see of them, and what is suggested."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from matplotlib import rc_context
from matplotlib.figure import Figure

from mhpatchcore.errors import ImageError
from mhpatchcore.inputs.checks import Suggestion
from mhpatchcore.inputs.loading import LoadedImage, load_image
from mhpatchcore.inputs.sources import spread
from mhpatchcore.inputs.views import Placed
from mhpatchcore.inputs.window import Window
from mhpatchcore.inspection.look import CELL, Glance, Look
from mhpatchcore.inspection.suggestions import shown_by_a_pixel
from mhpatchcore.report.drawing import screen_pixels, screen_size
from mhpatchcore.report.figures import BLUE, GREY, STYLE, VERMILION, figure_bytes, plot
from mhpatchcore.report.page import MASK_SIDE, encoded, outline_path, render_page
from mhpatchcore.report.wording import Tile, percent, settings
from mhpatchcore.runtime.arrays import Array
from mhpatchcore.runtime.files import write_text

SHOWN, SHOWN_GROUPS, SHOWN_OF_GROUP = 6, 6, 4
PHOTO_SIDE, SMALL_SIDE = 800, 320


@dataclass(frozen=True)
class Panel:
    """A picture of width × height pixels as the bytes of a JPEG, and what stands below it."""

    caption: str
    width: int
    height: int
    photo: bytes


@dataclass(frozen=True)
class Shown:
    """An image, what is drawn on it (SVG paths in its pixels), and a view of each scale."""

    name: str
    note: str
    image: Panel
    region: str
    tiles: str
    views: tuple[Panel, ...]


def write_look_report(look: Look, suggested: Sequence[Suggestion], path: str | Path) -> None:
    write_text(path, render(look, suggested))


def render(look: Look, suggested: Sequence[Suggestion]) -> str:
    """The page as text."""
    shown = [_shown(look, look.images[i]) for i in spread(len(look.images), SHOWN)]
    return render_page(
        "look.html.j2",
        eyebrow="A look before the fit",
        name="/".join(Path(look.source).parts[-2:]),
        headline=_headline(look),
        promise="Nothing has been learnt yet. Views are shown as the network will see them: look for a wrong crop, a "
        "black picture, or a defect among them.",
        tiles=_tiles(look),
        suggestions=suggested,
        figures=_figures(look),
        shown=shown,
        has_region=any(one.region for one in shown),
        has_tiles=any(one.tiles for one in shown),
        groups=[_group(look, group) for group in look.duplicates[:SHOWN_GROUPS]],
        more_groups=max(0, len(look.duplicates) - SHOWN_GROUPS),
        broken=look.broken,
        settings=settings(look.config),
    )


def _headline(look: Look) -> str:
    n = len(look.images)
    text = f"{n} image{'s' if n > 1 else ''} to learn from"
    return text + (f", {len(look.broken)} that cannot be used" if look.broken else "")


def _tiles(look: Look) -> list[Tile]:
    (height, width), common = look.sizes.most_common(1)[0]
    kind, alike = look.kinds.most_common(1)[0]
    copies = len(look.images) - look.distinct
    behind = f"a pixel of the finest shows {shown_by_a_pixel(look)}"
    n = min(look.distinct, look.config.calibration_images)
    return [
        Tile(
            "Images", str(len(look.images)), f"{copies} of them near-duplicates" if copies else "all differ"
        ),
        Tile("Size", f"{width} × {height}", _share(common, look, f"{len(look.sizes)} sizes")),
        Tile("Kind", kind, _share(alike, look, f"{len(look.kinds)} kinds")),
        Tile("Views", ", ".join(map(str, look.config.sizes)), behind),
        Tile(
            "False alarms",
            percent(look.config.false_alarm),
            f"of good parts, judging by {n} calibration images",
        )
        if n > 1
        else Tile("Threshold", "none", "one image gives none"),
    ]


def _share(n: int, look: Look, of: str) -> str:
    return "all images" if n == len(look.images) else f"{n} of {len(look.images)} images, {of} in all"


def _figures(look: Look) -> list[tuple[str, bytes]]:
    """Descriptions and SVG files."""
    drawn = [("How often values occur in the images, and the window", values_figure(look))]
    if len(look.sizes) > 1:
        drawn.append((f"The {len(look.sizes)} sizes of the images", sizes_figure(look)))
    return [(text, figure_bytes(figure, "svg")) for text, figure in drawn]


@rc_context(STYLE)
def values_figure(look: Look) -> Figure:
    """The values in the files, over a logarithmic axis, and what will be black and white."""
    figure, axes = plot((5.8, 3.1), "Values", "value in the files", "how often (logarithmic)")
    axes.stairs(look.values.counts, look.values.edges, fill=True, color=BLUE, alpha=0.45)
    window = look.config.window
    if isinstance(window, Window):
        for value, name, dashes in ((window.low, "black", "--"), (window.high, "white", ":")):
            label = f"{name} at {value:.6g}"
            axes.axvline(value, color="black", linestyle=dashes, linewidth=1.4, label=label)
        axes.legend(loc="lower right", bbox_to_anchor=(1, 1), ncols=2, frameon=False, borderaxespad=0.2)
    axes.set_yscale("log")
    return figure


@rc_context(STYLE)
def sizes_figure(look: Look) -> Figure:
    """Heights over widths; a larger mark stands for more images."""
    figure, axes = plot((4.2, 4.2), "Sizes", "width (pixels)", "height (pixels)")
    sizes = np.array([(width, height, n) for (height, width), n in look.sizes.items()])
    area = 20 + 280 * sizes[:, 2] / sizes[:, 2].max()
    axes.scatter(sizes[:, 0], sizes[:, 1], s=area, color=VERMILION, alpha=0.6, edgecolor=GREY, clip_on=False)
    axes.set(xlim=(0, None), ylim=(0, None))
    return figure


def _shown(look: Look, glance: Glance) -> Shown:
    """An image with its region and its tiles, and a view of each scale: that in the middle."""
    config = look.config
    image = load_image(glance.source, config.views, config.roi)
    views, tiles = list[Panel](), ""
    for size, view in zip(config.sizes, config.views, strict=True):
        placed = image.placed(view, (view.height // CELL, view.width // CELL))
        middle = placed[len(placed) // 2]
        pixels = np.clip(image.pixels(view, middle.where), 0, 255).astype(np.uint8)
        which = f", tile {middle.number + 1} of {view.count(*image.size)}" if view.zoom else ""
        views.append(_panel(f"seen as {size.width} × {size.height}{which}", pixels))
        tiles += "".join(map(_rectangle, placed)) if view.zoom else ""
    photo = screen_pixels(glance.source, config.views[0].window, PHOTO_SIDE)
    whole = Panel("the image", glance.header.width, glance.header.height, encoded(photo, "JPEG"))
    note = f"{glance.header.width} × {glance.header.height} pixels, {glance.kind}"
    return Shown(glance.name, note, whole, _outline(image), tiles, tuple(views))


def _rectangle(placed: Placed) -> str:
    top, left, bottom, right = placed.where.box
    return f"M{left:.6g} {top:.6g}H{right:.6g}V{bottom:.6g}H{left:.6g}Z"


def _outline(image: LoadedImage) -> str:
    """Its region of interest."""
    if image.area is None:
        return ""
    whole, shape = (0, 0, *image.size), screen_size(*image.size, MASK_SIDE)
    inside = image.area.over(whole, *shape, image.size).astype(np.float32)
    return outline_path(inside, 0.5, *image.size)


def _group(look: Look, names: Sequence[str]) -> tuple[list[Panel], int]:
    """Some of a group of near-duplicates, and how many more there are."""
    named = {image.name: image for image in look.images}
    panels = []
    for name in names[:SHOWN_OF_GROUP]:
        try:
            pixels = screen_pixels(named[name].source, look.config.views[0].window, SMALL_SIDE)
        except ImageError:
            continue  # it has gone since it was looked at
        panels.append(_panel(name, pixels))
    return panels, len(names) - len(panels)


def _panel(caption: str, pixels: Array) -> Panel:
    return Panel(caption, pixels.shape[1], pixels.shape[0], encoded(pixels, "JPEG"))
