"""An image that has been loaded: decoded once, for all its views, with values in 0..255 as the window shows them.

What it says about the camera that took it is measured on a view that is made anyway. No measure follows from another:
contrast is relative to brightness, sharpness and noise to contrast, red and blue to green. So a lamp that fades changes
the brightness alone. Where the part lies is the centre of its edges, those of a texture aside, which lies nowhere.

How much memory loading takes is estimated from the header alone, by bytes per pixel that were measured for each kind of
file (`tests/inputs/test_footprint.py` measures them again).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import ceil, floor, prod
from pathlib import Path

import numpy as np
from PIL import Image

from mhpatchcore.errors import ImageError
from mhpatchcore.inputs.decode import Decoded, decoded, open_image
from mhpatchcore.inputs.files import frames_of, is_frame
from mhpatchcore.inputs.pixels import BRIGHTNESS, ORIENTATION, depth_of, frame_size
from mhpatchcore.inputs.regions import Area, Extent, Roi
from mhpatchcore.inputs.sources import ImageLike, describe
from mhpatchcore.inputs.views import EVERY_TURN, MOST_TILES, Geometry, Placed, Turn, View, reduction, views_of
from mhpatchcore.inputs.window import Window, own_window
from mhpatchcore.runtime.arrays import Array, Floats, Mask

OUTSIDE = 128  # what is seen outside of the region of interest, and beyond the image's edges
STRIP = 2**22  # pixels that are painted over at a time
REACH = 4  # rows of the result that any filter looks beyond a box
PLAIN = {"L": 2, "RGB": 5}  # 8 bits; Pillow keeps three channels in 4 bytes
CONVERTED = 9  # a second time: palettes, transparency, other colours become three channels; images are turned
BY_FORMAT = {"WEBP": 17, "JPEG2000": 20, "AVIF": 12}
VIDEO = 12
COEFFICIENTS = 7  # of a progressive JPEG
DEEP_GRAY, DEEP_COLOUR = 17, 44  # through a window: as integers, as floats, and once more as an image

MEASURES = ("brightness", "contrast", "sharpness", "noise", "red", "blue", "part_x", "part_y")
EVERY = 3  # so many rows there are for one in which steps are measured
SHARPEST = 0.99  # the share of steps that are smaller than those of the sharpest edges
FLAT = 0.75  # the share of an image in which there is more noise than structure
CELL = 4  # pixels of the view, the side of a cell in which edges are sought: noise has little of them
EDGE = 2  # times the median step between cells
TEXTURE = 1.2  # n Σ p² of the shares p of edges in n columns: 1 if all are equal; textures have at most 1.05


@dataclass(frozen=True, eq=False)
class LoadedImage:
    """An image with values in 0..255: one band of Pillow in mode L or RGB, three in mode L, or one or three in mode F.

    It may have been decoded `reduced` times smaller than it is; height and width are its full size. Outside of its
    region of interest, `area`, it is gray.
    """

    bands: tuple[Image.Image, ...]
    reduced: int
    height: int
    width: int
    name: str
    area: Area | None = None

    @property
    def size(self) -> tuple[int, int]:
        """Height and width of the original image."""
        return self.height, self.width

    def placed(self, view: View, grid: tuple[int, int]) -> list[Placed]:
        """The views that show some of the region of interest, with grids of so many rows and columns of patches."""
        tall, wide = self.size
        count = view.count(tall, wide)
        if count > MOST_TILES:
            raise ImageError(
                f"image {self.name} ({wide} × {tall} pixels) has {count} tiles, too many: take larger ones"
            )
        found = views_of(self.size, view, grid, self.area)
        if found:
            return found
        raise ImageError(
            f"the region of interest leaves nothing of image {self.name} ({wide} × {tall} pixels): "
            "give a larger one, or larger views"
        )

    def copies(self, view: View, grid: tuple[int, int], turns: Sequence[Turn]) -> list[Placed]:
        """The views, turned in each of these ways."""
        count, found = view.count(*self.size), self.placed(view, grid)
        every = [one.turned(turn, EVERY_TURN.index(turn) * count) for turn in turns for one in found]
        return [one for one in every if one.inside is None or one.inside.any()]

    def shown(self, view: View, placed: Placed) -> Array:
        """What a view, or a turned copy of it, shows: (height, width, 3)."""
        return placed.turn.pixels(self.pixels(view, placed.where), placed.where.sides)

    def pixels(self, view: View, where: Geometry) -> Array:
        """What the view shows there, (height, width, 3)."""
        bottom, right = min(where.bottom, self.height), min(where.right, self.width)
        tall = max(1, round(view.height * (bottom - where.top) / (where.bottom - where.top)))
        wide = max(1, round(view.width * (right - where.left) / (where.right - where.left)))
        try:
            seen = self.resized(tall, wide, (where.top, where.left, bottom, right))
        except (OSError, ValueError) as error:
            raise ImageError(f"cannot read image {self.name}: {error}; replace or remove it") from error
        beyond = ((0, view.height - tall), (0, view.width - wide), (0, 0))
        is_whole = (tall, wide) == (view.height, view.width)
        return seen if is_whole else np.pad(seen, beyond, constant_values=OUTSIDE)

    def resized(
        self,
        height: int,
        width: int,
        box: Extent | None = None,
        resample: Image.Resampling = Image.Resampling.BILINEAR,
    ) -> Array:
        """A box of the full image, or all of it, as (height, width, 3)."""
        top, left, bottom, right = box or (0, 0, self.height, self.width)
        within = (left / self.reduced, top / self.reduced, right / self.reduced, bottom / self.reduced)
        return _joined([_resized(band, height, width, within, resample) for band in self.bands])

    def measures(self, view: View, pixels: Array) -> Floats:
        """What a view of the whole image, and the pixels that it shows, say about the camera: (m,)."""
        box = view.geometry(*self.size).box
        inside = None if self.area is None else self.area.over(box, view.height, view.width, self.size)
        return image_measures(pixels, box, inside)


def load_image(source: ImageLike, views: Sequence[View], roi: Roi | None = None) -> LoadedImage:
    """An image, decoded for these views."""
    area = None if roi is None else roi.of(source)
    image = apply_window(decoded(source, partial(reduction, views)), views[0].window, describe(source))
    return image if area is None else _painted(image, area)


def apply_window(image: Decoded, window: Window | None, name: str) -> LoadedImage:
    """A decoded image as the window shows it; without one 8 bits as they are, and others by their own values."""
    if window is not None:
        window.check(image, name)
    window = window or own_window(image)
    bands: tuple[Image.Image, ...]
    if isinstance(image.values, Image.Image) and window.is_plain:
        bands = (image.values,)
    else:
        values = np.asarray(image.values)
        shown = values if window.is_plain else window.applied(values)
        planes = [shown] if shown.ndim == 2 else [np.ascontiguousarray(shown[:, :, i]) for i in range(3)]
        bands = tuple(map(Image.fromarray, planes))
        for band in bands:
            band.readonly = 0  # the memory is our own, and may be painted over
    return LoadedImage(bands, image.reduced, image.height, image.width, name)


def load_pixels(source: ImageLike, window: Window | None = None) -> Array:
    """The original image as (H, W, 3) uint8, for drawing on; see `apply_window`."""
    pixels = _joined(apply_window(decoded(source), window, describe(source)).bands)
    return pixels if pixels.dtype == np.uint8 else np.rint(pixels).astype(np.uint8)


Views = list[tuple[Array, Geometry]]  # the pixels (H, W, 3) of each, and where it lies


def load_views(source: ImageLike, views: Sequence[View], roi: Roi | None = None) -> Views:
    image = load_image(source, views, roi)
    return [(image.pixels(view, where), where) for view in views for where in view.geometries(*image.size)]


def middle_view(source: ImageLike, view: View, roi: Roi | None = None) -> Array:
    """The pixels (H, W, 3) of an image's only view, or of the tile in its middle."""
    image = load_image(source, [view], roi)
    every = view.geometries(*image.size)
    return image.pixels(view, every[len(every) // 2])


def _joined(bands: Sequence[Image.Image]) -> Array:
    """The values of one or three bands as (h, w, 3)."""
    values = [np.asarray(band) for band in bands]
    return values[0] if values[0].ndim == 3 else np.stack(values * (3 // len(values)), axis=2)


def _resized(
    band: Image.Image, height: int, width: int, box: Extent, resample: Image.Resampling
) -> Image.Image:
    """A box (left, top, right, bottom) at another size: columns first, then rows.

    Pillow rounds in between, and since version 13 begins with the rows where that is less work: of an image that
    is much taller than wide. The same image then had other pixels, and scores, in another version.
    """
    if band.height - height <= max(0, 2 * (band.width - width)):
        return band.resize((width, height), resample, box=box)
    left, top, right, bottom = box
    reach = REACH * max(1, (bottom - top) / height)
    first, last = max(0, floor(top - reach)), min(band.height, ceil(bottom + reach))
    rows = band if last - first == band.height else band.crop((0, first, band.width, last))
    narrow = rows.resize((width, rows.height), resample, box=(left, 0, right, rows.height))
    return narrow.resize((width, height), resample, box=(0, top - first, width, bottom - first))


def _painted(image: LoadedImage, area: Area) -> LoadedImage:
    """An image with everything outside of an area painted over: before it is resized, which mixes pixels."""
    bands = tuple(band.copy() if band.readonly else band for band in image.bands)
    for band in bands:
        rows = max(1, STRIP // band.width)
        for top in range(0, band.height, rows):
            bottom = min(top + rows, band.height)
            box = (top * image.reduced, 0, bottom * image.reduced, band.width * image.reduced)
            inside = area.over(box, bottom - top, band.width, image.size)
            colour = (OUTSIDE,) * len(band.getbands())
            band.paste(colour, (0, top, band.width, bottom), Image.fromarray(~inside))
    return replace(image, bands=bands, area=area)


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
    rows, columns = (side // CELL for side in gray.shape)
    cells = gray[: rows * CELL, : columns * CELL].reshape(rows, CELL, columns, CELL).mean(axis=(1, 3))
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
    sizes = np.abs(_known(values))
    count = int(share * sizes.size)
    return np.partition(sizes, count)[:count] if sizes.size else sizes


def _known(values: Floats) -> Floats:
    finite = np.isfinite(values)
    return values.ravel() if finite.all() else values[finite]


def largest_decoding(images: Iterable[ImageLike], views: Sequence[View]) -> tuple[int, str]:
    """The most bytes that decoding one of these images takes, and the image; those that cannot be read do not count."""
    return max(((decoding_bytes(image, views), describe(image)) for image in images), default=(0, ""))


def decoding_bytes(source: ImageLike, views: Sequence[View]) -> int:
    """Bytes that decoding an image for these views takes at most; 0 where its header cannot be read."""
    is_plain = views[0].window.is_plain
    try:
        if isinstance(source, np.ndarray):
            deep = DEEP_GRAY if source.ndim == 2 else DEEP_COLOUR
            return (CONVERTED if source.dtype == np.uint8 and is_plain else deep) * prod(source.shape[:2])
        if not isinstance(source, str | Path):  # it is made when it is needed, by the user's own function
            return 0
        if is_frame(source):
            return VIDEO * prod(frame_size(source))
        names = frames_of(source)
        if names:  # the frames of a stack are decoded one after the other, and kept
            return sum(decoding_bytes(name, views) for name in names)
        with open_image(source, whole=False) as image:
            pixels = prod(image.size)
            if depth_of(image) != "8-bit" or not is_plain:
                return (
                    DEEP_GRAY if image.mode.partition(";")[0] in ("F", "I", "L") else DEEP_COLOUR
                ) * pixels
            upright = image.getexif().get(ORIENTATION, 1) == 1
            plain = PLAIN.get(image.mode, CONVERTED) if upright else CONVERTED
            if image.format != "JPEG":
                return BY_FORMAT.get(image.format or "", plain) * pixels
            # one that is decoded smaller takes as many times less; a progressive one holds its coefficients first
            times = reduction(views, image.height, image.width) if upright else 1
            return plain * pixels // times**2 + COEFFICIENTS * pixels * ("progressive" in image.info)
    except Exception:  # whoever reads it reports what is wrong with it
        return 0
