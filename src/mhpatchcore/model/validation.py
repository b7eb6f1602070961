"""Is a model file consistent? Shapes against each other, types, ranges, finite numbers, indices against names.

Hashes tell damage; these checks tell a file that was made up, by another program or with intent. What passes can be
scored with: no number in it can crash a graph or silence a verdict.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from math import inf, isfinite, prod
from typing import Any

import numpy as np
import onnx
from google.protobuf.message import DecodeError
from onnx import TensorProto

from mhpatchcore.backbone.custom import check_harmless
from mhpatchcore.backbone.descriptors import LOCAL
from mhpatchcore.config import Config
from mhpatchcore.errors import in_one_line
from mhpatchcore.inputs.decode import MOST_PIXELS
from mhpatchcore.inputs.loading import MEASURES
from mhpatchcore.inputs.views import EVERY_TURN, MOST_TILES, TURNS
from mhpatchcore.inputs.window import Window
from mhpatchcore.model.duplicates import SIDE
from mhpatchcore.model.value import Model
from mhpatchcore.runtime.arrays import Array
from mhpatchcore.scoring.known_defects import MOST_NAME

MOST_PATCHES = 2**40
MOST_CELLS = 2**22
MOST_DISTANCES = 2**31  # between the patches of a view and the bank's rows, 8 GB
MAY_BE_UNKNOWN = ("images.measures",)  # NaN, as of the place of a part where there is none
LARGEST = 1.001 * float(np.finfo(np.float16).max)  # descriptors are halves, and what comes of them no larger

# every tensor of a file, and those of each scale: types, sizes, of which those with one name are equal, and least and
# largest number
Kinds = dict[str, tuple[str, tuple[str | int, ...], float, float]]
TENSORS: Kinds = {
    "images.thumbnails": ("f2", ("images", SIDE**2), -inf, inf),
    "images.measures": ("f4", ("images", len(MEASURES)), -inf, inf),
    "calibration.scores": ("f4", ("scores",), 0, inf),
    "calibration.peaks": ("f4", ("scores",), 0, inf),
    "deciding.images": ("i4", ("deciding",), -1, inf),
    "deciding.sizes": ("i4", ("deciding", 2), 1, MOST_PIXELS),
}
OF_SCALE: Kinds = {
    "moments.mean": ("f8", ("d",), -LARGEST, LARGEST),
    "moments.M2": ("f8", ("d", "d"), -inf, inf),
    "moments.rest": ("f8", ("d",), -LARGEST, LARGEST),
    "variances": ("f8", ("variances",), 0, inf),
    "whitening.A": ("f8", ("k", "d"), -inf, inf),
    "bank.raw": ("f2 f4", ("K", "d"), -LARGEST, LARGEST),
    "bank.origin": ("i4", ("K", 4), -inf, inf),
    "bank.weights": ("f4", ("K",), float(np.finfo(np.float32).tiny), 1),
    "deciding.cells": ("i4", ("deciding", "cells"), 0, inf),
    "deciding.rows": ("f2", ("deciding", "cells", "d"), -inf, inf),
    "graph": ("u1", ("bytes",), 0, 255),
}
OF_DEFECTS: Kinds = {
    "defects.rows": ("f2", ("rows", "d"), -inf, inf),
    "defects.kinds": ("i4", ("rows",), 0, inf),
}

# the JSON document: a table of names and kinds, [a list of one kind], or types
NUMBER, TEXTS = int | float, [str]
BACKBONE = dict.fromkeys(("name", "weights_sha256", "weights_source", "descriptor", "precision"), str) | {
    "height": int,
    "width": int,
    "pool": int,
    "layers": TEXTS,
    "maps": [[int]],
}
EVENT = dict.fromkeys(("what", "source", "when", "version", "who", "note", "device"), str) | {
    "images": int,
    "total": int,
    "false_alarm": NUMBER,
    "threshold": NUMBER | None,
}
DOCUMENT = {
    "format": int,
    "version": str,
    "product": str,
    "n_learnt": int,
    "sha256": dict,
    "images": TEXTS,
    "hashes": TEXTS,
    "excluded": TEXTS,
    "history": [EVENT],
    # a region that is a text would be a file or a URL, to be read by anyone who loads the model
    "config": dict.fromkeys((field.name for field in fields(Config)), object) | {"roi": dict | None},
    "calibration": {"false_alarm": NUMBER, "method": str, "by_hand": NUMBER | None},
    "defects": [{"name": str, "images": int}],
    "scales": [
        {"backbone": BACKBONE, "n_patches": int} | dict.fromkeys(("lam", "jitter", "retained"), NUMBER)
    ],
}


def check_document(document: Mapping[str, Any]) -> None:
    """What the JSON document says: its kinds, and the ranges of its numbers."""
    _check_kind("its description", document, DOCUMENT)
    calibration, by_hand = document["calibration"], document["calibration"]["by_hand"]
    names = [defect["name"] for defect in document["defects"]]
    named = len(set(names)) == len(names) and all(0 < len(name) <= MOST_NAME for name in names)
    _expect(named, "its known defects have no names of their own")
    _expect(all(defect["images"] >= 1 for defect in document["defects"]), "a known defect has no images")
    _expect(len(document["hashes"]) == len(document["images"]), "images and hashes differ in number")
    _expect(document["n_learnt"] >= 1, "it has learnt from no images")
    _expect(
        0 < calibration["false_alarm"] < 1 and (by_hand is None or by_hand > 0), "its rate is out of range"
    )
    _expect(document["scales"] != [], "it has no scales")
    for scale in document["scales"]:
        _expect(0 < scale["n_patches"] < MOST_PATCHES, "n_patches is out of range")
        for name in ("lam", "jitter", "retained"):
            _expect(0 <= scale[name] <= 1 + 1e-9, f"{name} is out of range")
        info, maps = scale["backbone"], scale["backbone"]["maps"]
        sides = info["height"], info["width"]
        _expect(info["pool"] >= 1 and 1 <= min(sides) <= max(sides) <= 2**14, "its view is out of range")
        _expect(len(maps) == len(info["layers"]) > 0, "layers and maps differ in number")
        for shape in maps:
            _expect(len(shape) == 3 and min(shape) > 0, "a map is not of its kind")
            _expect(shape[1] * shape[2] <= MOST_CELLS, "a map is absurdly large")
            _expect(shape[1] <= maps[0][1] and shape[2] <= maps[0][2], "the first map is not the finest")


def _check_kind(name: str, value: Any, kind: Any) -> None:
    """Refuse a value of the document that is not of its kind."""
    if isinstance(kind, dict):
        _check_kind(name, value, dict)
        for key in sorted(kind.keys() | value.keys()):
            _expect(key in value, f"{key} is missing in {name}")
            _expect(key in kind, f"{name} has no {key}")
            _check_kind(key, value[key], kind[key])
    elif isinstance(kind, list):
        _check_kind(name, value, list)
        for one in value:
            _check_kind(name, one, kind[0])
    elif kind is not object:
        fits = isinstance(value, kind) and not isinstance(value, bool)
        _expect(fits and (not isinstance(value, NUMBER) or isfinite(value)), f"{name} is not of its kind")


def check_tensors(document: Mapping[str, Any], tensors: Mapping[str, Array]) -> None:
    """Every tensor is there, with its shape and type, and finite."""
    names, sizes = set(TENSORS), {"images": len(document["images"])}
    _check_shapes("", TENSORS, tensors, sizes)
    _expect(sizes["deciding"] <= sizes["scores"], "there are more deciding patches than scores")
    kinds = OF_SCALE | (OF_DEFECTS if document["defects"] else {})
    for i, scale in enumerate(document["scales"]):
        d = sum(channels for channels, _, _ in scale["backbone"]["maps"])
        own = {"deciding": sizes["deciding"], "d": d}
        _check_shapes(f"{i}.", kinds, tensors, own)
        _expect(1 <= own["k"] <= d, f"{i}.whitening.A has no directions")
        _expect(own["K"] >= 1, f"{i}.bank has no rows")
        names |= {f"{i}.{name}" for name in kinds}
    unknown = set(tensors) - names
    _expect(not unknown, f"{min(unknown, default='')} does not belong to a model")
    _expect(set(document["sha256"]) == names, "hashes and tensors differ")


def _check_shapes(prefix: str, kinds: Kinds, tensors: Mapping[str, Array], sizes: dict[str, int]) -> None:
    """Tensors against their kinds; a size that is not known yet is that of the first tensor that has it."""
    for name, (kind, shape, least, most) in kinds.items():
        tensor = tensors[prefix + name]
        fits = len(shape) == tensor.ndim
        for wanted, found in zip(shape, tensor.shape, strict=False):
            size = wanted if isinstance(wanted, int) else sizes.setdefault(wanted, found)
            fits = fits and size == found
        known = tensor.dtype in [np.dtype(one) for one in kind.split()]
        _expect(fits and known, f"{prefix}{name} is {tensor.dtype} {tensor.shape}")
        in_range = name in MAY_BE_UNKNOWN or all(
            isfinite(end) and least <= end <= most for end in _ends(tensor)
        )
        _expect(in_range, f"{prefix}{name} holds numbers that are not finite, or out of range")


def _ends(tensor: Array) -> list[float]:
    """The least and the largest number, or NaN if one is in it; of halves, which are slow to compare, ± the largest.

    >>> _ends(np.array([1, -3, 2], np.float16)), _ends(np.array([np.nan, 1], np.float16))
    ([-3.0, 3.0], [nan, nan])
    """
    if not tensor.size:
        return []
    if (
        tensor.dtype == np.float16
    ):  # without their signs, their bits are ordered as they are, and NaN comes last
        largest = float((np.ascontiguousarray(tensor).view(np.uint16) & 0x7FFF).max().view(np.float16))
        return [-largest, largest]
    return [float(tensor.min()), float(tensor.max())]


def check_model(model: Model) -> None:
    """Numbers against each other."""
    infos = [scale.backbone.info for scale in model.scales]
    sizes = [(info.height, info.width, info.pool) for info in infos]
    _expect(sizes == [size[:3] for size in model.config.sizes], "views and settings differ in size")
    layers = {tuple(info.layers) for info in infos}
    _expect(layers == {tuple(model.config.layers)}, "network and settings differ in layers")
    window = model.config.window
    _expect(isinstance(window, Window) and window.depth != "", "its window is not known")
    _expect(model.config.false_alarm == model.calibration.false_alarm, "its rates differ")
    _expect(model.n_learnt <= len(model.images), "it has learnt from more images than it names")
    _expect(model.config.augment in TURNS, "it does not say which copies it has learnt")
    turns = TURNS[model.config.augment]
    for i, scale in enumerate(model.scales):
        info = scale.backbone.info
        whole = not model.config.sizes[i].zoom
        learnt, patches = scale.moments.n, model.n_learnt * len(turns) * info.patches
        fits = learnt == patches if model.config.roi is None else learnt <= patches
        _expect(fits or not whole, f"{i}.moments are not of its images")
        image, view, row, column = scale.origin.T
        single = image >= 0
        _expect(info.patches * len(scale.raw) <= MOST_DISTANCES, f"{i}.bank is too large for its grid")
        _expect((image >= -1) & (image < len(model.images)), f"{i}.bank has unknown images")
        turned = np.isin(view, [EVERY_TURN.index(turn) for turn in turns])
        known = turned if whole else (view >= 0) & (view < MOST_TILES * len(EVERY_TURN))
        _expect(known[single], f"{i}.bank has unknown views")
        inside = (row >= 0) & (row < info.grid[0]) & (column >= 0) & (column < info.grid[1])
        _expect(inside[single], f"{i}.bank has places outside of the grid")
        scatter = np.abs(scale.moments.M2).max()
        _expect(scatter <= scale.moments.n * LARGEST**2, f"{i}.moments are larger than descriptors allow")
        _expect(np.diag(scale.moments.M2) >= 0, f"{i}.moments have a negative variance")
        if model.defects.names:
            kinds = model.defects.kinds[i]
            _expect(kinds < len(model.defects.names), f"{i}.defects have no names")
            _expect(info.patches * len(kinds) <= MOST_DISTANCES, f"{i}.defects are too many for its grid")
        for one in model.calibration.deciding:
            _expect(prod(one.size) <= MOST_PIXELS, "an image's size is out of range")
            views = model.config.views[i].count(*one.size)
            _expect(views <= MOST_TILES, "an image has too many tiles")
            _expect(one.cells[i] < views * info.patches, "deciding patches lie outside of the grid")
            _expect(one.image < len(model.images), "deciding patches are of unknown images")
    _check_graphs(model)


def _check_graphs(model: Model) -> None:
    """A network takes the view and gives the maps of its description, and does nothing else."""
    for scale in model.scales:
        info = scale.backbone.info
        try:
            network = onnx.load_model_from_string(scale.backbone.graph)
        except DecodeError as error:
            raise ValueError("its network is not an ONNX graph") from error
        try:
            onnx.checker.check_model(scale.backbone.graph)
        except onnx.checker.ValidationError as error:
            raise ValueError(f"its network does not run: {in_one_line(error)}") from error
        shapes = check_harmless(network, (1, info.height, info.width, 3))
        newest = max((opset.version for opset in network.opset_import if not opset.domain), default=0)
        _expect(newest <= onnx.defs.onnx_opset_version(), "its network is written for an ONNX to come")
        graph = network.graph
        inputs, outputs = ([_signature(one) for one in side] for side in (graph.input, graph.output))
        view = ("image", TensorProto.FLOAT, (info.height, info.width, 3))
        maps = [(f"{LOCAL}{i}", TensorProto.FLOAT16, shape) for i, shape in enumerate(info.maps)]
        _expect(inputs == [view] and outputs == maps, "its network does not fit to its description")
        for name, _, told in maps:
            found = shapes.get(name, ())[1:]
            fits = all(known in (0, side) for known, side in zip(found, told, strict=bool(found)))
            _expect(fits, "its network gives maps of another size than it says")


def _signature(value: Any) -> tuple[str, int, tuple[int, ...]]:
    """A graph's input or output: its name, type, and shape behind the first axis."""
    tensor = value.type.tensor_type
    return value.name, tensor.elem_type, tuple(dim.dim_value for dim in tensor.shape.dim[1:])


def _expect(holds: bool | Array, otherwise: str) -> None:
    """Refuse what does not hold, of an array everywhere."""
    if not (holds.all() if isinstance(holds, np.ndarray) else holds):
        raise ValueError(otherwise)
