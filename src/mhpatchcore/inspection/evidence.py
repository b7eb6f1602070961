"""Why an image looks anomalous: for its worst places, the normal patches nearest to them and what tells them apart.

With Δu = u − m the difference to the nearest bank row, and Δz = AΔu,

    δ = ‖Δz‖² = Σ_i Δz_i²                       the share of direction i is Δz_i² / δ
    δ = ΔuᵀAᵀAΔu = Σ_l Δu_l·(AᵀAΔu)_l           the share of layer l is its term / δ

Directions mix the layers, so a layer's term holds half of each product with the other layers: it can be negative
where layers contradict each other. They add up to 1.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from mhpatchcore.backbone.session import BackboneInfo
from mhpatchcore.errors import ImageError
from mhpatchcore.inputs.decode import size_of
from mhpatchcore.inputs.loading import load_image
from mhpatchcore.inputs.places import is_there
from mhpatchcore.inputs.regions import Extent
from mhpatchcore.inputs.sources import GivenImage, ImageLike, content_hash
from mhpatchcore.inputs.views import EVERY_TURN, PLAIN, Box, Sides, Turn
from mhpatchcore.metric.distances import squared_distances
from mhpatchcore.model.value import Model, Scale
from mhpatchcore.result import Result
from mhpatchcore.runtime.arrays import Doubles, Floats, Indices
from mhpatchcore.runtime.files import atomic_path
from mhpatchcore.scoring.graph import Head
from mhpatchcore.scoring.maps import Region

PLACES, NEAREST, DIRECTIONS = 3, 3, 3


@dataclass(frozen=True)
class NormalPatch:
    """A bank row: the training image it comes from, its box in the view of it, and the squared distance to it.

    A centroid is no single patch: it has neither image nor box. `file` and `box` (in that file's own pixels) are
    known where the training image has been found: a file of its name and content. Where the patch is one of a turned
    copy, `turned` says how, `view_box` is its box in the copy, and `box` the place in the file that it shows.
    """

    image: str | None
    view_box: Box | None
    distance: float
    file: str | None = None
    box: Box | None = None
    turned: str | None = None


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
    `scale` is the index of the scale, and `view` that of the result's view, that the patch belongs to.
    """

    region: Region | None
    scale: int
    view: int
    box: Box
    score: float
    nearest: tuple[NormalPatch, ...]
    layers: tuple[LayerShare, ...]
    directions: tuple[DirectionShare, ...]


@dataclass(frozen=True, repr=False)
class Evidence:
    """What the worst places of an image were compared with.

    Parameters
    ----------
    result
        What the detector says of the image.
    places
        The worst patch of up to three regions, the worst first.
    """

    result: Result = field(compare=False)
    places: tuple[Place, ...]

    @property
    def image(self) -> str | None:
        """The image's path, if it is a file."""
        return self.result.path

    @property
    def pixel_threshold(self) -> float:
        """The model's threshold for pixels, for comparison with the scores."""
        return self.result.pixel_threshold

    def to_dict(self) -> dict[str, Any]:
        """Everything but the result, as JSON takes it."""
        places = [asdict(place) for place in self.places]
        return {"image": self.image, "pixel_threshold": self.pixel_threshold, "places": places}

    def to_json(self) -> str:
        """`to_dict` as a JSON text."""
        return json.dumps(self.to_dict())

    def save(self, path: str | Path, image: GivenImage | None = None) -> None:
        """Write a picture of the places beside the normal patches they were compared with.

        Parameters
        ----------
        path
            Where to write: why.png.
        image
            The image that was explained; needed where it was not a file.
        """
        content = self._png(self.result.source(image))
        with atomic_path(path) as temporary:
            temporary.write_bytes(content)

    def _repr_png_(self) -> bytes | None:
        """What a notebook shows: the picture, where the image is a file that is still there."""
        there = self.image is not None and Path(self.image).is_file()
        return self._png(self.result.source()) if there else None

    def _png(self, image: ImageLike) -> bytes:
        from mhpatchcore.report.evidence import evidence_png

        return evidence_png(image, self)

    def __repr__(self) -> str:
        scores = ", ".join(f"{place.score:.4g}" for place in self.places)
        return f"Evidence({self.image or 'an array'}, places of scores {scores})"


def explain(
    model: Model,
    heads: Sequence[Head],
    image: ImageLike,
    result: Result,
    normals: str | Path | Sequence[str | Path] = (),
) -> Evidence:
    """Evidence for an image, of which `result` is what the model says.

    `normals` says in which folders the training images are now, if they are no longer where they were.
    """
    given = [normals] if isinstance(normals, str | Path) else normals
    learnt_from = [event.source for event in model.history if event.what in ("fit", "update")]
    folders = [Path(folder) for folder in (*given, *learnt_from)]
    source = load_image(image, model.config.views, result.area)
    described: dict[int, Floats] = {}
    places = []
    for region in result.regions[:PLACES] or (None,):
        i, row, column = _worst_patch(result, region.box if region else (0, 0, *result.size))
        seen = result.views[i]
        scale, head = model.scales[seen.scale], heads[seen.scale]
        if i not in described:
            pixels = source.pixels(model.config.views[seen.scale], seen.geometry)
            described[i] = scale.backbone.descriptors(pixels)
        u = described[i][row, column]
        distances = squared_distances(scale.whitening(u[None]), head.bank)[0]
        rows = _nearest_of_each_image(distances, scale.origin[:, 0])
        difference = u.astype(np.float64) - scale.raw[rows[0]]
        box = patch_box(scale.backbone.info, row, column)
        places.append(
            Place(
                region=region,
                scale=seen.scale,
                view=i,
                box=seen.geometry.in_original(box, *scale.size),
                score=float(seen.distances[row, column]),
                nearest=tuple(
                    _normal_patch(model, seen.scale, r, float(distances[r]), folders) for r in rows
                ),
                layers=_layer_shares(scale, difference),
                directions=_direction_shares(scale.whitening.A @ difference),
            )
        )
    return Evidence(result, tuple(places))


def patch_box(info: BackboneInfo, row: int, column: int) -> Box:
    """What a patch shows, in pixels of the view: its cell and the cells around it, over which it is averaged."""
    sides = ((row, info.height, info.grid[0]), (column, info.width, info.grid[1]))
    (top, bottom), (left, right) = (
        (round(max(cell - 1, 0) * side / n), round(min(cell + 2, n) * side / n)) for cell, side, n in sides
    )
    return top, left, bottom, right


def _worst_patch(result: Result, box: Extent) -> tuple[int, int, int]:
    """The patch (view, row, column) whose distance is the largest within a box of the original image."""
    seen = {i: cells for i, view in enumerate(result.views) if (cells := view.cells_in(box))}
    worst = max(seen, key=lambda i: float(result.views[i].distances[seen[i]].max()))
    rows, columns = seen[worst]
    inside = result.views[worst].distances[rows, columns]
    row, column = np.unravel_index(inside.argmax(), inside.shape)
    return worst, rows.start + int(row), columns.start + int(column)


def _nearest_of_each_image(distances: Floats, images: Indices) -> list[int]:
    """The nearest rows, at most one of each training image; centroids (−1) have none in common."""
    nearest: dict[int, int] = {}
    for row in np.argsort(distances, kind="stable").tolist():
        image = int(images[row])
        nearest.setdefault(image if image >= 0 else -1 - row, row)
        if len(nearest) == NEAREST:
            break
    return list(nearest.values())


def _normal_patch(
    model: Model, scale: int, row: int, distance: float, folders: Sequence[Path]
) -> NormalPatch:
    own = model.scales[scale]
    image, view, *cell = own.origin[row].tolist()
    if image < 0:
        return NormalPatch(None, None, distance)
    name, box = model.images[image], patch_box(own.backbone.info, *cell)
    file = training_file(model, image, folders)
    size = file and size_of(file)
    if not size:
        return NormalPatch(name, box, distance)
    every = model.config.views[scale].geometries(*size)
    where, turn = every[view % len(every)], EVERY_TURN[view // len(every)]
    placed = where.in_original(_turned_back(box, turn, where.sides, own.size), *own.size)
    return NormalPatch(name, box, distance, str(file), placed, None if turn == PLAIN else str(turn))


def training_file(model: Model, image: int, folders: Sequence[Path] = ()) -> Path | None:
    """The file of a training image, if there is one of its name and content, which can be read here."""
    for file in filter(is_there, _candidates(model.images[image], folders)):
        with suppress(ImageError):
            if content_hash(file) == model.hashes[image] and size_of(file) is not None:
                return file
    return None


def _turned_back(box: Box, turn: Turn, sides: Sides, size: tuple[int, int]) -> Box:
    """Where a box of a turned view of `size` lies in the view: one as large, around the place that it shows."""
    if turn == PLAIN:
        return box
    extent = np.array([box[2] - box[0], box[3] - box[1]])
    middle = turn.back(np.array([[box[0]], [box[1]]]) + extent[:, None] / 2, size, sides)[:, 0]
    top, left = np.clip(np.rint(middle - extent / 2), 0, np.array(size) - extent).astype(int).tolist()
    return top, left, top + int(extent[0]), left + int(extent[1])


def _candidates(name: str, folders: Sequence[Path]) -> list[Path]:
    """Where a training image may be: a name that was taken already has a label before it, which is no folder.

    >>> [str(file) for file in _candidates("line2/7.png", [Path("good")])]
    ['good/line2/7.png', 'good/7.png', 'line2/7.png']
    """
    names = [name, name.partition("/")[2]] if "/" in name else [name]
    return [*(folder / one for folder in folders for one in names), Path(name)]


def _layer_shares(scale: Scale, difference: Doubles) -> tuple[LayerShare, ...]:
    info, A = scale.backbone.info, scale.whitening.A
    terms = difference * (A.T @ (A @ difference))
    total = float(terms.sum()) or 1.0
    pieces = np.split(terms, np.cumsum([channels for channels, _, _ in info.maps])[:-1])
    return tuple(
        LayerShare(layer, round(info.height / shape[1]), float(piece.sum()) / total)
        for layer, shape, piece in zip(info.layers, info.maps, pieces, strict=True)
    )


def _direction_shares(z: Doubles) -> tuple[DirectionShare, ...]:
    squares = z**2
    total = float(squares.sum()) or 1.0
    largest = np.argsort(-squares, kind="stable")[:DIRECTIONS].tolist()
    return tuple(DirectionShare(i, float(squares[i]) / total) for i in largest)
