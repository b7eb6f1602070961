"""The first pass: images become descriptors in the store, chunk by chunk.

Chunks are the unit of work and of rounding. Each is computed by itself on one thread, and their results are put
together by trees of a fixed shape, so a model does not depend on batch size, workers or where tasks run. Tasks are pure
functions of picklable values. Descriptors never travel: tasks write them to the store and read them from there, as
networks, metrics and scoring graphs, of which a process loads each once.

An entry belongs to one image, whatever else is in the folder: it is known by the image's content, its region of
interest, the views and the networks. An image is decoded once, for all its views. Where it has many (tiles), blocks of
them have entries of their own, so that memory does not grow with their number; the image's entry comes last, and says
which views there are.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import lru_cache, partial
from itertools import chain, islice
from typing import NamedTuple

import numpy as np

from mhpatchcore.backbone.session import Backbone, BackboneInfo, current_device
from mhpatchcore.backbone.stored import StoredImage, StoredView, inside_name, layer_name
from mhpatchcore.config import Config
from mhpatchcore.errors import ImageError
from mhpatchcore.fitting.execution import Execution
from mhpatchcore.fitting.trees import cut
from mhpatchcore.inputs.decode import size_of
from mhpatchcore.inputs.loading import LoadedImage, load_image
from mhpatchcore.inputs.regions import Roi
from mhpatchcore.inputs.sources import ImageLike, content_hash, fetched
from mhpatchcore.inputs.views import (
    AUTO,
    EVERY_TURN,
    PLAIN,
    TURNS,
    Geometry,
    Placed,
    Turn,
    View,
    whole_view,
)
from mhpatchcore.model.duplicates import thumbnail
from mhpatchcore.model.value import Model
from mhpatchcore.runtime.arrays import Array
from mhpatchcore.runtime.parallel import Memoised
from mhpatchcore.runtime.store import Store, entry_key
from mhpatchcore.runtime.system import give_back

VIEWS_PER_ENTRY = 4  # they are held while the image is
INDEX = ("views", "where", "thumbnail", "measures")


@dataclass(frozen=True, eq=False)
class Extraction:
    """What the later passes go by: the images that could be read, in the store; the settings, how work is carried out,
    and the models that grow.

    The threshold comes from old images alone where the new ones are not `representative` of what comes.
    """

    store: Store
    config: Config
    execution: Execution
    learnt: tuple[StoredImage, ...]
    held_out: tuple[StoredImage, ...]
    previous: Sequence[Model] = ()
    representative: bool = True

    @property
    def images(self) -> tuple[StoredImage, ...]:
        return *self.learnt, *self.held_out

    def without(self, left_out: set[int]) -> Extraction:
        """As if some images had never been there: the others are numbered and cut into chunks anew."""

        def kept(images: Sequence[StoredImage]) -> tuple[StoredImage, ...]:
            # broken images keep their number: they are gone from the store, not from the list of names
            return tuple(
                one.renumbered(one.image - sum(out < one.image for out in left_out))
                for one in images
                if one.image not in left_out
            )

        return replace(self, learnt=kept(self.learnt), held_out=kept(self.held_out))


def turns_of(config: Config) -> tuple[Turn, ...]:
    """How the views of an image are turned before they are learnt; all ways, while it is to be found out."""
    return EVERY_TURN if config.augment == AUTO else TURNS[config.augment]


def images_at_once(config: Config) -> int:
    """Images of one task: a chunk of views is then full, but an image that is cut into tiles has many of its own."""
    return 1 if config.tiled else max(1, config.chunk_images // len(turns_of(config)))


def number_of_views(images: Sequence[ImageLike], config: Config) -> list[int]:
    """How many views these images have at each scale; those whose size cannot be read count as one."""
    turns = len(turns_of(config))
    if not config.tiled:
        return [turns * len(images)] * len(config.sizes)
    sizes = [size_of(image) for image in images]
    return [turns * sum(view.count(*size) if size else 1 for size in sizes) for view in config.views]


def extract(
    sources: Mapping[int, ImageLike],
    held_out: Collection[int],
    backbones: Sequence[Backbone],
    config: Config,
    execution: Execution,
    store: Store,
) -> Extraction:
    """Run the networks over everything: first over what is learnt from, then over what is held out."""
    networks = tuple(put_network(store, backbone) for backbone in backbones)
    learning = Job(
        store, config.views, networks, config.roi, execution.batch, execution.skip_broken, turns_of(config)
    )
    learnt = [one for one in sources.items() if one[0] not in held_out]
    passes = (
        (learning, cut(learnt, images_at_once(config))),
        (replace(learning, turns=(PLAIN,)), cut([(i, sources[i]) for i in held_out], images_at_once(config))),
    )
    results = chain.from_iterable(
        zip(chunks, execution.runs_on.map(partial(describe, job), chunks), strict=True)
        for job, chunks in passes
    )
    found: list[StoredImage] = []
    for _, described in execution.track("extract", results, len(sources), lambda result: len(result[0])):
        for message in described.skipped:
            execution.warn(message)
        found += described.images
        if execution.telemetry is not None:
            execution.telemetry.stored("extract", described.stored)
    load_network.forget()  # only this pass needs them
    give_back()
    if sources and not found:
        raise ImageError("none of the images could be read: check the folder")
    kept = tuple(one for one in found if one.image not in held_out)
    return Extraction(store, config, execution, kept, tuple(one for one in found if one.image in held_out))


def put_network(store: Store, backbone: Backbone) -> str:
    key = entry_key("network", backbone.graph_sha256, current_device())
    info = json.dumps(backbone.info.to_json()).encode()
    store.put(key, {"graph": np.frombuffer(backbone.graph, np.uint8), "info": np.frombuffer(info, np.uint8)})
    return key


@Memoised
def load_network(store: Store, key: str) -> Backbone:
    entry = store.get(key)
    info = BackboneInfo.from_json(json.loads(entry["info"].tobytes()))
    return Backbone(info, entry["graph"].tobytes(), threads=1)


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


class Described(NamedTuple):
    """What came of a chunk: its images in the store, messages about those that were skipped, bytes of new entries."""

    images: list[StoredImage]
    skipped: list[str]
    stored: int


ScaleView = tuple[int, Placed]  # a view, and the scale it is of
Index = Mapping[str, Array]


class _Prepared(NamedTuple):
    """An image on its way into the store: the last block of its views and their pixels; the others are stored."""

    key: str
    facts: Index
    last: tuple[ScaleView, ...]
    pixels: list[Array]
    stored: int


def describe(job: Job, chunk: Sequence[tuple[int, ImageLike]]) -> Described:
    """Numbered images → descriptors in the store; those that are there already are not made again."""
    indices, prepared = dict[str, Index](), list[_Prepared]()
    listed, skipped = list[tuple[int, str, str]](), list[str]()
    for number, source in chunk:
        try:
            made = fetched(source)  # what has to be made is made once, for its hash and for its views
            sha256, area = content_hash(made), job.roi.of(source) if job.roi else None
            region = asdict(area) if area else None
            key = entry_key("image", sha256, region, job.views, job.networks, job.turns)
            if key not in indices:
                found = _found_index(job.store, key)
                if found is None:
                    prepared.append(_prepare(job, key, load_image(made, job.views, area)))
                    found = prepared[-1].facts
                indices[key] = found
            listed.append((number, key, sha256))
        except ImageError as error:
            if not job.skip_broken:
                raise ImageError(f"{error} (`skip_broken=True` learns from the other images)") from error
            skipped.append(f"skipped: {error}")
    views = [view for one in prepared for view in one.last]
    layers = iter(_layers(job, views, [pixels for one in prepared for pixels in one.pixels]))
    stored = 0
    for one in prepared:
        entry = _entry(one.last, list(islice(layers, len(one.last))))
        stored += one.stored + job.store.put(one.key, {**one.facts, **entry})
    images = [_listed(number, key, sha256, indices[key], len(job.views)) for number, key, sha256 in listed]
    return Described(images, skipped, stored)


def _found_index(store: Store, key: str) -> Index | None:
    """The index of an image, if all of it is in the store, undamaged."""
    entry = store.found(key)
    if entry is None:
        return None
    blocks = range(_last_block(len(entry["views"])))
    if any(store.found(_block_key(key, block)) is None for block in blocks):
        return None
    return {name: entry[name] for name in INDEX}


def _prepare(job: Job, key: str, image: LoadedImage) -> _Prepared:
    """Store all blocks of an image's views but the last.

    The index says of every view its scale, its number there, whether it is masked, its turn, and where it lies; of the
    image its thumbnail and its measures.
    """
    grids = [load_network(job.store, network).info.grid for network in job.networks]
    views = [
        (scale, one)
        for scale, (view, grid) in enumerate(zip(job.views, grids, strict=True))
        for one in image.copies(view, grid, job.turns)
    ]
    whole = whole_view(job.views)
    seen = image.pixels(whole, whole.geometry(*image.size))

    def pixels_of(block: Sequence[ScaleView]) -> list[Array]:
        given = ((job.views[scale], one) for scale, one in block)
        return [
            seen if view == whole and one.turn == PLAIN else image.shown(view, one) for view, one in given
        ]

    *blocks, last = cut(views, VIEWS_PER_ENTRY)
    stored = 0
    for number, block in enumerate(blocks):
        entry = _entry(block, _layers(job, block, pixels_of(block)))
        stored += job.store.put(_block_key(key, number), entry)
    numbers = [
        (scale, one.number, one.inside is not None, EVERY_TURN.index(one.turn)) for scale, one in views
    ]
    where = (one.where for _, one in views)
    places = [(one.height, one.width, *one.box, *one.overlaps) for one in where]
    arrays = (np.array(numbers, np.int32), np.array(places), thumbnail(seen), image.measures(whole, seen))
    return _Prepared(key, dict(zip(INDEX, arrays, strict=True)), last, pixels_of(last), stored)


def _layers(job: Job, views: Sequence[ScaleView], pixels: Sequence[Array]) -> list[list[Array]]:
    """What the networks say of the pixels of some views: their layers (C_l, h_l, w_l)."""
    layers: list[list[Array]] = [[] for _ in views]
    for scale, network in enumerate(job.networks):
        for some in cut([i for i, one in enumerate(views) if one[0] == scale], job.batch):
            maps = load_network(job.store, network)(np.stack([pixels[i] for i in some]))
            for at, i in enumerate(some):
                layers[i] = [layer[at] for layer in maps]
    return layers


def _entry(views: Sequence[ScaleView], layers: Sequence[Sequence[Array]]) -> dict[str, Array]:
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


def _listed(image: int, key: str, sha256: str, index: Index, scales: int) -> StoredImage:
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
