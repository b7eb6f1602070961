"""A whole detector as one ONNX file: an image of any size in; score, p-value, verdict, map and mask out.

    image → window → views (`pillow_resize.py`) → one scoring graph for each scale (`scoring/graph.py`)
          → their scores and maps as one (`scoring/score.py`) → verdict, mask

It holds the graphs that score everywhere else, and needs nothing but an ONNX runtime.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from functools import partial
from math import isfinite
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import onnx
from onnx import TensorProto, helper

from mhpatchcore import __version__
from mhpatchcore.backbone.descriptors import LOCAL
from mhpatchcore.backbone.graph import FLOAT, Graph, Shape
from mhpatchcore.calibration.threshold import Calibration
from mhpatchcore.config import Config
from mhpatchcore.deploy.pillow_resize import INT32, UINT8, resized
from mhpatchcore.errors import UserError
from mhpatchcore.inputs.window import Window
from mhpatchcore.model.file import to_bytes
from mhpatchcore.model.value import Model
from mhpatchcore.result import PEAK_SHARE
from mhpatchcore.runtime.arrays import Floats
from mhpatchcore.runtime.files import atomic_path
from mhpatchcore.runtime.parallel import one_blas_thread
from mhpatchcore.scoring.graph import Head, map_of, peak_of
from mhpatchcore.scoring.maps import smooth_upsampling, way_back
from mhpatchcore.scoring.score import Rule

# runtimes add in different orders: a score so little above another counts as equal, as it is where it is the same image
TIE = 1e-5
VELTKAMP = 2**13 + 1
PASSED, REJECTED, NO_THRESHOLD = 0, 1, -1
VERDICTS = {PASSED: "passed", REJECTED: "rejected", NO_THRESHOLD: "no threshold"}
INPUT_KINDS = {
    "8-bit": ("uint8", UINT8),
    "16-bit": ("uint16", TensorProto.UINT16),
    "float": ("float32", FLOAT),
}
KINDS = {"score": FLOAT, "p_value": FLOAT, "verdict": INT32, "map": FLOAT, "mask": UINT8}


class Exported(NamedTuple):
    """An exported file: its input's type and channels, and the size of its map and mask."""

    path: Path
    bytes: int
    sha256: str
    image: str
    channels: str
    height: int
    width: int

    def to_json(self) -> dict[str, Any]:
        return self._asdict() | {"path": str(self.path)}


def export_onnx(model: Model, path: str | Path, model_sha256: str | None = None) -> Exported:
    """Write a model as an ONNX file, whole or not at all; `model_sha256` is that of its own file."""
    content = onnx_bytes(model, model_sha256)
    with atomic_path(path) as temporary:
        temporary.write_bytes(content)
    window, (height, width) = model.config.views[0].window, _finest(model.config)
    channels = "1 or 3" if window.frames == 1 else str(window.frames)
    kind, _ = INPUT_KINDS[window.depth or "8-bit"]
    sha256 = hashlib.sha256(content).hexdigest()
    return Exported(Path(path), len(content), sha256, kind, channels, height, width)


def onnx_bytes(model: Model, model_sha256: str | None = None) -> bytes:
    """The content of that file: the same for the same model."""
    config, calibration = model.config, model.calibration
    _check(config)
    heads = [scale.head(config) for scale in model.scales]
    graph, window = Graph("mhpatchcore"), config.views[0].window
    channels = "channels" if window.frames == 1 else window.frames
    image = graph.input("image", (1, "height", "width", channels), INPUT_KINDS[window.depth or "8-bit"][1])
    views = resized(graph, _shown(graph, image, window), config.views, exact=window.is_plain)
    found = [_scored(graph, head, view, i) for i, (head, view) in enumerate(zip(heads, views, strict=True))]
    with one_blas_thread():
        score = _score(graph, heads, found)
        heat = _map(graph, config, heads, [one["nearest"] for one in found])
    verdict, mask = _judged(graph, score, heat, calibration)
    height, width = _finest(config)
    outputs: dict[str, tuple[str, Shape]] = {
        "score": (score, (1,)),
        "p_value": (_p_value(graph, score, calibration.scores), (1,)),
        "verdict": (verdict, (1,)),
        "map": (heat, (height, width)),
        "mask": (mask, (height, width)),
    }
    sha256 = model_sha256 or hashlib.sha256(to_bytes(model)).hexdigest()
    content = graph.model(outputs, KINDS, **_metadata(model, sha256))
    onnx.checker.check_model(content)
    return content


def _check(config: Config) -> None:
    """Refuse what has no place in one graph."""
    what = why = ""
    if config.tiled:
        what, why = "tiles", "their number depends on the image: fit without tiles"
    elif config.roi is not None:
        what, why = "a region of interest", "cut the images to the region, and fit them without one"
    elif config.resize is not None and config.resize.bit_count() > 1:
        what = f"resize = {config.resize}"
        why = "its crops would be rounded differently: use a power of two (256 or 512), or no crop"
    if what:
        raise UserError(
            f"a model with {what} cannot be exported ({why}); mhpatchcore itself can score with it"
        )


def _shown(graph: Graph, image: str, window: Window) -> str:
    """The image (1, H, W, C) as the window shows it: bytes as they are, or 0 to 255 in float32 (`Window.applied`)."""
    if window.frames == 2:
        image = _with_mean(graph, image, INPUT_KINDS[window.depth][1])
    if window.is_plain:
        return image
    deep = window.depth == "float"
    kind, number = (TensorProto.DOUBLE, np.float64) if deep else (FLOAT, np.float32)
    constant = partial(graph.number, kind=number)
    x = graph.node("Sub", [graph.cast(image, kind), constant(window.low)])
    x = graph.node("Mul", [x, constant(255 / (window.high - window.low))])
    return graph.cast(graph.node("Clip", [x, constant(0), constant(255)]), FLOAT)


def _with_mean(graph: Graph, image: str, kind: int) -> str:
    """Two frames (1, H, W, 2) and their mean as the third (`stacked_values`); whole numbers are rounded down."""
    wide, number = (FLOAT, np.float32) if kind == FLOAT else (INT32, np.int32)
    total = graph.node("ReduceSum", [graph.cast(image, wide), graph.integers(3)], keepdims=1)
    mean = graph.cast(graph.node("Div", [total, graph.number(2, number)]), kind)
    return graph.node("Concat", [image, mean], axis=3)


def _scored(graph: Graph, head: Head, view: str, scale: int) -> dict[str, str]:
    """What the scoring graph of one scale says of its view (1, h, w, C), in which gray counts as colour."""
    info = head.backbone.info
    colour = graph.node("Expand", [view, graph.integers(1, info.height, info.width, 3)])
    penalty, inside = graph.constant(head.no_penalty), graph.constant(head.everywhere)
    feed = {"image": colour, "penalty": penalty, "inside": inside}
    before = len(graph.nodes)
    found = graph.insert(head.whole_graph, f"scale{scale}/", feed)
    _keep_halves(graph, before)
    return found


def _keep_halves(graph: Graph, first: int) -> None:
    """Round what comes from halves to 11 bits once more, from node `first` on.

    It changes nothing where halves are halves. But some runtimes take float32 in their place, and scores would differ
    by some 1e-4. With C = 2¹³ + 1, C·x − (C·x − x) is x rounded to 24 − 13 bits (Veltkamp).
    """
    nodes, graph.nodes = graph.nodes[first:], graph.nodes[:first]
    for node in nodes:
        graph.nodes.append(node)
        if node.op_type == "Cast" and node.attribute[0].i == FLOAT and LOCAL in node.input[0]:
            x, node.output[0] = node.output[0], f"{node.output[0]}_as_is"
            large = graph.node("Mul", [node.output[0], graph.number(VELTKAMP)])
            rest = graph.node("Sub", [large, node.output[0]])
            graph.nodes.append(helper.make_node("Sub", [large, rest], [x]))


def _score(graph: Graph, heads: Sequence[Head], found: Sequence[dict[str, str]]) -> str:
    """One score (1,) of all scales (`combined_score`)."""
    if len(heads) == 1 or heads[0].score != "map-max":
        return _mean(graph, [one["score"] for one in found])
    rule = Rule.of(heads)
    height, width = max(rule.sizes)
    heats = []
    for head, size, one in zip(heads, rule.sizes, found, strict=True):
        sides = zip((height, width), head.grid, strict=True)
        rows, columns = (smooth_upsampling(side, n, rule.sigma * height / size[0]) for side, n in sides)
        heats.append(map_of(graph, one["judged"], rows, columns))
    return peak_of(graph, _mean(graph, heats))


def _map(graph: Graph, config: Config, heads: Sequence[Head], nearest: Sequence[str]) -> str:
    """The map of all scales over what the finest view shows, at its pixels (`combined_map`)."""
    height, width = size = _finest(config)
    # how views lie in each other does not depend on the image
    image = size if config.resize is None else (config.resize, config.resize)
    box = next(view for view in config.views if (view.height, view.width) == size).geometry(*image).box
    heats = []
    for head, view, distances in zip(heads, config.views, nearest, strict=True):
        where = view.geometry(*image).within(box, height, width)
        rows = way_back(height, where.top, where.bottom, view.height, head.grid[0], head.sigma)
        columns = way_back(width, where.left, where.right, view.width, head.grid[1], head.sigma)
        heats.append(map_of(graph, distances, rows, columns))
    return _mean(graph, heats)


def _judged(graph: Graph, score: str, heat: str, calibration: Calibration) -> tuple[str, str]:
    """The verdict (1,) and the mask (`Result.verdict`, `Result.mask`)."""
    limit = calibration.threshold
    pixel_limit = graph.number(min(calibration.pixel_threshold, float(np.finfo(np.float32).max)))
    if not isfinite(limit):
        verdict = graph.constant(np.array([NO_THRESHOLD], np.int32))
    else:
        passes = graph.node("LessOrEqual", [score, graph.number(limit * (1 + TIE))])
        rejected = graph.node("Not", [passes])  # so a score that is not a number does not pass
        verdict = graph.cast(rejected, INT32)
        low = graph.node("Mul", [peak_of(graph, heat), graph.number(PEAK_SHARE)])
        pixel_limit = graph.node("Where", [rejected, graph.node("Min", [pixel_limit, low]), pixel_limit])
    return verdict, graph.cast(graph.node("Greater", [heat, pixel_limit]), UINT8)


def _p_value(graph: Graph, score: str, scores: Floats) -> str:
    """(1,), as `Calibration.p_value`."""
    # infinity is the 1 of (1 + …)
    ours = np.append(scores.astype(np.float64) * (1 + TIE), np.inf).astype(np.float32)
    reached = graph.cast(graph.node("GreaterOrEqual", [graph.constant(ours), score]), FLOAT)
    count = graph.node("ReduceSum", [reached, graph.integers(0)], keepdims=1)
    return graph.node("Div", [count, graph.number(len(ours))])


def _metadata(model: Model, sha256: str) -> dict[str, str]:
    """Texts beside the graph: what the file promises and where it comes from."""
    config, calibration = model.config, model.calibration
    network = model.scales[0].backbone.info
    return {
        "mhpatchcore": __version__,
        "onnx": onnx.__version__,
        "model_sha256": sha256,
        "threshold": repr(calibration.threshold) if isfinite(calibration.threshold) else "none",
        "pixel_threshold": repr(calibration.pixel_threshold) if calibration.judges else "none",
        "false_alarm": repr(calibration.false_alarm),
        "expected_false_alarm": repr(calibration.expected_rate),
        "calibration_images": str(calibration.n),
        "images": str(model.n_learnt),
        "backbone": network.name,
        "precision": network.precision,
        "weights_sha256": network.weights_sha256,
        "known_defects": "not in this file" if model.defects.names else "none",
        "config": json.dumps(config.to_json()),
        "history": json.dumps([event.to_json() for event in model.history]),
    }


def _finest(config: Config) -> tuple[int, int]:
    """Height and width of the map, which are those of the largest view."""
    return max((view.height, view.width) for view in config.views)


def _mean(graph: Graph, values: Sequence[str]) -> str:
    return values[0] if len(values) == 1 else graph.node("Mean", values)
