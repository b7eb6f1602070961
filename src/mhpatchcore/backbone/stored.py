"""Descriptors in the store: where those of an image's views are, and how they are read."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from mhpatchcore.backbone.session import aligned_rows
from mhpatchcore.inputs.views import EVERY_TURN, Geometry, Turn
from mhpatchcore.runtime.arrays import Array, Floats, Indices, Mask
from mhpatchcore.runtime.store import Store


@dataclass(frozen=True, slots=True)
class StoredView:
    """A view in the store: the index of its image in the model and its number there, its entry and position.

    `where` it lies in the image; `masked` says that only some of its patches count, and `turn` how a copy is turned,
    by its place in EVERY_TURN.
    """

    image: int
    view: int
    entry: str
    position: int
    where: Geometry
    masked: bool = False
    turn: int = 0


@dataclass(frozen=True, slots=True, eq=False)
class StoredImage:
    """An image in the store: its index in the model, and its views at every scale.

    `copies` are turned copies of the views, at every scale: they are learnt from, and never scored. Its hash and its
    thumbnail (64,) tell it from other images, and its measures (m,) say how the camera saw it.
    """

    image: int
    scales: tuple[tuple[StoredView, ...], ...]
    copies: tuple[tuple[StoredView, ...], ...]
    sha256: str
    thumbnail: Floats
    measures: Floats

    @property
    def size(self) -> tuple[int, int]:
        """Height and width of the original image."""
        return self.scales[0][0].where.height, self.scales[0][0].where.width

    def renumbered(self, image: int) -> StoredImage:
        """The same, as another image of the model."""

        def of_image(views: Iterable[StoredView]) -> tuple[StoredView, ...]:
            return tuple(replace(view, image=image) for view in views)

        scales, copies = tuple(map(of_image, self.scales)), tuple(map(of_image, self.copies))
        return replace(self, image=image, scales=scales, copies=copies)

    @property
    def every_view(self) -> Iterator[StoredView]:
        """Its views and copies at all scales."""
        return (view for views in (*self.scales, *self.copies) for view in views)

    def with_turns(self, turns: Collection[Turn]) -> StoredImage:
        """The image with those of its copies that are turned in one of these ways."""
        copies = (tuple(view for view in views if EVERY_TURN[view.turn] in turns) for views in self.copies)
        return replace(self, copies=tuple(copies))


def views_at(scale: int, images: Iterable[StoredImage]) -> list[StoredView]:
    """All views of these images at one scale, with their copies."""
    return [view for image in images for view in (*image.scales[scale], *image.copies[scale])]


def stored_maps(store: Store, view: StoredView) -> list[Array]:
    """The layers (C_l, h_l, w_l) of a view, as halves."""
    layers = store.get(view.entry, ["layers"])["layers"][view.position]
    return list(store.get(view.entry, [layer_name(view.position, layer) for layer in range(layers)]).values())


def stored_inside(store: Store, view: StoredView) -> Mask | None:
    """Which patches (h, w) of a view count; None where all do."""
    name = inside_name(view.position)
    return store.get(view.entry, [name])[name] if view.masked else None


def aligned(store: Store, chunk: Sequence[StoredView]) -> Floats:
    """Descriptors (n, d) of all patches of some views that count."""
    rows = [counting(aligned_rows(stored_maps(store, view)), stored_inside(store, view)) for view in chunk]
    return np.concatenate(rows)


def raw_rows(store: Store, wanted: tuple[StoredView, Indices]) -> Array:
    """Descriptors (n, d), as halves, of some cells (n,) of one view's grid."""
    view, cells = wanted
    return aligned_rows(stored_maps(store, view))[cells].astype(np.float16)


def counting(rows: Array, inside: Mask | None) -> Array:
    """Of the rows (h·w, …) of a grid those that count."""
    return rows if inside is None else rows[inside.ravel()]


def layer_name(position: int, layer: int) -> str:
    return f"{position}.{layer}"


def inside_name(position: int) -> str:
    return f"{position}.inside"
