"""The chunks and the tasks of a fit.

Chunks are the unit of work and of rounding. Each is computed by itself on one thread, and their results are put
together by trees of a fixed shape, so a model does not depend on batch size, workers or where tasks run. Tasks are pure
functions of picklable values, which any thread, process or machine may run.

Descriptors never travel: tasks write them to the store and read them from there. Networks, metrics and scoring graphs
are entries too; a process loads each of them once.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TypeVar

import numpy as np

from mhpatchcore.backbone.session import Backbone, BackboneInfo, current_device
from mhpatchcore.backbone.stored import StoredView, counting, stored_inside, stored_maps
from mhpatchcore.bank.patches import Patches, grid_origin
from mhpatchcore.config import Config
from mhpatchcore.inputs.views import AUTO, EVERY_TURN, TURNS, Turn
from mhpatchcore.metric.whitening import Whitening
from mhpatchcore.runtime.parallel import Memoised
from mhpatchcore.runtime.store import Store, entry_key
from mhpatchcore.runtime.system import give_back
from mhpatchcore.scoring.score import load_head

Item = TypeVar("Item")


def turns_of(config: Config) -> tuple[Turn, ...]:
    """How the views of an image are turned before they are learnt; all ways, while it is to be found out."""
    return EVERY_TURN if config.augment == AUTO else TURNS[config.augment]


def images_at_once(config: Config) -> int:
    """Images of one task: a chunk of views is then full, but an image that is cut into tiles has many of its own."""
    return 1 if config.tiled else max(1, config.chunk_images // len(turns_of(config)))


def bank_chunks(views: Sequence[StoredView], config: Config) -> tuple[tuple[StoredView, ...], ...]:
    """The chunks that make the bank: views in random order, or as they come if the configuration does not shuffle.

    Images that stand side by side are often alike, taken one after the other of the same lot. A chunk of them would
    spend its share of the bank on small differences.
    """
    if not config.shuffle:
        return cut(views, config.chunk_images)
    order = np.random.default_rng(config.seed).permutation(len(views))
    return cut([views[i] for i in order], config.chunk_images)


def cut(items: Sequence[Item], size: int) -> tuple[tuple[Item, ...], ...]:
    """
    >>> cut("abcde", 2)
    (('a', 'b'), ('c', 'd'), ('e',))
    """
    return tuple(tuple(items[i : i + size]) for i in range(0, len(items), size))


def put_network(store: Store, backbone: Backbone) -> str:
    """Keep a network in the store; its key."""
    key = entry_key("network", backbone.graph_sha256, current_device())
    info = json.dumps(backbone.info.to_json()).encode()
    store.put(key, {"graph": np.frombuffer(backbone.graph, np.uint8), "info": np.frombuffer(info, np.uint8)})
    return key


def put_metric(store: Store, whitening: Whitening) -> str:
    return store.put_by_content("metric", {"A": whitening.A, "mean": whitening.mean})


def put_patches(store: Store, patches: Patches) -> str:
    return store.put_by_content("patches", patches.arrays)


def whitened(store: Store, metric: str, chunk: Sequence[StoredView]) -> Patches:
    """The whitened patches of some views, with their origin."""
    whitening, parts = load_metric(store, metric), []
    for view in chunk:
        maps, inside = stored_maps(store, view), stored_inside(store, view)
        origin = grid_origin([view.image], maps[0].shape[1:], view.view)
        parts.append(Patches(counting(whitening.of_maps(maps), inside), counting(origin, inside)))
    return Patches.concat(parts)


def forget_networks() -> None:
    """Let go of the networks of this process, which only the first pass needs."""
    load_network.forget()
    give_back()


def forget() -> None:
    """Let go of all that this process has loaded from stores."""
    for loaded in (load_network, load_metric, load_head, load_patches):
        loaded.forget()
    give_back()


@Memoised
def load_network(store: Store, key: str) -> Backbone:
    entry = store.get(key)
    info = BackboneInfo.from_json(json.loads(entry["info"].tobytes()))
    return Backbone(info, entry["graph"].tobytes(), threads=1)


@Memoised
def load_metric(store: Store, key: str) -> Whitening:
    return Whitening(**store.get(key), lam=0.0, jitter=0.0, retained=0.0)


@Memoised
def load_patches(store: Store, key: str) -> Patches:
    return Patches(**store.get(key))
