"""A look before the fit: what the images are, what the network will see of them, and which settings suit them.

Every image is decoded as a fit does it, so what a fit would refuse is found here, with the same reasons. Nothing is
learnt, no network is needed, and nothing is decided: an engineer does.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from math import ceil, log2
from pathlib import Path, PurePath
from typing import Any

import numpy as np

from mhpatchcore.config import Config, Size
from mhpatchcore.errors import ImageError
from mhpatchcore.fitting.fit import shaped
from mhpatchcore.inputs.checks import Seen, Suggestion, odd_images, unlike_good_parts
from mhpatchcore.inputs.decode import VIDEO, decoded, header_of
from mhpatchcore.inputs.files import MOST_FRAMES, is_frame
from mhpatchcore.inputs.loading import load_image
from mhpatchcore.inputs.sources import Gathered, ImageLike, fetched, spread
from mhpatchcore.inputs.views import MOST_ASPECT, whole_view
from mhpatchcore.inputs.window import SAMPLE, Window, learnt_window
from mhpatchcore.model.duplicates import near_duplicate_groups, thumbnail
from mhpatchcore.runtime.arrays import Doubles, Floats, Indices
from mhpatchcore.runtime.parallel import ordered_map

CELL = 8  # pixels of a view for a patch, with most networks
VALUES = 4096  # of each image that the histogram is made of
BINS = 128
LARGE = 4.0  # pixels of the image, each way, behind one of the finest view
TILE = 512
MOST_TILES = 64  # of an image, that are suggested
TILED_ROWS = 20_000  # of a bank that covers tiles; with the whole image beside them fewer defects stood out
ELONGATED = 1.25
FEW = 20  # images, below which the threshold lies far beyond their scores


@dataclass(frozen=True, eq=False)
class Glance(Seen):
    """What one image is, and how many views each scale has of it."""

    views: tuple[int, ...]
    thumbnail: Floats = field(repr=False)

    @property
    def frames(self) -> int:
        return self.header.frames or 1

    @property
    def kind(self) -> str:
        stack = f", stack of {self.frames} frames" if self.frames > 1 else ""
        return f"{self.header.stored}, {self.header.depth}{stack}"


@dataclass(frozen=True, eq=False)
class Look:
    """What a look at some images has found; `config` are the settings that a fit would go by, window and sizes found.

    `broken` says by name why a fit would refuse an image. `duplicates` are groups of images that show the same.
    `counts` (n,) are how often values occur in a sample of the images, between `edges` (n + 1,).
    """

    source: str
    images: tuple[Glance, ...]
    broken: Mapping[str, str]
    duplicates: tuple[tuple[str, ...], ...]
    counts: Indices
    edges: Doubles
    config: Config

    @property
    def sizes(self) -> Counter[tuple[int, int]]:
        """How many images there are of each height and width."""
        return Counter((image.header.height, image.header.width) for image in self.images)

    @property
    def kinds(self) -> Counter[str]:
        return Counter(image.kind for image in self.images)

    @property
    def distinct(self) -> int:
        """How many images there are, of near-duplicates one."""
        return len(self.images) - sum(len(group) - 1 for group in self.duplicates)

    @property
    def pixels_per_pixel(self) -> float:
        """How many pixels of the typical image, each way, lie behind one of the finest view."""
        height, width = np.median([image.header[:2] for image in self.images], axis=0)
        return min(view.spare(round(height), round(width)) for view in self.config.views)

    @property
    def shown_by_a_pixel(self) -> str:
        """The same in words."""
        return f"{self.pixels_per_pixel:.2g} × {self.pixels_per_pixel:.2g} pixels of the image"

    def to_json(self) -> dict[str, Any]:
        return {
            "source": self.source,
            "images": [
                {"name": image.name, **image.header._asdict(), "frames": image.frames, "views": image.views}
                for image in self.images
            ],
            "broken": dict(self.broken),
            "sizes": {f"{width} × {height}": n for (height, width), n in self.sizes.most_common()},
            "kinds": dict(self.kinds.most_common()),
            "duplicates": [list(group) for group in self.duplicates],
            "histogram": {"counts": self.counts.tolist(), "edges": self.edges.tolist()},
            "views": [str(size) for size in self.config.sizes],
            "window": str(self.config.window),
            "pixels_per_pixel": self.pixels_per_pixel,
        }


def look(
    given: Gathered, config: Config, workers: int = 1, progress: Callable[[str, int, int], None] | None = None
) -> Look:
    """Look at images that are to be learnt from with these settings."""
    config = shaped(config, given.images).with_changes(window=learnt_window(given.images, config.window))
    images, broken = list[Glance](), dict[str, str]()
    named = list(zip(given.images, given.names, strict=True))
    for done, found in enumerate(ordered_map(partial(_glance, config), named, workers), start=1):
        if isinstance(found, Glance):
            images.append(found)
        else:
            broken[named[done - 1][1]] = str(found)
        if progress is not None:
            progress("look", done, len(named))
    if not images:
        raise ImageError(f"none of the images can be read: {next(iter(broken.values()))}")
    groups = defaultdict[int, list[str]](list)
    for image, group in zip(
        images, near_duplicate_groups(np.stack([i.thumbnail for i in images])), strict=True
    ):
        groups[int(group)].append(image.name)
    duplicates = tuple(tuple(names) for names in groups.values() if len(names) > 1)
    counts, edges = _histogram([images[i] for i in spread(len(images), SAMPLE)])
    return Look(given.source, tuple(images), broken, duplicates, counts, edges, config)


def _glance(config: Config, named: tuple[ImageLike, str]) -> Glance | ImageError:
    source, name = named
    try:
        made = fetched(source)
        image = load_image(made, config.views, config.roi.of(source) if config.roi else None)
        views = tuple(
            len(image.placed(view, (view.height // CELL, view.width // CELL))) for view in config.views
        )
        whole = whole_view(config.views)
        # by which a fit tells near-duplicates
        small = thumbnail(image.pixels(whole, whole.geometry(*image.size)))
        header = header_of(source if isinstance(source, str | Path) and is_frame(source) else made)
        assert header is not None  # it has just been decoded
        height, width = image.size
        return Glance(name, source, header._replace(height=height, width=width), views, small)
    except ImageError as error:
        return error


def _histogram(images: Sequence[Glance]) -> tuple[Indices, Doubles]:
    """Counts and edges of the values as they are in the files, before the window."""
    values = []
    for image in images:
        every = np.asarray(decoded(image.source).values).ravel()
        values.append(every[:: max(1, every.size // VALUES)].astype(np.float64))
    return np.histogram(np.concatenate(values), BINS)


def suggestions(look: Look) -> list[Suggestion]:
    """What an engineer should know before a fit, the gravest first."""
    return [*_about_images(look), *_about_views(look), *_about_values(look), *_about_number(look)]


def _about_images(look: Look) -> Iterator[Suggestion]:
    if look.broken:
        yield Suggestion(
            "Replace or remove the images that cannot be used",
            f"{_n(len(look.broken), 'image')} would be refused, for example {next(iter(look.broken))}",
            "--skip-broken",
        )
    if found := unlike_good_parts([image.name for image in look.images], look.source):
        yield Suggestion(
            "Learn from the good parts alone",
            f"{found[0]} does not sound like one: a fit refuses it, unless --all-good says otherwise",
        )
    depth = _depth(look)
    if odd := [image for image in look.images if (image.header.depth, image.frames) != depth]:
        yield Suggestion(
            "Keep images of one depth and one number of frames",
            f"most images are {depth[0]}, and a fit refuses {_n(len(odd), 'other')}, for example {odd[0].name}",
        )
    yield from odd_images(look.images, look.config.roi, look.config.sees_whole)
    folders = defaultdict[str, set[str]](set)
    for image in look.images:
        path = PurePath(image.name)
        folders[path.parent.as_posix()].add(path.name)
    if 2 <= len(folders) <= MOST_FRAMES and len({frozenset(names) for names in folders.values()}) == 1:
        yield Suggestion(
            "Are these frames of the same parts? Then take them together",
            f"{', '.join(folders)} hold images of the same names",
            f"--stack {' '.join(folders)}",
        )
    if look.duplicates:
        yield Suggestion(
            "Remove copies, or take fewer frames of a part",
            f"{len(look.images) - look.distinct} of {_n(len(look.images), 'image')} can hardly be told from another, "
            f"for example {' and '.join(look.duplicates[0][:2])}: copies cost time, and count once in the threshold",
            "--every 10" if any(image.header.stored == VIDEO for image in look.images) else "",
        )


def _about_views(look: Look) -> Iterator[Suggestion]:
    config = look.config
    ratio = float(np.median([max(image.header[:2]) / min(image.header[:2]) for image in look.images]))
    if ratio >= ELONGATED:
        yield from _about_shape(config, ratio)
    if config.tiled:
        return
    if look.pixels_per_pixel >= LARGE:
        tilings = (Size(TILE, TILE, zoom=zoom) for zoom in (1.0, 0.5, 0.25))
        tiles = next(size for size in tilings if _views(look, size) <= MOST_TILES or size.zoom <= 0.25)
        n, rows = _views(look, tiles), max(config.K, TILED_ROWS)
        zoomed = "full resolution" if tiles.zoom == 1 else f"{tiles.zoom:g} of the resolution"
        yield Suggestion(
            "See small defects in tiles, with a larger bank",
            f"a pixel of the finest view shows {look.shown_by_a_pixel}; {n} tiles for an image show them at {zoomed}, "
            f"and what is normal but rare on them takes {rows:,} rows. Scoring takes some "
            f"{n * rows // config.K:,} times as long",
            f"--size {tiles} -K {rows}",
        )
    elif look.pixels_per_pixel < 0.5:
        height, width = look.sizes.most_common(1)[0][0]
        yield Suggestion(
            "Take smaller views",
            f"most images have {width} × {height} pixels: larger views take time and show nothing more",
            "--size 224",
        )


def _about_shape(config: Config, ratio: float) -> Iterator[Suggestion]:
    views = " and ".join(f"{size.width} × {size.height}" for size in config.sizes if not size.zoom)
    times = f"{ratio:,.0f}" if ratio >= 10 else f"{ratio:.2g}"
    longer = f"one side is {times} times the other"
    if config.resize is not None:
        hidden = f"the crop leaves {1 - 1 / ratio:.0%} of it and more unseen"
        yield Suggestion("See the whole image", hidden, "without --resize")
    elif config.aspect == "stretch":
        why = f"{longer}, and squares squeeze it: thin defects vanish"
        yield Suggestion("Keep the shape of the images", why, "--aspect keep")
    elif ratio > MOST_ASPECT and views:
        yield Suggestion(
            "Cut the images, or see them in tiles",
            f"{longer}; views are at most {MOST_ASPECT:g} times as long ({views} pixels), so images are squeezed",
            f"--size tile:{TILE}",
        )
    elif views:
        yield Suggestion("The shape of the images is kept", f"{longer}, and views have {views} pixels")


def _about_values(look: Look) -> Iterator[Suggestion]:
    window, largest = look.config.window, int(look.edges[-1])
    if isinstance(window, Window) and not window.is_plain:
        bits = ceil(log2(largest + 1)) if window.depth == "16-bit" and largest >= 1 else 16
        used = f"values use {bits} of 16 bits" if bits < 16 else f"the images are {window.depth}"
        yield Suggestion(
            f"Black at {window.low:.6g}, white at {window.high:.6g}",
            f"{used}; this window would be learnt from the images and kept with the model. Give your own if models of "
            "several cameras are to be compared",
            f"--window {window}",
        )


def _about_number(look: Look) -> Iterator[Suggestion]:
    config, n = look.config, min(look.distinct, look.config.calibration_images)
    if config.calibration == "none":
        return
    if look.distinct == 1:
        yield Suggestion(
            "Give further good parts for the threshold",
            "one image alone gives none: a model of it scores images, but judges none (`mhpatchcore calibrate`)",
        )
    elif n < FEW:
        yield Suggestion(
            "Give more images, or accept more false alarms",
            f"{_n(n, 'image')} that differ leave much open: the threshold for a rate of {config.false_alarm:.2%} "
            "has to lie far beyond their scores, and defects pass below it",
            "--false-alarm 5%",
        )


def _depth(look: Look) -> tuple[str, int]:
    """Depth and frames of most images: a fit goes by them."""
    window = look.config.window
    return (window.depth, window.frames) if isinstance(window, Window) else ("8-bit", 1)


def _views(look: Look, size: Size) -> int:
    """How many tiles the typical image has."""
    (view,) = Config(sizes=(size,)).views
    return int(np.median([view.count(*image.header[:2]) for image in look.images]))


def _n(n: int, thing: str) -> str:
    return f"{n} {thing}" if n == 1 else f"{n} {thing}s"
