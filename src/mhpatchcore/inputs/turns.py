"""Turned copies of a view, about its middle: what is learnt of parts that may lie in any direction.

What a turned view shows from beyond the edges is mirrored there. Angles are those in the image, also where the view is
stretched.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, cos, radians, sin

import numpy as np
from PIL import Image

from mhpatchcore.runtime.arrays import Array, Doubles, Mask

Sides = tuple[float, float]  # height and width, in pixels of the image, of what a view shows


@dataclass(frozen=True)
class Turn:
    """Counter-clockwise by some degrees, of what may have been mirrored, left to right, before.

    >>> print(Turn(), Turn(45), Turn(90, mirrored=True), sep="; ")
    as it is; turned by 45°; mirrored, turned by 90°
    """

    degrees: int = 0
    mirrored: bool = False

    def __str__(self) -> str:
        steps = ["mirrored"] * self.mirrored + [f"turned by {self.degrees}°"] * bool(self.degrees)
        return ", ".join(steps) or "as it is"

    def pixels(self, view: Array, sides: Sides) -> Array:
        """The turned copy of a view (H, W, C)."""
        if self == PLAIN:
            return view
        size = view.shape[:2]
        down, right = _steps(size, sides)
        M = self._matrix(down / right)
        middle = np.array(size) / 2
        beyond = [max(0, ceil(reach)) + 2 for reach in np.abs(M) @ middle - middle]  # 2: what the filter sees
        padded = np.pad(view, [(n, n) for n in beyond] + [(0, 0)], mode="symmetric")
        y, x = middle + beyond - M @ middle
        how = (M[1, 1], M[1, 0], x, M[0, 1], M[0, 0], y)
        bands = (np.ascontiguousarray(padded[:, :, i]) for i in range(view.shape[2]))
        turned = [
            Image.fromarray(band).transform(size[::-1], Image.Transform.AFFINE, how, Image.Resampling.BICUBIC)
            for band in bands
        ]
        return np.stack([np.asarray(band) for band in turned], axis=2)

    def inside(self, mask: Mask, sides: Sides) -> Mask:
        """Which cells (h, w) of the turned copy show cells of the view that are in a mask (h, w)."""
        rows, columns = np.indices(mask.shape)
        places = np.stack([rows.ravel() + 0.5, columns.ravel() + 0.5])
        y, x = np.floor(self.back(places, mask.shape, sides)).astype(np.intp)
        found: Mask = mask[np.minimum(y, mask.shape[0] - 1), np.minimum(x, mask.shape[1] - 1)]
        return found.reshape(mask.shape)

    def back(self, places: Doubles, size: tuple[int, ...], sides: Sides) -> Doubles:
        """Places (2, n) = y, x of the turned copy as those of the view of `size` that are shown there.

        >>> Turn(90).back(np.array([[10.0], [30.0]]), (40, 40), (40, 40)).ravel().tolist()
        [30.0, 30.0]
        """
        down, right = _steps(size, sides)
        middle, length = np.array(size)[:, None] / 2, np.array(size)[:, None]
        found = middle + self._matrix(down / right) @ (places - middle)
        mirrored: Doubles = length - np.abs(found % (2 * length) - length)
        return mirrored

    def _matrix(self, stretched: float) -> Doubles:
        """From steps (y, x) in the turned copy to those in the view, whose pixels are `stretched` times as tall as wide
        in the image.
        """
        c, s = round(cos(radians(self.degrees)), 12), round(sin(radians(self.degrees)), 12)
        M = np.array([[c, s / stretched], [-s * stretched, c]])
        return M * [[1], [-1]] if self.mirrored else M


AUTO = "auto"
PLAIN = Turn()
TURNS = {
    "none": (PLAIN,),
    "rotations": tuple(Turn(degrees) for degrees in range(0, 360, 45)),
    "flips": tuple(Turn(degrees, mirrored) for mirrored in (False, True) for degrees in range(0, 360, 90)),
}
EVERY_TURN = tuple(
    dict.fromkeys(turn for turns in TURNS.values() for turn in turns)
)  # in the order of their numbers


def _steps(size: tuple[int, ...], sides: Sides) -> tuple[float, float]:
    """Height and width of one of `size` pixels, in pixels of the image."""
    return sides[0] / size[0], sides[1] / size[1]
