"""The window: which values of an image are black and white.

Cameras give 10, 12 or 14 bits in files of 16, and floating-point numbers have no range at all. The window is learnt
from the normal images or given, kept with the model, and used for every later image: values from `low` to `high`
become 0 to 255, what lies beyond is black or white. Images of 8 bits are taken as they are.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from math import ceil, floor, isfinite, log10
from typing import Any, NamedTuple

import numpy as np

from mhpatchcore.errors import ImageError, UserError
from mhpatchcore.inputs.decode import Decoded, decoded, header_of
from mhpatchcore.inputs.files import MOST_FRAMES
from mhpatchcore.inputs.pixels import DEPTHS
from mhpatchcore.inputs.sources import ImageLike, spread
from mhpatchcore.runtime.arrays import Array, Doubles

AUTO = "auto"
SAMPLE = 64  # images that the window is learnt from
SAMPLED_PIXELS = 2**18  # of each of them, evenly spread
# percent of an image's values below and above the window, and of the images whose values may lie beyond
TAIL, ODD_IMAGES = 0.1, 5
NO_WIDTH = 1e-30
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
            given, wanted = (
                "one frame" if n == 1 else f"a stack of {n} frames" for n in (image.frames, self.frames)
            )
            raise ImageError(
                f"image {name} is {given}, and the model is for {wanted}: "
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


def learnt_window(images: Sequence[ImageLike], window: Window | str = AUTO) -> Window:
    """The window for images like these, of which a spread sample is looked at; a given one learns their depth.

    The depth is that of most of them: others are refused when they are read. Images that cannot be read do not
    count here: they are reported when they are read.
    """
    some = [images[i] for i in spread(len(images), SAMPLE)]
    known = [(image, header) for image in some if (header := header_of(image)) is not None]
    if not known:
        return EIGHT_BIT if isinstance(window, str) else window
    kinds = Counter((header.depth, header.frames or 1) for _, header in known)
    depth, frames = kinds.most_common(1)[0][0]
    if isinstance(window, Window):
        return window._replace(depth=depth, frames=frames)
    if depth == "8-bit":
        return EIGHT_BIT._replace(frames=frames)
    percentiles = []
    for image in (image for image, header in known if header.depth == depth):
        with suppress(ImageError):
            percentiles.append(_percentiles(decoded(image)))
    return _around(percentiles)._replace(depth=depth, frames=frames)


def own_window(image: Decoded) -> Window:
    """What an image is shown by where no window is given: 8 bits as they are, others by their own values."""
    return EIGHT_BIT if image.depth == "8-bit" else _around([_percentiles(image)])


def _around(percentiles: Sequence[Doubles]) -> Window:
    """The window of images whose values lie between these, (2,) of each; that of one value alone has some width.

    Its ends are round numbers, which can be typed: a thousandth of the window does not matter.

    >>> print(_around([np.array([200.3, 2750.9])]), _around([np.array([0.0, 0.87])]))
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
    try:
        low, high, *kind = value.split(",") if isinstance(value, str) else value
        window = Window(float(low), float(high), *kind)
        ordered = isfinite(window.low) and isfinite(window.high) and window.high - window.low > NO_WIDTH
        if ordered and window.depth in ("", *DEPTHS) and window.frames in range(1, MOST_FRAMES + 1):
            return window
    except (TypeError, ValueError):
        pass
    raise UserError(
        f"window is auto or two values, black and white, the lower value first, such as 0,4095; not {value!r}"
    )
