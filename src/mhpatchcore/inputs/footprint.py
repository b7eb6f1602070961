"""How much memory decoding an image takes, estimated from its header alone.

Bytes per pixel while a file is decoded, converted and turned, measured for each kind of file with images of 12 million
pixels (`tests/inputs/test_footprint.py` measures them again). A JPEG that is decoded smaller takes as many times less;
a progressive one holds all of its coefficients first, at full size.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import prod
from pathlib import Path

import numpy as np
from PIL import Image

from mhpatchcore.inputs.decode import ORIENTATION, open_image
from mhpatchcore.inputs.deep import depth_of
from mhpatchcore.inputs.files import frames_of
from mhpatchcore.inputs.sources import ImageLike, describe
from mhpatchcore.inputs.video import frame_size, is_frame
from mhpatchcore.inputs.views import View, reduction

PLAIN = {"L": 2, "RGB": 5}  # 8 bits; Pillow keeps three channels in 4 bytes
CONVERTED = (
    9  # a second time: palettes, transparency and other colours become three channels, some images are turned
)
BY_FORMAT = {"WEBP": 17, "JPEG2000": 20, "AVIF": 12}
VIDEO = 12
COEFFICIENTS = 7  # of a progressive JPEG
DEEP_GRAY, DEEP_COLOUR = 17, 44  # through a window: as integers, as floats, and once more as an image


def largest_decoding(images: Iterable[ImageLike], views: Sequence[View]) -> tuple[int, str]:
    """The most bytes that decoding one of these images takes, and the image; those that cannot be read do not count."""
    return max(((decoding_bytes(image, views), describe(image)) for image in images), default=(0, ""))


def decoding_bytes(source: ImageLike, views: Sequence[View]) -> int:
    """Bytes that decoding an image for these views takes at most; 0 where its header cannot be read."""
    try:
        if isinstance(source, np.ndarray):
            plain = source.dtype == np.uint8 and views[0].window.is_plain
            return (CONVERTED if plain else DEEP_GRAY if source.ndim == 2 else DEEP_COLOUR) * prod(
                source.shape[:2]
            )
        if not isinstance(source, str | Path):  # it is made when it is needed, by the user's own function
            return 0
        if is_frame(source):
            return VIDEO * prod(frame_size(source))
        names = frames_of(source)
        if names:  # the frames of a stack are decoded one after the other, and kept
            return sum(decoding_bytes(name, views) for name in names)
        with open_image(source, whole=False) as image:
            return _bytes_of(image, views)
    except Exception:  # whoever reads it reports what is wrong with it
        return 0


def _bytes_of(image: Image.Image, views: Sequence[View]) -> int:
    pixels = image.width * image.height
    if depth_of(image) != "8-bit" or not views[0].window.is_plain:
        gray = image.mode in ("F", "I", "L") or image.mode.startswith("I;16")
        return (DEEP_GRAY if gray else DEEP_COLOUR) * pixels
    upright = image.getexif().get(ORIENTATION, 1) == 1
    plain = PLAIN.get(image.mode, CONVERTED) if upright else CONVERTED
    if image.format == "JPEG":
        times = reduction(views, image.height, image.width) if upright else 1
        held = COEFFICIENTS * pixels if image.info.get("progressive") else 0
        return held + plain * pixels // times**2
    return BY_FORMAT.get(image.format or "", plain) * pixels
