"""The pose of a part: where it lies in its image and how it is turned, found from its outline.

What differs in colour from the image's border, and is not connected with it, is the part. Its second moments give
the long axis, its third the end that is thicker. The image is turned about the part's middle, so that the part lies in
the middle of an image of the same size, along its longer side. Everything is learnt and compared in the turned image;
maps are turned back.

A part that is nearly round keeps its angle, and one whose ends are alike comes out either way round: both are learnt.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import atan2, cos, pi, sin

import numpy as np
from PIL import Image

from mhpatchcore.inputs.areas import Extent
from mhpatchcore.inputs.window import Picture
from mhpatchcore.runtime.arrays import Array, Doubles, Floats, Mask

SIDE = 256  # pixels, the longest side at which the part is looked for
BORDER = 0.02  # of the longest side
NOISE = 4.0  # added to the variances of the border's colours, in grey levels squared
ODD_COLOURS = 0.1  # of the border, which a part may touch: twice the farthest are left out
LEAST = 0.02  # of the largest piece: smaller ones are specks
ROUND = 1.1  # long axis over short axis, up to which a part has no direction
BINS = 128
Affine = tuple[float, float, float, float, float, float]


@dataclass(frozen=True)
class Pose:
    """A part in an image of height × width: its middle (y, x) in pixels, and the angle by which it is turned."""

    height: int
    width: int
    y: float
    x: float
    angle: float

    def to_image(self, points: Doubles) -> Doubles:
        """Places (n, 2) = y, x of the turned image as places of the image itself."""
        c, s = cos(self.angle), sin(self.angle)
        down, right = (points - [self.height / 2, self.width / 2]).T
        return np.stack([self.y + s * right + c * down, self.x + c * right - s * down], axis=1)

    def to_turned(self, points: Doubles) -> Doubles:
        """Places (n, 2) = y, x of the image as places of the turned one."""
        c, s = cos(self.angle), sin(self.angle)
        down, right = (points - [self.y, self.x]).T
        return np.stack(
            [self.height / 2 + c * down - s * right, self.width / 2 + c * right + s * down], axis=1
        )

    def turned(self, picture: Picture) -> Picture:
        """The picture with the part in its pose; what comes from beyond its edges has the colour of its border."""
        reduced = picture.reduced
        corners = np.array([[0, 0], [0, reduced], [reduced, 0]], np.float64)
        how = _affine(self.to_image(corners) / reduced)
        bands = tuple(
            band.transform(
                band.size, Image.Transform.AFFINE, how, Image.Resampling.BILINEAR, fillcolor=_rim(band)
            )
            for band in picture.bands
        )
        return replace(picture, bands=bands)

    def map_over(self, heat: Floats, box: Extent, height: int, width: int) -> Floats:
        """A map (h, w) of the turned image, over a box of the image itself, at height × width places in it."""
        down, right = (box[2] - box[0]) / height, (box[3] - box[1]) / width
        corners = np.array([box[:2], (box[0], box[1] + right), (box[0] + down, box[1])])
        places = self.to_turned(corners) * [heat.shape[0] / self.height, heat.shape[1] / self.width]
        how = (Image.Transform.AFFINE, _affine(places), Image.Resampling.BILINEAR)
        return np.array(Image.fromarray(heat).transform((width, height), *how))

    def box_in_image(self, box: Extent) -> Extent:
        """The box in the image around a box of the turned one."""
        return _around(self.to_image(_corners(box)), self.height, self.width)

    def box_in_turned(self, box: Extent) -> Extent:
        """The box in the turned image around a box of the image."""
        return _around(self.to_turned(_corners(box)), self.height, self.width)


def pose_of(picture: Picture) -> Pose:
    """The pose of the part in a picture; the picture's own middle and no angle where no part is found."""
    height, width = picture.height, picture.width
    scale = min(1.0, SIDE / max(height, width))
    small = picture.resized(max(1, round(height * scale)), max(1, round(width * scale)))
    part = part_in(small)
    if not part.any():
        return Pose(height, width, height / 2, width / 2, 0.0)
    places = (np.argwhere(part) + 0.5) * [height / part.shape[0], width / part.shape[1]]
    return _pose(places, height, width)


def _pose(places: Doubles, height: int, width: int) -> Pose:
    """The pose of a part that covers these places (n, 2) = y, x."""
    middle = places.mean(axis=0)
    down, right = (places - middle).T
    variances = np.linalg.eigvalsh(np.cov(down, right, bias=True)) if len(places) > 1 else np.zeros(2)
    angle = 0.0
    if variances[1] > ROUND**2 * variances[0]:
        axis = 0.5 * atan2(2 * (right * down).mean(), (right**2).mean() - (down**2).mean())
        along = right * cos(axis) + down * sin(axis)
        axis += pi if (along**3).mean() < 0 else 0.0
        angle = axis - (pi / 2 if height > width else 0.0)
    # its extent, and not its centre of mass, is put into the middle: so none of it is cut off
    turned = Pose(height, width, float(middle[0]), float(middle[1]), angle)
    extent = turned.to_turned(places)
    (centre,) = turned.to_image((extent.min(axis=0, keepdims=True) + extent.max(axis=0, keepdims=True)) / 2)
    return Pose(height, width, float(centre[0]), float(centre[1]), angle)


def part_in(pixels: Array) -> Mask:
    """Where (H, W) the part is in pixels (H, W, 3): all that is not like the border and connected with it."""
    from scipy import ndimage  # a tenth of a second that other images do not need

    distance = np.log1p(_unlike_border(pixels.astype(np.float64)))
    ground, _ = ndimage.label(distance <= _split(distance))
    rim = np.concatenate([ground[0], ground[-1], ground[:, 0], ground[:, -1]])
    part = ~np.isin(ground, rim[rim > 0])
    pieces, n = ndimage.label(part)
    areas = np.bincount(pieces.ravel(), minlength=n + 1)[1:]
    return np.isin(pieces, 1 + np.flatnonzero(areas >= LEAST * areas.max(initial=1)))


def _unlike_border(pixels: Doubles) -> Doubles:
    """How far (H, W) colours are from those of the border, in standard deviations of these."""
    height, width = pixels.shape[:2]
    ring = max(1, round(BORDER * max(height, width)))
    border = np.ones((height, width), bool)
    border[ring:-ring, ring:-ring] = False
    colours = pixels[border]
    for _ in range(2):
        distances = _mahalanobis(colours, colours)
        colours = colours[distances <= np.quantile(distances, 1 - ODD_COLOURS)]
    return _mahalanobis(pixels.reshape(-1, 3), colours).reshape(height, width)


def _mahalanobis(colours: Doubles, reference: Doubles) -> Doubles:
    precision = np.linalg.inv(np.cov(reference.T, bias=True) + NOISE * np.eye(3))
    x = colours - reference.mean(axis=0)
    distances: Doubles = np.sqrt(((x @ precision) * x).sum(axis=1))
    return distances


def _split(values: Doubles) -> float:
    """The value that splits others into two classes with the largest variance between them (Otsu)."""
    counts, edges = np.histogram(values, BINS)
    middles = (edges[1:] + edges[:-1]) / 2
    below, total = np.cumsum(counts)[:-1], counts.sum()
    moment = np.cumsum(counts * middles)
    between = (moment[-1] * below - moment[:-1] * total) ** 2 / np.maximum(below * (total - below), 1)
    return float(edges[1 + between.argmax()])


def _affine(places: Doubles) -> Affine:
    """Pillow's coefficients for where (3, 2) = y, x the points (0, 0), (0, 1) and (1, 0) = y, x come from."""
    (y, x), right, down = places[0], places[1] - places[0], places[2] - places[0]
    return right[1], down[1], x, right[0], down[0], y


def _rim(band: Image.Image) -> float | tuple[int, ...]:
    """The median colour of an image's outermost pixels."""
    pixels = np.asarray(band)
    colour = np.median(np.concatenate([pixels[0], pixels[-1], pixels[:, 0], pixels[:, -1]]), axis=0)
    if band.mode == "F":
        return float(colour)
    return tuple(int(value) for value in np.atleast_1d(colour))


def _corners(box: Sequence[float]) -> Doubles:
    top, left, bottom, right = box
    return np.array([[top, left], [top, right], [bottom, left], [bottom, right]], np.float64)


def _around(points: Doubles, height: int, width: int) -> Extent:
    inside = np.clip(points, 0, [height, width])
    (top, left), (bottom, right) = inside.min(axis=0), inside.max(axis=0)
    return float(top), float(left), float(bottom), float(right)
