"""The tasks of a fit: pure functions of picklable values, which any thread, process or machine may run.

Descriptors never travel: tasks write them to the store and read them from there. Networks, metrics and scoring graphs
are entries too; a process loads each of them once.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from time import thread_time
from typing import Any

import numpy as np

from mhpatchcore.backbone.alignment import aligned_rows
from mhpatchcore.backbone.descriptors import LOCAL
from mhpatchcore.backbone.session import Backbone, BackboneInfo, make_session
from mhpatchcore.bank.patches import Patches, grid_origin
from mhpatchcore.errors import ImageError, UserError
from mhpatchcore.fitting.duplicates import SIDE, thumbnail
from mhpatchcore.fitting.plan import Located
from mhpatchcore.fitting.store import DamagedEntryError, Store, entry_key
from mhpatchcore.inputs.sources import ImageLike, content_hash, fetched
from mhpatchcore.inputs.views import View, load_views
from mhpatchcore.metric.moments import Moments
from mhpatchcore.metric.whitening import Whitening
from mhpatchcore.runtime.arrays import Array, Doubles, Floats, Indices
from mhpatchcore.runtime.memory import give_back
from mhpatchcore.runtime.parallel import Once
from mhpatchcore.scoring.graph import EXCLUDED, SCORES


@dataclass(frozen=True)
class Job:
    """What extraction needs: the store, and for each scale the view and the key of the network."""

    store: Store
    views: tuple[View, ...]
    networks: tuple[str, ...]
    batch: int = 1
    skip_broken: bool = False


@dataclass(frozen=True, eq=False)
class Extracted:
    """What a chunk gave: where its images are in the store, their hashes and thumbnails (n, 64), what was skipped.

    There are moments for each scale; `moments_seconds` of CPU time went into them, and the entry takes `stored` bytes.
    """

    images: tuple[Located, ...]
    hashes: tuple[str, ...]
    thumbnails: Floats
    moments: tuple[Moments, ...]
    skipped: tuple[str, ...]
    moments_seconds: float
    stored: int


def put_network(store: Store, backbone: Backbone) -> str:
    """Keep a network in the store; its key."""
    key = entry_key("network", backbone.graph_sha256)
    info = json.dumps(backbone.info.to_json()).encode()
    store.put(key, {"graph": np.frombuffer(backbone.graph, np.uint8), "info": np.frombuffer(info, np.uint8)})
    return key


def put_metric(store: Store, whitening: Whitening) -> str:
    arrays = {"A": whitening.A, "mean": whitening.mean}
    key = entry_key("metric", *(array.tobytes().hex() for array in arrays.values()))
    store.put(key, arrays)
    return key


def put_head(store: Store, graph: bytes, images: Indices) -> str:
    """Keep a graph over stored layers in the store, with the images (K,) that bank rows come from; its key."""
    arrays = {"graph": np.frombuffer(graph, np.uint8), "images": images}
    key = entry_key("head", *(array.tobytes().hex() for array in arrays.values()))
    store.put(key, arrays)
    return key


def extract(job: Job, chunk: tuple[tuple[int, ImageLike], ...]) -> Extracted:
    """Images (index, source) → descriptors in the store; those that are there already are not made again."""
    chunk = tuple((index, _fetched(job, source)) for index, source in chunk)
    hashes = [_hash_or_none(job, source) for _, source in chunk]
    key = entry_key("descriptors", hashes, job.views, job.networks)
    kept, skipped, stored = _found(job.store, key, len(chunk)), list[str](), 0
    if kept is None:
        kept, skipped, stored = _made(job, key, chunk)
    started = thread_time()
    images = tuple(Located(chunk[i][0], key, position) for position, i in enumerate(kept))
    moments = tuple(
        Moments.of_maps(stacked_maps(job.store, images, scale)) for scale in range(len(job.views)) if images
    )
    seconds = thread_time() - started
    known = tuple(hashes[i] or "" for i in kept)
    thumbnails = job.store.get(key, ["thumbnails"])["thumbnails"]
    return Extracted(images, known, thumbnails, moments, tuple(skipped), seconds, stored)


def moments_of(store: Store, scales: int, chunk: tuple[Located, ...]) -> tuple[Moments, ...]:
    """Of images that are in the store, for each scale."""
    return tuple(Moments.of_maps(stacked_maps(store, chunk, scale)) for scale in range(scales))


def stored_maps(store: Store, image: Located, scale: int) -> list[Array]:
    """The layers (C_l, h_l, w_l) of an image at one scale, as halves."""
    layers = store.get(image.entry, ["layers"])["layers"]
    names = [_layer_name(image.position, scale, layer) for layer in range(layers[scale])]
    return list(store.get(image.entry, names).values())


def stacked_maps(store: Store, chunk: Sequence[Located], scale: int) -> list[Array]:
    """The layers (N, C_l, h_l, w_l) of some images at one scale."""
    each = [stored_maps(store, image, scale) for image in chunk]
    return [np.stack(layers) for layers in zip(*each, strict=True)]


def aligned(store: Store, scale: int, chunk: tuple[Located, ...]) -> Floats:
    """Descriptors (N·h·w, d) of some images."""
    return np.concatenate([aligned_rows(stored_maps(store, image, scale)) for image in chunk])


def whitened(store: Store, scale: int, metric: str, chunk: tuple[Located, ...]) -> Patches:
    """The whitened patches of some images, with their origin."""
    whitening = load_metric(store, metric)
    maps = [stored_maps(store, image, scale) for image in chunk]
    z = np.concatenate([whitening.of_maps(layers) for layers in maps])
    return Patches(z, grid_origin([image.image for image in chunk], maps[0][0].shape[1:]))


def fourth_moment(store: Store, scale: int, W: Doubles, mean: Doubles, chunk: tuple[Located, ...]) -> float:
    """Σ ‖Wᵀ(u − mean)‖⁴ over all patches of some images, for Ledoit–Wolf."""
    squares = (((aligned(store, scale, chunk) - mean) @ W) ** 2).sum(axis=1)
    return float(squares @ squares)


def raw_rows(store: Store, scale: int, wanted: tuple[Located, Indices]) -> Array:
    """Descriptors (n, d), as halves, of some cells (n,) of one image's grid."""
    image, cells = wanted
    return aligned_rows(stored_maps(store, image, scale))[cells].astype(np.float16)


@dataclass(frozen=True, eq=False)
class Scored:
    """What the scoring graph says of one view: its score, its map's peak, distances (h, w) of the map and the score."""

    score: float
    peak: float
    nearest: Floats
    judged: Floats


def score_stored(
    store: Store, heads: tuple[str, ...], wanted: tuple[Located, int | None]
) -> tuple[Scored, ...] | None:
    """A stored image at every scale, without the bank rows of one image (itself); None where there are no others."""
    image, left_out = wanted
    scored = []
    for scale, key in enumerate(heads):
        session, images = load_head(store, key)
        maps = stored_maps(store, image, scale)
        own = images == left_out if left_out is not None else np.zeros(len(images), bool)
        if own.all():
            return None
        feed: dict[str, Any] = {f"{LOCAL}{i}": layer[None] for i, layer in enumerate(maps)}
        feed["penalty"] = np.where(own, EXCLUDED, np.float32(0))
        scored.append(scored_by(session, feed, maps[0].shape[1:]))
    return tuple(scored)


def scored_by(session: Any, feed: dict[str, Any], grid: tuple[int, ...]) -> Scored:
    """Run a scoring graph; a score that is no number would be neither above nor below any threshold."""
    score, peak, nearest, judged = session.run(list(SCORES), feed)
    if not all(np.isfinite(numbers).all() for numbers in (score, peak, nearest)):
        raise UserError("the model gives numbers that are not finite for this image: fit the model again")
    return Scored(float(score[0]), float(peak[0]), nearest.reshape(grid), judged.reshape(grid))


def forget_networks() -> None:
    """Let go of the networks of this process, which only the first pass needs."""
    load_network.forget()
    give_back()


def forget() -> None:
    """Let go of all that this process has loaded from stores."""
    for loaded in (load_network, load_metric, load_head):
        loaded.forget()
    give_back()


@Once
def load_network(store: Store, key: str) -> Backbone:
    entry = store.get(key)
    info = BackboneInfo.from_json(json.loads(entry["info"].tobytes()))
    return Backbone(info, entry["graph"].tobytes(), threads=1)


@Once
def load_metric(store: Store, key: str) -> Whitening:
    return Whitening(**store.get(key), lam=0.0, jitter=0.0, retained=0.0)


@Once
def load_head(store: Store, key: str) -> tuple[Any, Indices]:
    """A session that scores stored layers, and the image (K,) that each bank row comes from."""
    entry = store.get(key)
    return make_session(entry["graph"].tobytes(), 1), entry["images"]


def _fetched(job: Job, source: ImageLike) -> ImageLike:
    """An image that has to be made is made once, for its hash and for its views."""
    try:
        return fetched(source)
    except ImageError:
        if not job.skip_broken:
            raise
        return source


def _hash_or_none(job: Job, source: ImageLike) -> str | None:
    try:
        return content_hash(source)
    except ImageError:
        if not job.skip_broken:
            raise
        return None


def _found(store: Store, key: str, images: int) -> list[int] | None:
    """The positions in the chunk of the images that an entry holds, if it is there, undamaged, and holds them all.

    One without some images is made again: those may be refused this time, and are told in any case.
    """
    if not store.has(key):
        return None
    try:
        kept = [int(i) for i in store.get(key)["kept"]]
    except DamagedEntryError:
        return None
    return kept if len(kept) == images else None


def _made(job: Job, key: str, chunk: tuple[tuple[int, ImageLike], ...]) -> tuple[list[int], list[str], int]:
    """Decode, run the networks, write the entry: positions that could be read, why others could not, bytes written."""
    views: list[list[Array]] = [[] for _ in job.views]
    kept, skipped = [], []
    for i, (_, source) in enumerate(chunk):
        try:
            for scale, seen in enumerate(load_views(source, job.views)):
                views[scale].append(seen.pixels)
            kept.append(i)
        except ImageError as error:
            if not job.skip_broken:
                raise
            skipped.append(f"skipped: {error}")
    thumbnails = np.array([thumbnail(view) for view in views[0]], np.float16).reshape(-1, SIDE**2)
    entry: dict[str, Array] = {"kept": np.array(kept, np.int32), "thumbnails": thumbnails}
    layers = []
    for scale, network in enumerate(job.networks):
        backbone = load_network(job.store, network)
        layers.append(len(backbone.info.maps))
        for start in range(0, len(kept), job.batch):
            for layer, maps in enumerate(backbone(np.stack(views[scale][start : start + job.batch]))):
                entry |= {_layer_name(start + i, scale, layer): one for i, one in enumerate(maps)}
    return kept, skipped, job.store.put(key, entry | {"layers": np.array(layers, np.int32)})


def _layer_name(position: int, scale: int, layer: int) -> str:
    return f"{position}.{scale}.{layer}"
