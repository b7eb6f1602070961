"""The task of the first pass: images become descriptors in the store.

An entry belongs to one image, whatever else is in the folder: it is known by the image's content, its region of
interest, the views and the networks. An image is decoded once, for all its views. Where it has many (tiles), blocks of
them have entries of their own, so that memory does not grow with their number; the image's entry comes last, and says
which views there are.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import lru_cache

import numpy as np

from mhpatchcore.backbone.stored import StoredImage, StoredView, inside_name, layer_name
from mhpatchcore.errors import ImageError
from mhpatchcore.fitting.tasks import cut, load_network
from mhpatchcore.inputs.loading import LoadedImage, load_image
from mhpatchcore.inputs.regions import Roi
from mhpatchcore.inputs.sources import ImageLike, content_hash, fetched
from mhpatchcore.inputs.views import EVERY_TURN, PLAIN, Geometry, Placed, Turn, View, whole_view
from mhpatchcore.model.duplicates import thumbnail
from mhpatchcore.runtime.arrays import Array, Floats
from mhpatchcore.runtime.store import Store, entry_key

VIEWS_PER_ENTRY = 4  # they are held while the image is
INDEX = ("views", "where", "thumbnail", "measures")

Chunk = tuple[tuple[int, ImageLike], ...]  # images by their index


@dataclass(frozen=True)
class Job:
    """What extraction needs: the store, and for each scale the view and the key of the network.

    `batch` views of a scale go through the network together, each in all of its `turns`.
    """

    store: Store
    views: tuple[View, ...]
    networks: tuple[str, ...]
    roi: Roi | None = None
    batch: int = 1
    skip_broken: bool = False
    turns: tuple[Turn, ...] = (PLAIN,)


@dataclass(frozen=True, eq=False)
class Described:
    """What came of a chunk: its images in the store, messages about those that were skipped, bytes of new entries."""

    images: list[StoredImage]
    skipped: list[str]
    stored: int


def describe(job: Job, chunk: Chunk) -> Described:
    """Images → descriptors in the store; those that are there already are not made again."""
    indices, pictures = dict[str, Mapping[str, Array]](), list[_Picture]()
    listed, skipped = list[tuple[int, str, str]](), list[str]()
    for number, source in chunk:
        try:
            made = fetched(source)  # what has to be made is made once, for its hash and for its views
            sha256, area = content_hash(made), job.roi.of(source) if job.roi else None
            region = asdict(area) if area else None
            key = entry_key("image", sha256, region, job.views, job.networks, job.turns)
            if key not in indices:
                found = _found_index(job, key)
                if found is None:
                    pictures.append(_Picture(job, key, load_image(made, job.views, area)))
                    found = pictures[-1].index
                indices[key] = found
            listed.append((number, key, sha256))
        except ImageError as error:
            if not job.skip_broken:
                raise ImageError(f"{error} (`skip_broken=True` learns from the other images)") from error
            skipped.append(f"skipped: {error}")
    stored = _run_networks(job, pictures)
    images = [_listed(*one, indices[one[1]], len(job.views)) for one in listed]
    return Described(images, skipped, stored)


def _found_index(job: Job, key: str) -> Mapping[str, Array] | None:
    """The index of an image, if all of it is in the store, undamaged."""
    entry = job.store.found(key)
    if entry is None:
        return None
    blocks = range(_last_block(len(entry["views"])))
    if any(job.store.found(_block_key(key, block)) is None for block in blocks):
        return None
    return {name: entry[name] for name in INDEX}


class _Picture:
    """An image on its way into the store: which views it has, and the pixels of the last block of them.

    Those of the other blocks have been through the network by then.
    """

    def __init__(self, job: Job, key: str, image: LoadedImage) -> None:
        grids = [load_network(job.store, network).info.grid for network in job.networks]
        scales = enumerate(zip(job.views, grids, strict=True))
        self.key = key
        self.views = [
            (scale, one) for scale, (view, grid) in scales for one in image.copies(view, grid, job.turns)
        ]
        whole = whole_view(job.views)
        seen = image.pixels(whole, whole.geometry(*image.size))

        def pixels_of(views: Sequence[tuple[int, Placed]]) -> list[Array]:
            given = ((job.views[scale], one) for scale, one in views)
            return [
                seen if view == whole and one.turn == PLAIN else image.shown(view, one) for view, one in given
            ]

        *blocks, self.last = cut(self.views, VIEWS_PER_ENTRY)
        self.stored = 0
        for number, block in enumerate(blocks):
            layers = _layers(job, [scale for scale, _ in block], pixels_of(block))
            self.stored += job.store.put(_block_key(key, number), _entry(block, layers))
        self.pixels = pixels_of(self.last)
        self.index = self._index(thumbnail(seen), image.measures(whole, seen))

    def _index(self, small: Floats, measures: Floats) -> dict[str, Array]:
        """Of every view its scale, its number there, whether it is masked, its turn, where it lies; of the image its
        thumbnail and its measures.
        """
        numbers = [
            (scale, view.number, view.inside is not None, EVERY_TURN.index(view.turn))
            for scale, view in self.views
        ]
        where = (view.where for _, view in self.views)
        places = [(one.height, one.width, *one.box, *one.overlaps) for one in where]
        arrays = (np.array(numbers, np.int32), np.array(places), small, measures)
        return dict(zip(INDEX, arrays, strict=True))


def _run_networks(job: Job, pictures: Sequence[_Picture]) -> int:
    """Write the entries of images, whose views go through the networks together; how many bytes were written."""
    every = [
        (scale, pixels) for one in pictures for (scale, _), pixels in zip(one.last, one.pixels, strict=True)
    ]
    layers = _layers(job, [scale for scale, _ in every], [pixels for _, pixels in every])
    stored = 0
    for picture in pictures:
        own, layers = layers[: len(picture.last)], layers[len(picture.last) :]
        stored += picture.stored + job.store.put(picture.key, picture.index | _entry(picture.last, own))
    return stored


def _layers(job: Job, scales: Sequence[int], pixels: Sequence[Array]) -> list[list[Array]]:
    """What the networks say of some views, each of one scale: their layers (C_l, h_l, w_l)."""
    layers: list[list[Array]] = [[] for _ in scales]
    for scale, network in enumerate(job.networks):
        views = [i for i, one in enumerate(scales) if one == scale]
        for some in cut(views, job.batch):
            maps = load_network(job.store, network)(np.stack([pixels[i] for i in some]))
            for at, i in enumerate(some):
                layers[i] = [layer[at] for layer in maps]
    return layers


def _entry(views: Sequence[tuple[int, Placed]], layers: Sequence[Sequence[Array]]) -> dict[str, Array]:
    """What an entry holds of some views."""
    entry: dict[str, Array] = {"layers": np.array([len(maps) for maps in layers])}
    for i, ((_, view), maps) in enumerate(zip(views, layers, strict=True)):
        entry |= {layer_name(i, layer): one for layer, one in enumerate(maps)}
        if view.inside is not None:
            entry[inside_name(i)] = view.inside
    return entry


@lru_cache(maxsize=1024)
def _geometry(height: float, width: float, *places: float) -> Geometry:
    """Where a view lies; images of one size share it, which matters where there are millions."""
    top, left, bottom, right, above, before, below, after = places
    return Geometry(int(height), int(width), top, left, bottom, right, (above, before, below, after))


def _listed(image: int, key: str, sha256: str, index: Mapping[str, Array], scales: int) -> StoredImage:
    """An image of the store, as its entry says."""
    views: defaultdict[tuple[int, bool], list[StoredView]] = defaultdict(list)
    last = _last_block(len(index["views"]))
    rows = zip(index["views"].tolist(), index["where"].tolist(), strict=True)
    for i, ((scale, number, masked, turn), place) in enumerate(rows):
        block, at = divmod(i, VIEWS_PER_ENTRY)
        entry = key if block == last else _block_key(key, block)
        located = StoredView(image, number, entry, at, _geometry(*place), bool(masked), turn)
        views[scale, turn > 0].append(located)
    plain, copies = (tuple(tuple(views[scale, which]) for scale in range(scales)) for which in (False, True))
    return StoredImage(image, plain, copies, sha256, index["thumbnail"], index["measures"])


def _last_block(views: int) -> int:
    return (views - 1) // VIEWS_PER_ENTRY


def _block_key(key: str, block: int) -> str:
    return entry_key("views", key, block)
