"""Large JPEGs in colour, a plane for each channel: Pillow keeps a pixel in four bytes, planes take three."""

from __future__ import annotations

import mmap

import numpy as np
from PIL import Image

from mhpatchcore.runtime.arrays import Array

LARGE = 2**25  # pixels: of smaller images it saves little
STRIP = 2**20  # pixels at a time


def as_planes(image: Image.Image) -> Array | None:
    """The values (H, W, 3), in planes, of an image that is not decoded yet; None for one that Pillow should keep.

    It is decoded into memory of ours, which goes back strip by strip: the two are never held whole side by side.
    """
    width, height = image.size
    if image.mode != "RGB" or width * height < LARGE or not hasattr(mmap, "MADV_DONTNEED"):
        return None
    memory = mmap.mmap(-1, 4 * width * height, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    pixels = np.frombuffer(memory, np.uint8).reshape(height, width, 4)
    image.im = ours = Image.frombuffer("RGBX", image.size, pixels, "raw", "RGBX", 0, 1).im
    image.load()
    if image.im is not ours:  # older versions of Pillow decode into their own memory all the same
        return None
    planes = np.empty((3, height, width), np.uint8)
    rows, gone = -(-STRIP // width), 0
    for top in range(0, height, rows):
        bottom = min(top + rows, height)
        planes[:, top:bottom] = pixels[top:bottom, :, :3].transpose(2, 0, 1)
        end = 4 * width * bottom // mmap.PAGESIZE * mmap.PAGESIZE
        memory.madvise(mmap.MADV_DONTNEED, gone, end - gone)
        gone = end
    return planes.transpose(1, 2, 0)
