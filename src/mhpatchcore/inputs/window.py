"""The window: which values of an image are black and white.

Cameras give 10, 12 or 14 bits in files of 16, and floating-point numbers have no range at all. The window is learnt
from the normal images or given, kept with the model, and used for every later image: values from `low` to `high`
become 0 to 255, what lies beyond is black or white. Images of 8 bits are taken as they are.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, floor, isfinite, log10
from numbers import Real
from typing import Any, NamedTuple

import numpy as np
from PIL import Image

from mhpatchcore.errors import ImageError, UserError
from mhpatchcore.inputs.decode import Decoded, decoded, header_of
from mhpatchcore.inputs.deep import DEPTHS
from mhpatchcore.inputs.sources import ImageLike, spread, told
from mhpatchcore.inputs.stacks import MOST_FRAMES
from mhpatchcore.runtime.arrays import Array, Doubles

AUTO = "auto"
SAMPLE = 64  # images that the window is learnt from
SAMPLED_PIXELS = 2**18  # of each of them, evenly spread
# percent of an image's values below and above the window, and of the images whose values may lie beyond
TAIL, ODD_IMAGES = 0.1, 5
NO_WIDTH = 1e-30
REACH = 4  # rows of the result that any filter looks beyond a box
MARGIN = 0.02  # of the range, beyond it at both ends; with 0.05 dark grounds turn gray and fewer defects were found


class Window(NamedTuple):
    """Values from `low` to `high` become 0 to 255, in images of one depth and number of frames.

    Until images have been seen the depth is not known ("").

    >>> print(Window(100, 4000, "16-bit"))
    100,4000
    """

    low: float
    high: float
    depth: str = ""
    frames: int = 1

    def __str__(self) -> str:
        return f"{self.low:.12g},{self.high:.12g}"

    @property
    def is_plain(self) -> bool:
        """Whether values stay as they are."""
        return (self.low, self.high, self.depth) == (0, 255, "8-bit")

    @property
    def note(self) -> str:
        """What kind of images it is for, and what it does with them.

        >>> Window(100, 4000, "16-bit", 2).note
        '16-bit, black at 100, white at 4000, stacks of 2 frames'
        """
        shown = "" if self.is_plain else f", black at {self.low:.6g}, white at {self.high:.6g}"
        return f"{self.depth}{shown}" + (f", stacks of {self.frames} frames" if self.frames > 1 else "")

    def check(self, image: Decoded, name: str) -> None:
        """Refuse an image that is not of the kind that the window is for."""
        if self.depth not in ("", image.depth):
            raise ImageError(
                f"image {name} is {image.depth}, and the model is for {self.depth} images: convert it, or fit "
                "a model on images like it"
            )
        if self.depth and image.frames not in (None, self.frames):
            raise ImageError(
                f"image {name} is {_frames(image.frames)}, and the model is for {_frames(self.frames)}: "
                "give it such images (frames of one part together are a stack)"
            )

    def applied(self, values: Array) -> Array:
        """Values (H, W, …) → 0 to 255, float32."""
        kind = np.float32 if values.dtype.itemsize <= 2 else np.float64
        result = np.subtract(values, kind(self.low), dtype=kind)
        result *= kind(255 / (self.high - self.low))
        np.clip(result, 0, 255, out=result)
        return result.astype(np.float32, copy=False)


EIGHT_BIT = Window(0, 255, "8-bit")


@dataclass(frozen=True, eq=False)
class Picture:
    """An image with values in 0..255: one band of Pillow in mode L or RGB, three in mode L, or one or three in mode F.

    It may have been decoded `reduced` times smaller than it is; height and width are its full size.
    """

    bands: tuple[Image.Image, ...]
    reduced: int
    height: int
    width: int

    def resized(
        self,
        height: int,
        width: int,
        box: tuple[float, float, float, float] | None = None,
        resample: Image.Resampling = Image.Resampling.BILINEAR,
    ) -> Array:
        """A box (top, left, bottom, right) of the full image, or all of it, as (height, width, 3)."""
        top, left, bottom, right = box or (0, 0, self.height, self.width)
        within = (left / self.reduced, top / self.reduced, right / self.reduced, bottom / self.reduced)
        small = [np.asarray(_resized(band, height, width, within, resample)) for band in self.bands]
        return three_channels(small[0] if len(small) == 1 else np.stack(small, axis=2))

    def pixels(self) -> Array:
        """All of it as it was decoded, (h, w, 3)."""
        bands = [np.asarray(band) for band in self.bands]
        return three_channels(bands[0] if len(bands) == 1 else np.stack(bands, axis=2))


def _resized(
    band: Image.Image,
    height: int,
    width: int,
    box: tuple[float, float, float, float],
    resample: Image.Resampling,
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


def pictured(image: Decoded, window: Window | None, name: str) -> Picture:
    """A decoded image as the window shows it; without one 8 bits as they are, and others by their own values."""
    if window is None:
        window = EIGHT_BIT if image.depth == "8-bit" else around([_percentiles(image)])
    else:
        window.check(image, name)
    size = (image.reduced, image.height, image.width)
    if isinstance(image.values, Image.Image) and window.is_plain:
        return Picture((image.values,), *size)
    values = np.asarray(image.values)
    shown = values if window.is_plain else window.applied(values)
    planes = [shown] if shown.ndim == 2 else [np.ascontiguousarray(shown[:, :, i]) for i in range(3)]
    bands = tuple(map(Image.fromarray, planes))
    for band in bands:
        band.readonly = 0  # the memory is our own, and may be painted over
    return Picture(bands, *size)


def load_pixels(source: ImageLike, window: Window | None = None) -> Array:
    """The original image as (H, W, 3) uint8, for drawing on; see `pictured`."""
    pixels = pictured(decoded(source), window, told(source)).pixels()
    return pixels if pixels.dtype == np.uint8 else np.rint(pixels).astype(np.uint8)


def three_channels(pixels: Array) -> Array:
    """(H, W) or (H, W, 3) → (H, W, 3)."""
    return np.repeat(pixels[:, :, None], 3, axis=2) if pixels.ndim == 2 else pixels


def learnt_window(images: Sequence[ImageLike], window: Window | str = AUTO) -> Window:
    """The window for images like these, of which a spread sample is looked at; a given one learns their depth.

    The depth is that of most of them: others are refused when they are read. Images that cannot be read do not
    count here: whether they matter is for who reads them to say.
    """
    some = [images[i] for i in spread(len(images), SAMPLE)]
    headers = [
        (image, header) for image, header in ((one, header_of(one)) for one in some) if header is not None
    ]
    if not headers:
        return EIGHT_BIT if isinstance(window, str) else window
    kinds = Counter((header.depth, header.frames or 1) for _, header in headers)
    depth, frames = kinds.most_common(1)[0][0]
    if isinstance(window, Window):
        return Window(window.low, window.high, depth, frames)
    if depth == "8-bit":
        return EIGHT_BIT._replace(frames=frames)
    percentiles = []
    for image, header in headers:
        if header.depth == depth:
            try:
                percentiles.append(_percentiles(decoded(image)))
            except ImageError:
                continue
    return around(percentiles)._replace(depth=depth, frames=frames)


def around(percentiles: Sequence[Doubles]) -> Window:
    """The window of images whose values lie between these, (2,) of each; that of one value alone has some width.

    Its ends are round numbers, which can be typed: a thousandth of the window does not matter.

    >>> print(around([np.array([200.3, 2750.9])]), around([np.array([0.0, 0.87])]))
    149,2802 -0.0174,0.8874
    """
    lows, highs = np.array(percentiles).T if percentiles else np.zeros((2, 1))
    low, high = float(np.percentile(lows, ODD_IMAGES)), float(np.percentile(highs, 100 - ODD_IMAGES))
    margin = MARGIN * (high - low) if high - low > NO_WIDTH else 0.5
    digits = 3 - floor(log10(high - low + 2 * margin))
    return Window(round(low - margin, digits), round(high + margin, digits))


def _percentiles(image: Decoded) -> Doubles:
    """The values that all but a few of an image's lie between, (2,)."""
    values = np.asarray(image.values)
    step = ceil((values.shape[0] * values.shape[1] / SAMPLED_PIXELS) ** 0.5)
    low, high = np.percentile(values[::step, ::step], [TAIL, 100 - TAIL])
    return np.array([low, high], np.float64)


def parse_window(value: Any) -> Window | str:
    """A window from a text or a list; "auto" is learnt.

    >>> parse_window("100, 4000"), parse_window("auto")
    (Window(low=100.0, high=4000.0, depth='', frames=1), 'auto')
    """
    if value == AUTO:
        return AUTO
    parts = value.split(",") if isinstance(value, str) else value
    try:
        low, high, *kind = parts
        if any(isinstance(one, bool) or not isinstance(one, Real | str) for one in (low, high)):
            raise TypeError
        window = Window(float(low), float(high), *kind)
    except (TypeError, ValueError):
        raise UserError(
            f"window is auto or two values, black and white, such as 0,4095; not {value!r}"
        ) from None
    if not (isfinite(window.low) and isfinite(window.high) and window.high - window.low > NO_WIDTH):
        raise UserError(f"window wants the lower value first, such as 0,4095; not {value!r}")
    if window.depth not in ("", *DEPTHS) or window.frames not in range(1, MOST_FRAMES + 1):
        raise UserError(f"window is for images of {', '.join(DEPTHS)}, not {value!r}")
    return window


def _frames(n: int | None) -> str:
    return "one frame" if n in (None, 1) else f"a stack of {n} frames"
