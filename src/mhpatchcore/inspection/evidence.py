"""Why an image looks anomalous: for its worst places, the normal patches nearest to them and what tells them apart.

With Δu = u − m the difference to the nearest bank row, and Δz = AΔu,

    δ = ‖Δz‖² = Σ_i Δz_i²                       the share of direction i is Δz_i² / δ
    δ = ΔuᵀAᵀAΔu = Σ_l Δu_l·(AᵀAΔu)_l           the share of layer l is its term / δ

Directions mix the layers, so a layer's term holds half of each product with the other layers: it can be negative
where layers contradict each other. With the share of the place, where it counts, they add up to 1.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from mhpatchcore.backbone.descriptors import LOCAL
from mhpatchcore.detector import Detector
from mhpatchcore.errors import ImageError, UserError
from mhpatchcore.inputs.images import Geometry, ImageLike, load_view
from mhpatchcore.result import Result
from mhpatchcore.runtime.arrays import Array, Doubles, Floats, Indices
from mhpatchcore.scoring.maps import Region

Box = tuple[int, int, int, int]  # top, left, bottom, right
PLACES, NEAREST, DIRECTIONS = 3, 3, 3
SAME = 0.01  # of its length: rounding to float16 and another number of threads move a descriptor by less


@dataclass(frozen=True)
class NormalPatch:
    """A bank row: the training image it comes from, its box in the view of it, and the plain squared distance to it.

    A patch's score is the mean over the bank's parts of the least such distance, so it is larger than the first one.
    A centroid is no single patch: it has neither image nor box. `file` and `box` (in that file's own pixels) are
    known where the training image has been found, by a file of its name that holds the patch.
    """

    image: str | None
    view_box: Box | None
    distance: float
    file: str | None = None
    box: Box | None = None


@dataclass(frozen=True)
class LayerShare:
    """How much of the squared distance a layer of the backbone carries; `stride` is the grid it sees, in pixels."""

    layer: str
    stride: int
    share: float


@dataclass(frozen=True)
class DirectionShare:
    """How much one whitened direction carries; direction 0 is the one in which normal patches vary most."""

    direction: int
    share: float


@dataclass(frozen=True)
class Place:
    """The worst patch of one region: its box in the original image and its score, and what it was compared with.

    `region` is None on an image that has no region over the threshold: its worst patch is explained all the same.
    `elsewhere` is the share of the squared distance that comes from where the nearest normal patch stands in its image.
    """

    region: Region | None
    box: Box
    score: float
    nearest: tuple[NormalPatch, ...]
    layers: tuple[LayerShare, ...]
    elsewhere: float
    directions: tuple[DirectionShare, ...]


@dataclass(frozen=True)
class Evidence:
    """The worst places of an image, the worst first."""

    image: str | None
    pixel_threshold: float
    places: tuple[Place, ...]

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def explain(
    detector: Detector, image: ImageLike | Result, normals: str | Path | Sequence[str | Path] = ()
) -> Evidence:
    """Evidence for one image, or for a result of one read from a file.

    `normals` says in which folders the training images are now, if they are no longer where they were.
    """
    result = image if isinstance(image, Result) else detector.score(image)
    source = image if not isinstance(image, Result) else result.path
    if source is None:
        raise UserError("this result is of an array, which it does not keep: give explain the array itself")
    given = [normals] if isinstance(normals, str | Path) else normals
    learnt_from = [event.source for event in detector.history if event.what in ("fit", "update")]
    folders = [Path(folder) for folder in (*given, *learnt_from)]
    view, _ = load_view(source, detector.config.preprocessing)
    descriptors = detector.backbone(view[None])[0]
    places = []
    for region, (row, column) in _worst_patches(result):
        u = descriptors[row, column]
        distances = _distances(detector, u)
        rows = _nearest_of_each_image(distances, detector.bank_origin[:, 0])
        difference = u.astype(np.float64) - detector.bank_raw[rows[0]]
        layers, elsewhere = _shares(detector, difference)
        places.append(
            Place(
                region=region,
                box=in_original(patch_box(detector, row, column), result.geometry, detector.config.size),
                score=float(result.patches.a[row, column]),
                nearest=tuple(_normal_patch(detector, r, float(distances[r]), folders) for r in rows),
                layers=layers,
                elsewhere=elsewhere,
                directions=_direction_shares(detector.whitening.A @ difference, detector.whitening.k),
            )
        )
    return Evidence(result.path, result.pixel_threshold, tuple(places))


def patch_box(detector: Detector, row: int, column: int) -> Box:
    """What a patch shows, in pixels of the view: its cell and the cells around it, over which it is averaged."""
    size, (height, width) = detector.config.size, detector.backbone.info.grid
    edges = (
        (row - 1) * size / height,
        (column - 1) * size / width,
        (row + 2) * size / height,
        (column + 2) * size / width,
    )
    top, left, bottom, right = (round(min(max(edge, 0), size)) for edge in edges)
    return top, left, bottom, right


def in_original(box: Box, where: Geometry, size: int) -> Box:
    """A box of the view (size × size) in pixels of the original image.

    >>> in_original((0, 112, 56, 224), Geometry(100, 400, 0, 0, 100, 400), 224)
    (0, 200, 25, 400)
    """
    tall, wide = (where.bottom - where.top) / size, (where.right - where.left) / size
    top, bottom = (round(where.top + edge * tall) for edge in (box[0], box[2]))
    left, right = (round(where.left + edge * wide) for edge in (box[1], box[3]))
    return top, left, bottom, right


def _worst_patches(result: Result) -> list[tuple[Region | None, tuple[int, int]]]:
    """For each of the first regions the patch (row, column) that scores highest in it."""
    a, where = result.patches.a, result.geometry
    if not result.regions:
        row, column = np.unravel_index(a.argmax(), a.shape)
        return [(None, (int(row), int(column)))]
    found: list[tuple[Region | None, tuple[int, int]]] = []
    for region in result.regions[:PLACES]:
        rows = _cells(
            region.box[0] - where.top, region.box[2] - where.top, where.bottom - where.top, a.shape[0]
        )
        columns = _cells(
            region.box[1] - where.left, region.box[3] - where.left, where.right - where.left, a.shape[1]
        )
        inside = a[rows, columns]
        row, column = np.unravel_index(inside.argmax(), inside.shape)
        found.append((region, (rows.start + int(row), columns.start + int(column))))
    return found


def _cells(start: float, stop: float, length: float, n: int) -> slice:
    """The cells of n over `length` pixels whose centres lie within start … stop, or the one nearest to its middle.

    >>> _cells(10, 30, 100, 10), _cells(11, 14, 100, 10)
    (slice(1, 3, None), slice(1, 2, None))
    """
    first, last = np.ceil(start * n / length - 0.5), np.ceil(stop * n / length - 0.5)
    if last <= first:
        first = np.floor((start + stop) / 2 * n / length)
    low = int(np.clip(first, 0, n - 1))
    return slice(low, max(low + 1, int(min(last, n))))


def _distances(detector: Detector, u: Floats) -> Floats:
    """Plain squared distances (K,) from a descriptor u (d,) to all bank rows."""
    squares: Floats = ((detector.scorer.bank - detector.whitening(u[None])) ** 2).sum(axis=1)
    return squares


def _nearest_of_each_image(distances: Floats, images: Indices) -> list[int]:
    """The nearest rows, at most one of each training image; centroids (−1) have none in common."""
    rows: list[int] = []
    seen: set[int] = set()
    for row in np.argsort(distances, kind="stable"):
        image = int(images[row])
        if image < 0 or image not in seen:
            rows.append(int(row))
            seen.add(image)
        if len(rows) == NEAREST:
            break
    return rows


def _normal_patch(detector: Detector, row: int, distance: float, folders: Sequence[Path]) -> NormalPatch:
    image, *place = (int(value) for value in detector.bank_origin[row])
    if image < 0:
        return NormalPatch(None, None, distance)
    name, box = detector.images[image], patch_box(detector, *place)
    for file in filter(Path.is_file, _candidates(name, folders)):
        try:
            view, where = load_view(file, detector.config.preprocessing)
        except ImageError:
            continue  # a file that cannot be read is as good as none
        if _holds(detector, view, row):
            return NormalPatch(name, box, distance, str(file), in_original(box, where, detector.config.size))
    return NormalPatch(name, box, distance)


def _candidates(name: str, folders: Sequence[Path]) -> list[Path]:
    """Where a training image may be: a name that was taken already has a label before it, which is no folder.

    >>> [str(file) for file in _candidates("line2/7.png", [Path("good")])]
    ['good/line2/7.png', 'good/7.png', 'line2/7.png']
    """
    names = [name, name.partition("/")[2]] if "/" in name else [name]
    return [*(folder / one for folder in folders for one in names), Path(name)]


def _holds(detector: Detector, view: Array, row: int) -> bool:
    """Whether a bank row comes from this view: other images may have the same name."""
    _, *place = detector.bank_origin[row]
    raw = detector.bank_raw[row].astype(np.float32)
    found = detector.backbone(view[None])[0][tuple(place)]
    return bool(np.linalg.norm(found - raw) <= SAME * np.linalg.norm(raw))


def _shares(detector: Detector, difference: Doubles) -> tuple[tuple[LayerShare, ...], float]:
    """What each layer has in the squared distance, and what the place has."""
    from mhpatchcore.backbone.graph import Graph

    named = Graph.reopen(detector.backbone.graph).named
    layers, A = detector.backbone.info.layers, detector.whitening.A
    shapes = [named[f"{LOCAL}{i}"] for i in range(len(layers))]
    terms = difference * (A.T @ (A @ difference))
    total = float(terms.sum()) or 1.0
    *looks, place = np.split(terms, np.cumsum([shape[0] for shape in shapes]))
    shares = tuple(
        LayerShare(layer, round(detector.config.size / shape[1]), float(piece.sum()) / total)
        for layer, shape, piece in zip(layers, shapes, looks, strict=True)
    )
    return shares, float(place.sum()) / total


def _direction_shares(z: Doubles, k: int) -> tuple[DirectionShare, ...]:
    """The largest shares among the k directions of the look; the place may have a share too."""
    squares = z**2
    total = float(squares.sum()) or 1.0
    largest = np.argsort(-squares[:k], kind="stable")[:DIRECTIONS]
    return tuple(DirectionShare(int(i), float(squares[i]) / total) for i in largest)
