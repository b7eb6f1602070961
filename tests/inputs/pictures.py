"""Pictures to read, and what is seen of them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from PIL import Image

from mhpatchcore.inputs.loading import load_views
from mhpatchcore.inputs.sources import ImageLike
from mhpatchcore.inputs.views import Geometry, View


def picture(height: int = 40, width: int = 60) -> np.ndarray:
    """A smooth picture (H, W, 3), so that neither JPEG nor resizing changes it much."""
    y, x = np.mgrid[0:height, 0:width]
    return np.stack([255 * x / width, 255 * y / height, 128 + 0 * x], axis=2).astype(np.uint8)


def saved(folder: Path, image: Image.Image, name: str, **options: object) -> Path:
    image.save(folder / name, **options)
    return folder / name


def seen(source: ImageLike, view: View = View(32, 32)) -> tuple[np.ndarray, Geometry]:  # noqa: B008
    """The one view of an image: pixels and geometry."""
    (one,) = load_views(source, [view])
    return one
