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

from mhpatchcore.backbone import efficientnet_lite, resnet
from mhpatchcore.backbone.architecture import Architecture, FeatureMap
from mhpatchcore.backbone.descriptors import append_descriptors
from mhpatchcore.backbone.graph import GRAPH_VERSION, Graph, State
from mhpatchcore.backbone.session import BackboneInfo
from mhpatchcore.backbone.weights import find_weights, load_weights, sha256_of
from mhpatchcore.errors import UserError, WeightsError
from mhpatchcore.runtime.arrays import Array
from mhpatchcore.runtime.files import atomic_path, write_text
from mhpatchcore.runtime.memory import give_back

ARCHITECTURES: dict[str, Architecture] = {**efficientnet_lite.ARCHITECTURES, **resnet.ARCHITECTURES}


def load_named(
    name: str,
    file: Path | None,
    tag: str,
    size: tuple[int, int],
    layers: Sequence[str],
    descriptor: str,
    place: bool = False,
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
    path, source = find_weights(name, tag, file)
    sha256 = sha256_of(path)
    key = f"{name}-{sha256[:16]}-{'-'.join(layers)}-{descriptor}{'-place' * place}-{size[0]}x{size[1]}-v{GRAPH_VERSION}"
    cached = _read_cache(key)
    if cached:
        info, graph = cached
        return replace(info, weights_source=source), graph
    weights = load_weights(name, tag, file)
    graph, tail = build_graph(architecture, weights.state, size, layers, descriptor, place)
    give_back()
    info = BackboneInfo(
        name=name,
        weights_sha256=weights.sha256,
        weights_source=weights.source,
        layers=layers,
        descriptor=descriptor,
        height=size[0],
        width=size[1],
        grid=(tail.height, tail.width),
        dim=tail.channels - 2 * place,
        place=place,
    )
    with suppress(UserError, OSError):  # a folder that cannot be written costs a second per start, no more
        _write_cache(key, info, graph)
    return info, graph


def build_graph(
    architecture: Architecture,
    state: State,
    size: tuple[int, int],
    layers: Sequence[str],
    descriptor: str,
    place: bool = False,
) -> tuple[bytes, FeatureMap]:
    """The network cut after its last needed layer, ending in descriptors: ONNX bytes and the final map."""
    graph = Graph(architecture.name, *size)
    tensors = _Witnessed(state)
    try:
        image = graph.normalised_image(architecture.mean, architecture.std)
        maps = architecture.build(graph, tensors, image, layers)
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
    tail = append_descriptors(graph, [maps[layer] for layer in layers], descriptor, place)
    return graph.model(tail.name, ["N", tail.height, tail.width, tail.channels]).SerializeToString(), tail


class _Witnessed(Mapping[str, Array]):
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
