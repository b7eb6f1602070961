"""Building a named network's graph from its weights, once, and keeping it in the cache folder."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from mhpatchcore.backbone.descriptors import append_descriptors, descriptor_model
from mhpatchcore.backbone.graph import GRAPH_VERSION, Architecture, FeatureMap, Graph, State
from mhpatchcore.backbone.session import Backbone, BackboneInfo, check_sees
from mhpatchcore.backbone.weights import ARCHITECTURES, load_weights
from mhpatchcore.errors import UserError, WeightsError
from mhpatchcore.runtime.arrays import Array
from mhpatchcore.runtime.files import atomic_path, write_text
from mhpatchcore.runtime.system import give_back


def load_named(
    name: str,
    file: Path | None,
    tag: str,
    size: tuple[int, int],
    layers: Sequence[str],
    descriptor: str,
    pool: int = 1,
) -> tuple[BackboneInfo, bytes]:
    """The description and the graph of a named network, from the cache or built now."""
    if name not in ARCHITECTURES:
        raise UserError(
            f"unknown backbone '{name}'; choose one of {', '.join(ARCHITECTURES)}, or an .onnx file"
        )
    architecture = ARCHITECTURES[name]
    layers = tuple(layers) or architecture.layers
    by_network = {"": architecture.descriptor, "published": architecture.published}
    descriptor = by_network.get(descriptor, descriptor)
    check_sides(architecture, size, pool)
    weights = load_weights(name, tag, file)
    key = f"{name}-{weights.sha256[:16]}-{'-'.join(layers)}-{descriptor}{pool}-{size[0]}x{size[1]}-v{GRAPH_VERSION}"
    cached = _read_cache(key)
    if cached:
        info, graph = cached
        return replace(info, weights_source=weights.source), graph
    graph, maps = build_graph(architecture, weights.state, size, layers, descriptor, pool)
    give_back()
    info = BackboneInfo(
        name=name,
        weights_sha256=weights.sha256,
        weights_source=weights.source,
        layers=layers,
        descriptor=descriptor,
        height=size[0],
        width=size[1],
        maps=tuple((layer.channels, layer.height, layer.width) for layer in maps),
        pool=pool,
    )
    check_sees(Backbone(info, graph))
    with suppress(UserError, OSError):  # a folder that cannot be written costs a second per start, no more
        _write_cache(key, info, graph)
    return info, graph


def check_sides(architecture: Architecture, size: tuple[int, int], pool: int = 1) -> None:
    """Refuse a side that the network cannot divide into its patches, or those into groups of pool × pool."""
    if architecture.multiple == 1:
        return
    step = architecture.multiple * pool
    for side in size:
        if side % step:
            below = side - side % step
            averaged = f" where {pool} × {pool} patches are averaged" if pool > 1 else ""
            raise UserError(
                f"{architecture.name} takes multiples of {step} pixels{averaged}, and {side} is none: "
                f"use {below or step} or {below + step}"
            )


def build_graph(
    architecture: Architecture,
    state: State,
    size: tuple[int, int],
    layers: Sequence[str],
    descriptor: str,
    pool: int = 1,
) -> tuple[bytes, list[FeatureMap]]:
    """The network cut after its last needed layer, ending in descriptors: ONNX bytes and its output maps."""
    graph = Graph(architecture.name)
    tensors = _ReadOnce(state)
    try:
        image = graph.normalised_image(*size, architecture.mean, architecture.std)
        maps = architecture.build(graph, tensors, image, size, layers)
    except KeyError as missing:
        raise WeightsError(
            f"the weights hold no tensor {missing}: they are not for {architecture.name}"
        ) from None
    if tensors.left_over():
        raise WeightsError(
            f"{architecture.name} has no place for the weights' tensor '{tensors.left_over()[0]}': "
            "they are for another network"
        )
    unknown = [layer for layer in layers if layer not in maps]
    if unknown:
        raise UserError(f"{architecture.name} has no layer '{unknown[0]}'; it has: {', '.join(maps)}")
    local = append_descriptors(graph, [maps[layer] for layer in layers], descriptor, pool)
    return descriptor_model(graph, local), local


class _ReadOnce(Mapping[str, Array]):
    """A state dict that remembers which tensors were read."""

    def __init__(self, state: State) -> None:
        self.state = state
        self.read: set[str] = set()

    def __getitem__(self, name: str) -> Array:
        self.read.add(name)
        return self.state[name]

    def __contains__(self, name: object) -> bool:
        return name in self.state

    def __iter__(self) -> Iterator[str]:
        return iter(self.state)

    def __len__(self) -> int:
        return len(self.state)

    def left_over(self) -> list[str]:
        """Unread tensors in parts that were read. The classifier is a part of its own, and may be absent."""
        parts = {name.split(".")[0] for name in self.read}
        unread = (name for name in self if name not in self.read and name.split(".")[0] in parts)
        return [name for name in unread if not name.endswith("num_batches_tracked")]


def _read_cache(key: str) -> tuple[BackboneInfo, bytes] | None:
    """A graph that is still as it was written, or nothing."""
    graph_path, info_path = _cache_paths(key)
    with suppress(OSError, ValueError, KeyError, TypeError):
        fields: dict[str, Any] = dict(json.loads(info_path.read_text(encoding="utf-8")))
        graph = graph_path.read_bytes()
        if fields.pop("graph_sha256") == hashlib.sha256(graph).hexdigest():
            return BackboneInfo.from_json(fields), graph
    return None


def _write_cache(key: str, info: BackboneInfo, graph: bytes) -> None:
    graph_path, info_path = _cache_paths(key)
    with atomic_path(graph_path) as path:
        path.write_bytes(graph)
    fields = info.to_json() | {"graph_sha256": hashlib.sha256(graph).hexdigest()}
    write_text(info_path, json.dumps(fields))


def _cache_paths(key: str) -> tuple[Path, Path]:
    return cache_folder() / f"{key}.onnx", cache_folder() / f"{key}.json"


def cache_folder() -> Path:
    """$MHPATCHCORE_CACHE, or mhpatchcore in the user's cache folder."""
    chosen = os.environ.get("MHPATCHCORE_CACHE")
    if chosen:
        return Path(chosen)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "mhpatchcore"
