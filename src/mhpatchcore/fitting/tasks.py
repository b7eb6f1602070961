"""The tasks of a fit: pure functions of picklable values, which any thread, process or machine may run.

Descriptors never travel: tasks write them to the store and read them from there. Networks, metrics and scoring graphs
are entries too; a process loads each of them once.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from mhpatchcore.backbone.alignment import aligned_rows
from mhpatchcore.backbone.descriptors import LOCAL
from mhpatchcore.backbone.session import Backbone, BackboneInfo, make_session
from mhpatchcore.bank.patches import Patches, grid_origin
from mhpatchcore.errors import UserError
from mhpatchcore.fitting.plan import Located, StoredImage
from mhpatchcore.fitting.store import Store, content_key, entry_key
from mhpatchcore.inputs.views import Geometry
from mhpatchcore.metric.whitening import Whitening
from mhpatchcore.runtime.arrays import Array, Floats, Indices, Mask
from mhpatchcore.runtime.memory import give_back
from mhpatchcore.runtime.parallel import Once
from mhpatchcore.scoring.graph import EXCLUDED, SCORES


def put_network(store: Store, backbone: Backbone) -> str:
    """Keep a network in the store; its key."""
    key = entry_key("network", backbone.graph_sha256)
    info = json.dumps(backbone.info.to_json()).encode()
    store.put(key, {"graph": np.frombuffer(backbone.graph, np.uint8), "info": np.frombuffer(info, np.uint8)})
    return key


def put_arrays(store: Store, kind: str, arrays: Mapping[str, Array]) -> str:
    """Keep what tasks need in the store, so that it does not travel with every one of them; its key."""
    key = content_key(kind, arrays)
    store.put(key, arrays)
    return key


def put_metric(store: Store, whitening: Whitening) -> str:
    return put_arrays(store, "metric", {"A": whitening.A, "mean": whitening.mean})


def put_patches(store: Store, patches: Patches) -> str:
    return put_arrays(store, "patches", patches.arrays)


def put_head(store: Store, graph: bytes, images: Indices) -> str:
    """Keep a graph over stored layers in the store, with the images (K,) that bank rows come from; its key."""
    return put_arrays(store, "head", {"graph": np.frombuffer(graph, np.uint8), "images": images})


def stored_maps(store: Store, view: Located) -> list[Array]:
    """The layers (C_l, h_l, w_l) of a view, as halves."""
    layers = store.get(view.entry, ["layers"])["layers"][view.position]
    return list(store.get(view.entry, [layer_name(view.position, layer) for layer in range(layers)]).values())


def stored_inside(store: Store, view: Located) -> Mask | None:
    """Which patches (h, w) of a view count; None where all do."""
    name = inside_name(view.position)
    return store.get(view.entry, [name])[name] if view.masked else None


def aligned(store: Store, chunk: Sequence[Located]) -> Floats:
    """Descriptors (n, d) of all patches of some views that count."""
    rows = [_counting(aligned_rows(stored_maps(store, view)), stored_inside(store, view)) for view in chunk]
    return np.concatenate(rows)


def whitened(store: Store, metric: str, chunk: Sequence[Located]) -> Patches:
    """The whitened patches of some views, with their origin."""
    whitening, parts = load_metric(store, metric), []
    for view in chunk:
        maps, inside = stored_maps(store, view), stored_inside(store, view)
        origin = grid_origin([view.image], maps[0].shape[1:], view.view)
        parts.append(Patches(_counting(whitening.of_maps(maps), inside), _counting(origin, inside)))
    return Patches.concat(parts)


def raw_rows(store: Store, wanted: tuple[Located, Indices]) -> Array:
    """Descriptors (n, d), as halves, of some cells (n,) of one view's grid."""
    view, cells = wanted
    return aligned_rows(stored_maps(store, view))[cells].astype(np.float16)


def _counting(rows: Array, inside: Mask | None) -> Array:
    """Of the rows (h·w, …) of a grid those that count."""
    return rows if inside is None else rows[inside.ravel()]


@dataclass(frozen=True, eq=False)
class Scored:
    """What the scoring graph says of one view: its score, its map's peak, distances (h, w) of the map and the score.

    z (k, h·w) are the whitened patches, where they were asked for.
    """

    score: float
    peak: float
    nearest: Floats
    judged: Floats
    z: Floats | None = None


@dataclass(frozen=True, eq=False)
class ScoredView:
    """A view of one scale, where it lies, which of its patches count (None: all), and what the graph says of it."""

    scale: int
    where: Geometry
    inside: Mask | None
    scored: Scored


def score_stored(
    store: Store, heads: tuple[str, ...], wanted: tuple[StoredImage, int | None]
) -> list[list[ScoredView]] | None:
    """The views of a stored image, of every scale, without the bank rows of one image (itself).

    None where there are no other rows.
    """
    image, left_out = wanted
    scales = []
    for scale, (views, key) in enumerate(zip(image.scales, heads, strict=True)):
        session, images = load_head(store, key)
        own = images == left_out if left_out is not None else np.zeros(len(images), bool)
        if own.all():
            return None
        scored = []
        for view in views:
            maps, inside = stored_maps(store, view), stored_inside(store, view)
            feed = layers_feed(maps) | {"penalty": np.where(own, EXCLUDED, np.float32(0))}
            found = scored_by(session, feed, maps[0].shape[1:], inside)
            scored.append(ScoredView(scale, view.where, inside, found))
        scales.append(scored)
    return scales


def layers_feed(maps: Sequence[Array]) -> dict[str, Any]:
    """Stored layers as a graph takes them."""
    return {f"{LOCAL}{i}": layer[None] for i, layer in enumerate(maps)}


def scored_by(
    session: Any,
    feed: dict[str, Any],
    grid: tuple[int, ...],
    inside: Mask | None = None,
    options: Any = None,
    with_z: bool = False,
) -> Scored:
    """Run a scoring graph on a view of which only the patches inside (h, w) count.

    A score that is no number would be neither above nor below any threshold: it is refused.
    """
    counts = np.ones(grid, np.float32) if inside is None else inside.astype(np.float32)
    feed = feed | {"inside": counts.ravel()}
    score, peak, nearest, judged, *z = session.run([*SCORES, *["z"] * with_z], feed, options)
    if not all(np.isfinite(numbers).all() for numbers in (score, peak, nearest)):
        raise UserError("the model gives numbers that are not finite for this image: fit the model again")
    # copies: the originals lie in memory of the session, all of which would stay for as long as a result is kept
    distances = (nearest.reshape(grid).copy(), judged.reshape(grid).copy())
    return Scored(float(score[0]), float(peak[0]), *distances, *z)


def forget_networks() -> None:
    """Let go of the networks of this process, which only the first pass needs."""
    load_network.forget()
    give_back()


def forget() -> None:
    """Let go of all that this process has loaded from stores."""
    for loaded in (load_network, load_metric, load_head, load_patches):
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
def load_patches(store: Store, key: str) -> Patches:
    return Patches(**store.get(key))


@Once
def load_head(store: Store, key: str) -> tuple[Any, Indices]:
    """A session that scores stored layers, and the image (K,) that each bank row comes from."""
    entry = store.get(key)
    return make_session(entry["graph"].tobytes(), 1), entry["images"]


def layer_name(position: int, layer: int) -> str:
    return f"{position}.{layer}"


def inside_name(position: int) -> str:
    return f"{position}.inside"
