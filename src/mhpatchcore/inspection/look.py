"""A look before the fit: what the images are, and what the network will see of them.

Every image is decoded as a fit does it, so what a fit would refuse is found here, with the same reasons. Nothing is
learnt, and no network is needed.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from mhpatchcore.config import Config
from mhpatchcore.errors import ImageError
from mhpatchcore.fitting.fit import shaped
from mhpatchcore.inputs.checks import Seen
from mhpatchcore.inputs.decode import decoded, header_of
from mhpatchcore.inputs.files import is_frame
from mhpatchcore.inputs.loading import LoadedImage, load_image
from mhpatchcore.inputs.sources import Gathered, ImageLike, fetched, spread
from mhpatchcore.inputs.views import whole_view
from mhpatchcore.inputs.window import SAMPLE, learnt_window
from mhpatchcore.model.duplicates import near_duplicate_groups, thumbnail
from mhpatchcore.runtime.arrays import Doubles, Floats, Indices
from mhpatchcore.runtime.parallel import ordered_map

CELL = 8  # pixels of a view for a patch, with most networks
VALUES = 4096  # of each image that the histogram is made of
BINS = 128


@dataclass(frozen=True, eq=False)
class Glance(Seen):
    """What one image is, and how many views each scale has of it."""

    views: tuple[int, ...]
    thumbnail: Floats = field(repr=False)

    @property
    def kind(self) -> str:
        stack = f", stack of {self.frames} frames" if self.frames > 1 else ""
        return f"{self.header.stored}, {self.header.depth}{stack}"

    @property
    def frames(self) -> int:
        return self.header.frames or 1

    def to_json(self) -> dict[str, Any]:
        return {"name": self.name, **self.header._asdict(), "frames": self.frames, "views": self.views}


@dataclass(frozen=True)
class Broken:
    """An image that a fit would refuse, and why."""

    name: str
    why: str


@dataclass(frozen=True, eq=False)
class Histogram:
    """How often values occur in a sample of the images: counts (n,) between edges (n + 1,), and the largest value."""

    counts: Indices
    edges: Doubles
    largest: float


@dataclass(frozen=True, eq=False)
class Look:
    """What a look at some images has found; `config` are the settings that a fit would go by, window and sizes found.

    `duplicates` are groups of images that show the same.
    """

    source: str
    images: tuple[Glance, ...]
    broken: tuple[Broken, ...]
    duplicates: tuple[tuple[str, ...], ...]
    values: Histogram
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

    def to_json(self) -> dict[str, Any]:
        return {
            "source": self.source,
            "images": [image.to_json() for image in self.images],
            "broken": {one.name: one.why for one in self.broken},
            "sizes": {f"{width} × {height}": n for (height, width), n in self.sizes.most_common()},
            "kinds": dict(self.kinds.most_common()),
            "duplicates": [list(group) for group in self.duplicates],
            "histogram": {"counts": self.values.counts.tolist(), "edges": self.values.edges.tolist()},
            "views": [str(size) for size in self.config.sizes],
            "window": str(self.config.window),
            "pixels_per_pixel": self.pixels_per_pixel,
        }


def look(
    given: Gathered,
    config: Config,
    workers: int = 1,
    progress: Callable[[str, int, int], None] | None = None,
) -> Look:
    """Look at images that are to be learnt from with these settings."""
    config = shaped(config, given.images).with_changes(window=learnt_window(given.images, config.window))
    images, broken = list[Glance](), list[Broken]()
    named = list(zip(given.images, given.names, strict=True))
    for done, one in enumerate(ordered_map(partial(_glance, config), named, workers), start=1):
        (images if isinstance(one, Glance) else broken).append(one)  # type: ignore[arg-type]
        if progress is not None:
            progress("look", done, len(named))
    if not images:
        raise ImageError(f"none of the images can be read: {broken[0].why}")
    some = [images[i] for i in spread(len(images), SAMPLE)]
    return Look(given.source, tuple(images), tuple(broken), _duplicates(images), _histogram(some), config)


def _glance(config: Config, named: tuple[ImageLike, str]) -> Glance | Broken:
    source, name = named
    try:
        made = fetched(source)
        image = load_image(made, config.views, config.roi.of(source) if config.roi else None)
        views = tuple(
            len(image.placed(view, (view.height // CELL, view.width // CELL))) for view in config.views
        )
        small = _thumbnail(image, config)
        is_video = isinstance(source, str | Path) and is_frame(source)
        header = header_of(source if is_video else made)
        assert header is not None  # it has just been decoded
        height, width = image.size
        return Glance(name, source, header._replace(height=height, width=width), views, small)
    except ImageError as error:
        return Broken(name, str(error))


def _thumbnail(image: LoadedImage, config: Config) -> Floats:
    """The one by which a fit tells near-duplicates."""
    whole = whole_view(config.views)
    return thumbnail(image.pixels(whole, whole.geometry(*image.size)))


def _duplicates(images: Sequence[Glance]) -> tuple[tuple[str, ...], ...]:
    groups: defaultdict[int, list[str]] = defaultdict(list)
    found = near_duplicate_groups(np.stack([image.thumbnail for image in images]))
    for image, group in zip(images, found.tolist(), strict=True):
        groups[group].append(image.name)
    return tuple(tuple(names) for names in groups.values() if len(names) > 1)


def _histogram(images: Sequence[Glance]) -> Histogram:
    """Of the values as they are in the files, before the window."""
    values = []
    for image in images:
        every = np.asarray(decoded(image.source).values).ravel()
        values.append(every[:: max(1, every.size // VALUES)].astype(np.float64))
    together = np.concatenate(values)
    counts, edges = np.histogram(together, BINS)
    return Histogram(counts, edges, float(together.max()))
