"""Is a model file consistent? Shapes against each other, types, ranges, finite numbers, indices against names.

Hashes tell damage; these checks tell a file that was made up, by another program or with intent. What passes can be
scored with: no number in it can crash a graph or silence a verdict.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from math import isfinite, prod
from typing import Any

import numpy as np
import onnx
from google.protobuf.message import DecodeError
from onnx import TensorProto

from mhpatchcore.backbone.custom import check_harmless
from mhpatchcore.backbone.descriptors import LOCAL
from mhpatchcore.config import Config
from mhpatchcore.inputs.camera import MEASURES
from mhpatchcore.inputs.decode import MOST_PIXELS
from mhpatchcore.inputs.turns import EVERY_TURN, TURNS
from mhpatchcore.inputs.views import MOST_TILES
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

# every tensor of a file, and those of each scale: types and sizes, of which those with one name are equal
Kinds = dict[str, tuple[str, tuple[str | int, ...]]]
TENSORS: Kinds = {
    "images.thumbnails": ("f2", ("images", SIDE**2)),
    "images.measures": ("f4", ("images", len(MEASURES))),
    "calibration.scores": ("f4", ("scores",)),
    "calibration.peaks": ("f4", ("scores",)),
    "deciding.images": ("i4", ("deciding",)),
    "deciding.sizes": ("i4", ("deciding", 2)),
}
OF_SCALE: Kinds = {
    "moments.mean": ("f8", ("d",)),
    "moments.M2": ("f8", ("d", "d")),
    "moments.rest": ("f8", ("d",)),
    "variances": ("f8", ("variances",)),
    "whitening.A": ("f8", ("k", "d")),
    "bank.raw": ("f2 f4", ("K", "d")),
    "bank.origin": ("i4", ("K", 4)),
    "bank.weights": ("f4", ("K",)),
    "deciding.cells": ("i4", ("deciding", "cells")),
    "deciding.rows": ("f2", ("deciding", "cells", "d")),
    "graph": ("u1", ("bytes",)),
}
OF_DEFECTS: Kinds = {"defects.rows": ("f2", ("rows", "d")), "defects.kinds": ("i4", ("rows",))}


def check_document(document: Mapping[str, Any]) -> None:
    """The kinds of what the JSON document says."""
    _expect(isinstance(document["version"], str), "it names no version")
    _expect(isinstance(document["product"], str), "its product is not a text")
    _expect(isinstance(document["config"], dict), "its settings are not a table")
    missing = {field.name for field in fields(Config)} - set(document["config"])
    _expect(not missing, f"the setting {min(missing, default='')} is missing")
    roi = document["config"]["roi"]  # a text would be a file or a URL, to be read by whoever loads the model
    _expect(roi is None or isinstance(roi, dict), "its region of interest is not of its kind")
    for name in ("images", "hashes", "excluded"):
        _expect(_texts(document[name]), f"{name} are not texts")
    _expect(len(document["hashes"]) == len(document["images"]), "images and hashes differ in number")
    _expect(_whole(document["n_learnt"]) and document["n_learnt"] >= 1, "it has learnt from no images")
    _expect(isinstance(document["history"], list), "its history is not a list")
    for event in document["history"]:
        names = ("what", "source", "when", "version", "who", "note", "device")
        texts = all(isinstance(event[name], str) for name in names)
        _expect(texts and _whole(event["images"]) and _whole(event["total"]), "an event is not of its kind")
        _expect(_number(event["false_alarm"]), "an event has no rate")
    _expect(isinstance(document["defects"], list), "its known defects are not a list")
    for defect in document["defects"]:
        named = isinstance(defect["name"], str) and 0 < len(defect["name"]) <= MOST_NAME
        _expect(named and _whole(defect["images"]) and defect["images"] >= 1, "a known defect has no name")
    distinct = {defect["name"] for defect in document["defects"]}
    _expect(len(distinct) == len(document["defects"]), "two known defects have one name")
    rate, method, by_hand = (document["calibration"][name] for name in ("false_alarm", "method", "by_hand"))
    judged = _number(rate) and 0 < rate < 1 and isinstance(method, str)
    fixed = by_hand is None or (_number(by_hand) and by_hand > 0)
    _expect(judged and fixed, "its calibration is not of its kind")
    _expect(isinstance(document["scales"], list) and document["scales"] != [], "it has no scales")
    for scale in document["scales"]:
        _expect(
            _whole(scale["n_patches"]) and 0 < scale["n_patches"] < MOST_PATCHES, "n_patches is out of range"
        )
        for name in ("lam", "jitter", "retained"):
            _expect(_number(scale[name]) and 0 <= scale[name] <= 1 + 1e-9, f"{name} is out of range")
        _check_backbone(scale["backbone"])
    _expect(isinstance(document["sha256"], dict), "it names no hashes")


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
    for name, (kind, shape) in kinds.items():
        tensor = tensors[prefix + name]
        fits = len(shape) == tensor.ndim and all(
            found == (wanted if isinstance(wanted, int) else sizes.setdefault(wanted, found))
            for wanted, found in zip(shape, tensor.shape, strict=True)
        )
        known = tensor.dtype in [np.dtype(one) for one in kind.split()]
        _expect(fits and known, f"{prefix}{name} is {tensor.dtype} {tensor.shape}")
        finite = kind[0] != "f" or name in MAY_BE_UNKNOWN or np.isfinite(tensor)
        _expect(finite, f"{prefix}{name} holds numbers that are not finite")


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
    _expect(model.calibration.scores >= 0, "a calibration score is negative")
    _expect(model.calibration.peaks >= 0, "a calibration peak is negative")
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
        _expect((scale.weights > 0) & (scale.weights <= 1), f"{i}.bank has weights out of range")
        _expect(np.diag(scale.moments.M2) >= 0, f"{i}.moments have a negative variance")
        means = np.abs(scale.moments.mean).max(), np.abs(scale.moments.rest).max(), np.abs(scale.raw).max()
        _expect(max(map(float, means)) <= LARGEST, f"{i}.moments or {i}.bank are larger than descriptors are")
        scatter = np.abs(scale.moments.M2).max()
        _expect(scatter <= scale.moments.n * LARGEST**2, f"{i}.moments are larger than descriptors allow")
        _expect(scale.variances >= 0, f"{i}.variances are negative")
        if model.defects.names:
            kinds = model.defects.kinds[i]
            known = (kinds >= 0) & (kinds < len(model.defects.names))
            _expect(known, f"{i}.defects have no names")
            _expect(info.patches * len(kinds) <= MOST_DISTANCES, f"{i}.defects are too many for its grid")
        for one in model.calibration.deciding:
            _expect(1 <= min(one.size) <= prod(one.size) <= MOST_PIXELS, "an image's size is out of range")
            cells, views = one.cells[i], model.config.views[i].count(*one.size)
            _expect(views <= MOST_TILES, "an image has too many tiles")
            inside = (cells >= 0) & (cells < views * info.patches)
            _expect(inside, "deciding patches lie outside of the grid")
            _expect(-1 <= one.image < len(model.images), "deciding patches are of unknown images")
    _check_graphs(model)


def _check_graphs(model: Model) -> None:
    """A network takes the view and gives the maps of its description, and does nothing else."""
    for scale in model.scales:
        info = scale.backbone.info
        try:
            network = onnx.load_model_from_string(scale.backbone.graph)
        except DecodeError as error:
            raise ValueError("its network is not an ONNX graph") from error
        check_harmless(network, (1, info.height, info.width, 3))
        graph = network.graph
        inputs, outputs = ([_signature(one) for one in side] for side in (graph.input, graph.output))
        view = ("image", TensorProto.FLOAT, (info.height, info.width, 3))
        maps = [(f"{LOCAL}{i}", TensorProto.FLOAT16, shape) for i, shape in enumerate(info.maps)]
        _expect(inputs == [view] and outputs == maps, "its network does not fit to its description")


def _signature(value: Any) -> tuple[str, int, tuple[int, ...]]:
    """A graph's input or output: its name, type, and shape behind the first axis."""
    tensor = value.type.tensor_type
    return value.name, tensor.elem_type, tuple(dim.dim_value for dim in tensor.shape.dim[1:])


def _check_backbone(info: Mapping[str, Any]) -> None:
    for name in ("name", "weights_sha256", "weights_source", "descriptor", "precision"):
        _expect(isinstance(info[name], str), f"the backbone's {name} is not a text")
    _expect(_texts(info["layers"]), "the backbone's layers are not texts")
    for name in ("height", "width"):
        _expect(_whole(info["pool"]) and info["pool"] >= 1, "the backbone's pool is out of range")
        _expect(_whole(info[name]) and 1 <= info[name] <= 2**14, f"the view's {name} is out of range")
    maps = info["maps"]
    _expect(
        isinstance(maps, list) and len(maps) == len(info["layers"]) > 0, "layers and maps differ in number"
    )
    for shape in maps:
        _expect(
            len(shape) == 3 and all(_whole(side) and side > 0 for side in shape), "a map is not of its kind"
        )
        _expect(shape[1] * shape[2] <= MOST_CELLS, "a map is absurdly large")
        _expect(shape[1] <= maps[0][1] and shape[2] <= maps[0][2], "the first map is not the finest")


def _expect(holds: bool | Array, otherwise: str) -> None:
    """Refuse what does not hold, of an array everywhere."""
    if not (holds.all() if isinstance(holds, np.ndarray) else holds):
        raise ValueError(otherwise)


def _number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and isfinite(value)


def _whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _texts(values: Any) -> bool:
    return isinstance(values, list) and all(isinstance(value, str) for value in values)
