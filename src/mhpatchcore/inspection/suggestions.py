"""The settings that a look suggests, each with its reason. Nothing is decided here: an engineer does."""

from __future__ import annotations

from collections.abc import Iterator
from math import ceil, log2
from pathlib import PurePath

import numpy as np

from mhpatchcore.config import Config, Size
from mhpatchcore.inputs.checks import Suggestion, odd_images, unlike_good_parts
from mhpatchcore.inputs.decode import VIDEO
from mhpatchcore.inputs.files import MOST_FRAMES
from mhpatchcore.inputs.views import MOST_ASPECT
from mhpatchcore.inputs.window import Window
from mhpatchcore.inspection.look import Look

LARGE = 4.0  # pixels of the image, each way, behind one of the finest view
TILE = 512
MOST_TILES = 64  # of an image, that are suggested
TILED_ROWS = 20_000  # of a bank that covers tiles; with the whole image beside them fewer defects stood out
ELONGATED = 1.25
FEW = 20  # images, below which the threshold lies far beyond their scores


def suggestions(look: Look) -> list[Suggestion]:
    """What an engineer should know before a fit, the gravest first."""
    rules = (
        *(_broken, _defects, _kinds, _odd, _frames, _duplicates),
        *(_shape, _large, _small, _window, _few),
    )
    return [one for rule in rules for one in rule(look)]


def _broken(look: Look) -> Iterator[Suggestion]:
    if look.broken:
        yield Suggestion(
            "Replace or remove the images that cannot be used",
            f"{_n(len(look.broken), 'image')} would be refused, for example {look.broken[0].name}",
            "--skip-broken",
        )


def _defects(look: Look) -> Iterator[Suggestion]:
    found = unlike_good_parts([image.name for image in look.images], look.source)
    if found:
        yield Suggestion(
            "Learn from the good parts alone",
            f"{found[0]} does not sound like one: a fit refuses it, unless --all-good says otherwise",
        )


def _kinds(look: Look) -> Iterator[Suggestion]:
    odd = [image for image in look.images if (image.header.depth, image.frames) != _depth(look)]
    if odd:
        yield Suggestion(
            "Keep images of one depth and one number of frames",
            f"most images are {_depth(look)[0]}, and a fit refuses {_n(len(odd), 'other')}, for example {odd[0].name}",
        )


def _frames(look: Look) -> Iterator[Suggestion]:
    folders: dict[str, set[str]] = {}
    for image in look.images:
        path = PurePath(image.name)
        folders.setdefault(path.parent.as_posix(), set()).add(path.name)
    same = len({frozenset(names) for names in folders.values()}) == 1
    if same and 2 <= len(folders) <= MOST_FRAMES:
        yield Suggestion(
            "Are these frames of the same parts? Then take them together",
            f"{', '.join(folders)} hold images of the same names",
            f"--stack {' '.join(folders)}",
        )


def _duplicates(look: Look) -> Iterator[Suggestion]:
    if look.duplicates:
        more = len(look.images) - look.distinct
        yield Suggestion(
            "Remove copies, or take fewer frames of a part",
            f"{more} of {_n(len(look.images), 'image')} can hardly be told from another, for example "
            f"{' and '.join(look.duplicates[0][:2])}: copies cost time, and count once in the threshold",
            "--every 10" if any(image.header.stored == VIDEO for image in look.images) else "",
        )


def _shape(look: Look) -> Iterator[Suggestion]:
    ratio = float(np.median(_ratios(look)))
    if ratio < ELONGATED:
        return
    views = " and ".join(f"{size.width} × {size.height}" for size in look.config.sizes if not size.zoom)
    if look.config.aspect == "stretch" and look.config.resize is None:
        yield Suggestion(
            "Keep the shape of the images",
            f"one side is {_times(ratio)} the other, and squares squeeze it: thin defects vanish",
            "--aspect keep",
        )
    elif look.config.resize is not None:
        yield Suggestion(
            "See the whole image",
            f"the crop leaves {1 - 1 / ratio:.0%} of it and more unseen",
            "without --resize",
        )
    elif ratio > MOST_ASPECT and views:
        yield Suggestion(
            "Cut the images, or see them in tiles",
            f"one side is {_times(ratio)} the other; views are at most {MOST_ASPECT:g} times as long as wide "
            f"({views} pixels), so images are squeezed",
            f"--size tile:{TILE}",
        )
    elif views:
        yield Suggestion(
            "The shape of the images is kept",
            f"one side is {_times(ratio)} the other, and views have {views} pixels",
        )


def _odd(look: Look) -> Iterator[Suggestion]:
    """What a fit warns of."""
    return odd_images(look.images, look.config.roi, look.config.sees_whole)


def _times(ratio: float) -> str:
    """
    >>> _times(2.5), _times(3000)
    ('2.5 times', '3,000 times')
    """
    return f"{ratio:,.0f} times" if ratio >= 10 else f"{ratio:.2g} times"


def shown_by_a_pixel(look: Look) -> str:
    """What a pixel of the finest view shows of an image."""
    side = f"{look.pixels_per_pixel:.2g}"
    return f"{side} × {side} pixels of the image"


def _large(look: Look) -> Iterator[Suggestion]:
    config = look.config
    if config.tiled or look.pixels_per_pixel < LARGE:
        return
    tiles = next(size for size in _tilings() if _views(look, size) <= MOST_TILES or size.zoom <= 0.25)
    n, rows = _views(look, tiles), max(config.K, TILED_ROWS)
    yield Suggestion(
        "See small defects in tiles, with a larger bank",
        f"a pixel of the finest view shows {shown_by_a_pixel(look)}; {n} tiles for an image show them{_zoomed(tiles)}, "
        f"and what is normal but rare on them takes {rows:,} rows. Scoring takes some "
        f"{n * rows // config.K:,} times as long",
        f"--size {tiles} -K {rows}",
    )


def _small(look: Look) -> Iterator[Suggestion]:
    if look.pixels_per_pixel < 0.5 and not look.config.tiled:
        height, width = look.sizes.most_common(1)[0][0]
        yield Suggestion(
            "Take smaller views",
            f"most images have {width} × {height} pixels: larger views take time and show nothing more",
            "--size 224",
        )


def _window(look: Look) -> Iterator[Suggestion]:
    window, (depth, _) = look.config.window, _depth(look)
    if not isinstance(window, Window) or window.is_plain:
        return
    bits = ceil(log2(look.values.largest + 1)) if depth == "16-bit" and look.values.largest >= 1 else 16
    used = f"values use {bits} of 16 bits" if bits < 16 else f"the images are {depth}"
    yield Suggestion(
        f"Black at {window.low:.6g}, white at {window.high:.6g}",
        f"{used}; this window would be learnt from the images and kept with the model. Give your own if models of "
        "several cameras are to be compared",
        f"--window {window}",
    )


def _few(look: Look) -> Iterator[Suggestion]:
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


def _ratios(look: Look) -> list[float]:
    """How many times the longer side of each image is the shorter one."""
    return [max(image.header[:2]) / min(image.header[:2]) for image in look.images]


def _depth(look: Look) -> tuple[str, int]:
    """Depth and frames of most images: a fit goes by them."""
    window = look.config.window
    return (window.depth, window.frames) if isinstance(window, Window) else ("8-bit", 1)


def _tilings() -> Iterator[Size]:
    return (Size(TILE, TILE, zoom=zoom) for zoom in (1.0, 0.5, 0.25))


def _views(look: Look, size: Size) -> int:
    """How many tiles the typical image has."""
    (view,) = Config(sizes=(size,)).views
    return int(np.median([view.count(*image.header[:2]) for image in look.images]))


def _zoomed(size: Size) -> str:
    return " at full resolution" if size.zoom == 1 else f" at {size.zoom:g} of the resolution"


def _n(n: int, thing: str) -> str:
    return f"{n} {thing}" if n == 1 else f"{n} {thing}s"
