"""The task of the first pass: images become descriptors in the store, and these become moments.

An image is decoded once, for all its views. An entry holds the layers of a few views of one scale, so that memory does
not grow with the number of views that an image has; another entry says which views there are.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from time import thread_time

import numpy as np

from mhpatchcore.errors import ImageError
from mhpatchcore.fitting.duplicates import SIDE, thumbnail
from mhpatchcore.fitting.plan import Located, StoredImage
from mhpatchcore.fitting.store import DamagedEntryError, Store, entry_key
from mhpatchcore.fitting.tasks import image_moments, inside_name, layer_name, load_network
from mhpatchcore.inputs.areas import Area
from mhpatchcore.inputs.regions import Roi
from mhpatchcore.inputs.sources import ImageLike, content_hash, fetched
from mhpatchcore.inputs.views import Geometry, Opened, Placed, View, opened
from mhpatchcore.metric.moments import Moments
from mhpatchcore.runtime.arrays import Array, Floats

SMALL_SIDE = 64  # of the view that a thumbnail is made from where all others are tiles


@dataclass(frozen=True)
class Job:
    """What extraction needs: the store, and for each scale the view and the key of the network.

    `block` views of a scale make an entry, and `batch` of them go through the network at a time.
    """

    store: Store
    views: tuple[View, ...]
    networks: tuple[str, ...]
    roi: Roi | None = None
    block: int = 8
    batch: int = 1
    skip_broken: bool = False


@dataclass(frozen=True, eq=False)
class Extracted:
    """What a chunk gave: where its images are in the store, their hashes and thumbnails (n, 64), what was skipped.

    There are moments for each scale; `moments_seconds` of CPU time went into them, and the entries take `stored` bytes.
    """

    images: tuple[StoredImage, ...]
    hashes: tuple[str, ...]
    thumbnails: Floats
    moments: tuple[Moments, ...]
    skipped: tuple[str, ...]
    moments_seconds: float
    stored: int


def extract(job: Job, chunk: tuple[tuple[int, ImageLike], ...]) -> Extracted:
    """Images (index, source) → descriptors in the store; those that are there already are not made again."""
    given = [_given(job, source) for _, source in chunk]
    content = [(one.sha256, asdict(one.area) if one.area else None) for one in given]
    key = entry_key("descriptors", content, job.views, job.networks, job.block)
    skipped, stored = list[str](), 0
    if not _is_complete(job, key, len(chunk)):
        skipped, stored = _made(job, key, given)
    index = job.store.get(key)
    started = thread_time()
    images = _listed(job, key, index, [number for number, _ in chunk])
    moments = image_moments(job.store, job.block, images) if images else ()
    seconds = thread_time() - started
    hashes = tuple(given[position].sha256 for position in index["kept"])
    return Extracted(images, hashes, index["thumbnails"], moments, tuple(skipped), seconds, stored)


@dataclass(frozen=True, eq=False)
class _Given:
    """An image, its hash and its region of interest; or why it cannot be read."""

    source: ImageLike
    sha256: str = ""
    area: Area | None = None
    error: ImageError | None = None


def _given(job: Job, source: ImageLike) -> _Given:
    try:
        made = fetched(source)  # what has to be made is made once, for its hash and for its views
        return _Given(made, content_hash(made), job.roi.of(source) if job.roi else None)
    except ImageError as error:
        if not job.skip_broken:
            raise
        return _Given(source, error=error)


def _is_complete(job: Job, key: str, images: int) -> bool:
    """Whether the store has all images of a chunk, undamaged.

    One without some images is made again: those may be refused this time, and are told in any case.
    """
    if not job.store.has(key):
        return False
    try:
        index = job.store.get(key)
        for scale in range(len(job.views)):
            for block in range(-(-len(index[f"{scale}.views"]) // job.block)):
                job.store.get(_block_key(key, scale, block))
    except DamagedEntryError:
        return False
    return len(index["kept"]) == images


def _made(job: Job, key: str, given: Sequence[_Given]) -> tuple[list[str], int]:
    """Decode, run the networks, write the entries: why some images could not be read, and bytes written."""
    grids = [load_network(job.store, network).info.grid for network in job.networks]
    whole = next((scale for scale, view in enumerate(job.views) if not view.zoom), None)
    blocks = [_Blocks(job, key, scale) for scale in range(len(job.views))]
    kept, thumbnails, skipped = list[int](), list[Floats](), list[str]()
    for position, one in enumerate(given):
        try:
            image = _opened(job, one)
            placed = [image.placed(view, grid) for view, grid in zip(job.views, grids, strict=True)]
        except ImageError as error:
            if not job.skip_broken:
                raise
            skipped.append(f"skipped: {error}")
            continue
        kept.append(position)
        if whole is None:
            thumbnails.append(thumbnail_of_tiled(image, job.views[0]))
        for scale, views in enumerate(placed):
            for view in views:
                pixels = image.pixels(job.views[scale], view.where)
                if scale == whole:
                    thumbnails.append(thumbnail(pixels))
                blocks[scale].add(position, view, pixels)
    small = np.array(thumbnails, np.float16).reshape(-1, SIDE**2)
    entry: dict[str, Array] = {"kept": np.array(kept, np.int32), "thumbnails": small}
    for scale, block in enumerate(blocks):
        block.flush()
        entry |= {f"{scale}.views": block.numbers, f"{scale}.where": block.places}
    return skipped, sum(block.stored for block in blocks) + job.store.put(key, entry)


def _opened(job: Job, one: _Given) -> Opened:
    if one.error is not None:
        raise one.error
    return opened(one.source, job.views, one.area)


def thumbnail_of_tiled(image: Opened, view: View) -> Floats:
    """That of the whole image, of which there are only tiles otherwise."""
    small = View(SMALL_SIDE, SMALL_SIDE, window=view.window)
    return thumbnail(image.pixels(small, small.geometry(*image.size)))


class _Blocks:
    """The views of one scale on their way into the store, one entry at a time."""

    def __init__(self, job: Job, key: str, scale: int) -> None:
        self._job, self._key, self._scale = job, key, scale
        self._every: list[tuple[int, Placed]] = []
        self._waiting: list[Array] = []
        self.stored = 0

    def add(self, position: int, view: Placed, pixels: Array) -> None:
        """A view of the image at a position of the chunk."""
        self._every.append((position, view))
        self._waiting.append(pixels)
        if len(self._waiting) == self._job.block:
            self.flush()

    def flush(self) -> None:
        """Write what is waiting."""
        if not self._waiting:
            return
        store, batch = self._job.store, self._job.batch
        backbone = load_network(store, self._job.networks[self._scale])
        entry: dict[str, Array] = {"layers": np.array([len(backbone.info.maps)])}
        for start in range(0, len(self._waiting), batch):
            for layer, maps in enumerate(backbone(np.stack(self._waiting[start : start + batch]))):
                entry |= {layer_name(start + i, layer): one for i, one in enumerate(maps)}
        first = len(self._every) - len(self._waiting)
        for i, (_, view) in enumerate(self._every[first:]):
            if view.inside is not None:
                entry[inside_name(i)] = view.inside
        self.stored += store.put(_block_key(self._key, self._scale, first // self._job.block), entry)
        self._waiting.clear()

    @property
    def numbers(self) -> Array:
        """The position of its image, its number there, and whether it is masked, of every view: (n, 3)."""
        rows = [(position, view.number, view.inside is not None) for position, view in self._every]
        return np.array(rows, np.int32).reshape(-1, 3)

    @property
    def places(self) -> Array:
        """Where every view lies, (n, 10)."""
        rows = [(*_edges(view.where), *view.where.overlaps) for _, view in self._every]
        return np.array(rows, np.float64).reshape(-1, 10)


def _edges(where: Geometry) -> tuple[float, ...]:
    return (where.height, where.width, *where.box)


def _listed(job: Job, key: str, index: Mapping[str, Array], images: Sequence[int]) -> tuple[StoredImage, ...]:
    """The images of a chunk, which has these indices, as its entry tells them."""
    scales = [_located(job, key, index, images, scale) for scale in range(len(job.views))]
    return tuple(
        StoredImage(images[position], tuple(tuple(views[position]) for views in scales))
        for position in index["kept"]
    )


def _located(
    job: Job, key: str, index: Mapping[str, Array], images: Sequence[int], scale: int
) -> defaultdict[int, list[Located]]:
    """The views of one scale, by the position of their image."""
    found: defaultdict[int, list[Located]] = defaultdict(list)
    rows = zip(index[f"{scale}.views"].tolist(), index[f"{scale}.where"].tolist(), strict=True)
    for i, ((position, number, masked), place) in enumerate(rows):
        block, at = divmod(i, job.block)
        height, width, top, left, bottom, right, *overlaps = place
        above, before, below, after = overlaps
        where = Geometry(int(height), int(width), top, left, bottom, right, (above, before, below, after))
        entry = _block_key(key, scale, block)
        found[position].append(Located(images[position], number, entry, at, where, bool(masked)))
    return found


def _block_key(key: str, scale: int, block: int) -> str:
    return entry_key(key, scale, block)
