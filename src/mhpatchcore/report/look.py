"""The page about a look: what the images are, what the network will see of them, and what is suggested."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib import rc_context
from matplotlib.figure import Figure

from mhpatchcore.errors import ImageError
from mhpatchcore.inputs.checks import Suggestion
from mhpatchcore.inputs.loading import load_image
from mhpatchcore.inputs.sources import spread
from mhpatchcore.inputs.window import Window
from mhpatchcore.inspection.look import CELL, Glance, Look
from mhpatchcore.report import figures
from mhpatchcore.report.drawing import screen_pixels, screen_size
from mhpatchcore.report.page import (
    MASK_SIDE,
    Picture,
    Tile,
    encoded,
    outline_path,
    percent,
    render_page,
    settings,
)
from mhpatchcore.runtime.arrays import Array
from mhpatchcore.runtime.files import write_text

SHOWN, SHOWN_GROUPS, SHOWN_OF_GROUP = 6, 6, 4
PHOTO_SIDE, SMALL_SIDE = 800, 320


def write_look_report(look: Look, suggested: Sequence[Suggestion], path: str | Path) -> None:
    shown = [_shown(look, look.images[i]) for i in spread(len(look.images), SHOWN)]
    n, broken = len(look.images), len(look.broken)
    headline = f"{n} image{'s' if n > 1 else ''} to learn from"
    drawn = [("How often values occur in the images, and the window", values_figure(look))]
    if len(look.sizes) > 1:
        drawn.append((f"The {len(look.sizes)} sizes of the images", sizes_figure(look)))
    page = render_page(
        "look.html.j2",
        eyebrow="A look before the fit",
        name="/".join(Path(look.source).parts[-2:]),
        headline=headline + (f", {broken} that cannot be used" if broken else ""),
        promise="Nothing has been learnt yet. Views are shown as the network will see them: look for a wrong crop, a "
        "black picture, or a defect among them.",
        tiles=_tiles(look),
        suggestions=suggested,
        figures=drawn,
        shown=shown,
        has_region=any(one["image"].predicted for one in shown),
        has_tiles=any(one["image"].truth for one in shown),
        groups=[_group(look, group) for group in look.duplicates[:SHOWN_GROUPS]],
        more_groups=max(0, len(look.duplicates) - SHOWN_GROUPS),
        broken=look.broken,
        settings=settings(look.config),
    )
    write_text(path, page)


def _tiles(look: Look) -> list[Tile]:
    def share(n: int, of: str) -> str:
        return "all images" if n == len(look.images) else f"{n} of {len(look.images)} images, {of} in all"

    (height, width), common = look.sizes.most_common(1)[0]
    kind, alike = look.kinds.most_common(1)[0]
    copies = len(look.images) - look.distinct
    alike_note = f"{copies} of them near-duplicates" if copies else "all differ"
    n, rate = min(look.distinct, look.config.calibration_images), percent(look.config.false_alarm)
    alarms = Tile("False alarms", rate, f"of good parts, judging by {n} calibration images")
    views = ", ".join(map(str, look.config.sizes))
    return [
        Tile("Images", str(len(look.images)), alike_note),
        Tile("Size", f"{width} × {height}", share(common, f"{len(look.sizes)} sizes")),
        Tile("Kind", kind, share(alike, f"{len(look.kinds)} kinds")),
        Tile("Views", views, f"a pixel of the finest shows {look.shown_by_a_pixel}"),
        alarms if n > 1 else Tile("Threshold", "none", "one image gives none"),
    ]


@rc_context(figures.STYLE)
def values_figure(look: Look) -> Figure:
    """The values in the files, over a logarithmic axis, and what will be black and white."""
    figure, axes = figures.plot((5.8, 3.1), "Values", "value in the files", "how often (logarithmic)")
    axes.stairs(look.counts, look.edges, fill=True, color=figures.BLUE, alpha=0.45)
    window = look.config.window
    if isinstance(window, Window):
        for value, name, dashes in ((window.low, "black", "--"), (window.high, "white", ":")):
            label = f"{name} at {value:.6g}"
            axes.axvline(value, color="black", linestyle=dashes, linewidth=1.4, label=label)
        axes.legend(loc="lower right", bbox_to_anchor=(1, 1), ncols=2, frameon=False, borderaxespad=0.2)
    axes.set_yscale("log")
    return figure


@rc_context(figures.STYLE)
def sizes_figure(look: Look) -> Figure:
    """Heights over widths; a larger mark stands for more images."""
    figure, axes = figures.plot((4.2, 4.2), "Sizes", "width (pixels)", "height (pixels)")
    sizes = np.array([(width, height, n) for (height, width), n in look.sizes.items()])
    area = 20 + 280 * sizes[:, 2] / sizes[:, 2].max()
    x, y, edge = sizes[:, 0], sizes[:, 1], figures.GREY
    axes.scatter(x, y, s=area, color=figures.VERMILION, alpha=0.6, edgecolor=edge, clip_on=False)
    axes.set(xlim=(0, None), ylim=(0, None))
    return figure


def _shown(look: Look, glance: Glance) -> dict[str, Any]:
    """An image, its region and tiles drawn on it, and a view of each scale: that in the middle."""
    config = look.config
    image = load_image(glance.source, config.views, config.roi)
    views, tiles, region = [], "", ""
    for size, view in zip(config.sizes, config.views, strict=True):
        placed = image.placed(view, (view.height // CELL, view.width // CELL))
        middle = placed[len(placed) // 2]
        pixels = np.clip(image.pixels(view, middle.where), 0, 255).astype(np.uint8)
        which = ""
        if view.zoom:
            which = f", tile {middle.number + 1} of {view.count(*image.size)}"
            for top, left, bottom, right in (one.where.box for one in placed):
                tiles += f"M{left:.6g} {top:.6g}H{right:.6g}V{bottom:.6g}H{left:.6g}Z"
        views.append(_picture(f"seen as {size.width} × {size.height}{which}", pixels))
    if image.area is not None:
        whole, shape = (0, 0, *image.size), screen_size(*image.size, MASK_SIDE)
        inside = image.area.over(whole, *shape, image.size).astype(np.float32)
        region = outline_path(inside, 0.5, *image.size)
    photo = encoded(screen_pixels(glance.source, config.views[0].window, PHOTO_SIDE), "JPEG")
    height, width = glance.header.height, glance.header.width
    drawn = Picture(width, height, photo, predicted=region, truth=tiles, caption="the image")
    note = f"{width} × {height} pixels, {glance.kind}"
    return {"name": glance.name, "note": note, "image": drawn, "views": views}


def _group(look: Look, names: Sequence[str]) -> tuple[list[Picture], int]:
    """Some of a group of near-duplicates, and how many more there are."""
    sources = {image.name: image.source for image in look.images}
    pictures = []
    for name in names[:SHOWN_OF_GROUP]:
        with suppress(ImageError):  # it has gone since it was looked at
            pixels = screen_pixels(sources[name], look.config.views[0].window, SMALL_SIDE)
            pictures.append(_picture(name, pixels))
    return pictures, len(names) - len(pictures)


def _picture(caption: str, pixels: Array) -> Picture:
    return Picture(pixels.shape[1], pixels.shape[0], encoded(pixels, "JPEG"), caption=caption)
