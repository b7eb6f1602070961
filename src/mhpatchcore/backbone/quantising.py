"""A backbone in 8-bit integers: static quantisation (QDQ), with ranges seen on the normal images themselves.

Weights are quantised per channel, in 7 of 8 bits: without VNNI instructions the sums of two 8-bit products overflow
(ResNet-18's descriptors were off by 48 % instead of 11 %), and a model must run elsewhere than it was made. The
descriptor tail stays in float32.
"""

from __future__ import annotations

import logging
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from mhpatchcore.backbone.session import Backbone, silent_onnx_runtime
from mhpatchcore.errors import ImageError, UserError
from mhpatchcore.inputs.loading import middle_view
from mhpatchcore.inputs.regions import Roi
from mhpatchcore.inputs.sources import ImageLike, spread
from mhpatchcore.inputs.views import View
from mhpatchcore.runtime.arrays import Array
from mhpatchcore.runtime.system import cpu_flags, give_back

RANGE_IMAGES = 32
OPERATORS = ["Conv", "Add", "Relu", "Clip", "MaxPool"]


def at_precision(
    backbone: Backbone, precision: str, images: Sequence[ImageLike], view: View, roi: Roi | None = None
) -> Backbone:
    """The backbone as it is (fp32), quantised (int8), or quantised where that was found to be faster (auto)."""
    if precision == "fp32" or (precision == "auto" and not gains(backbone.graph)):
        return backbone
    some = [images[i] for i in spread(len(images), RANGE_IMAGES)]
    return quantised(backbone, _readable(some, view, roi))


def gains(graph: bytes) -> bool:
    """Whether int8 pays on this machine: not for depthwise convolutions, and only where it was measured (AVX2)."""
    model = onnx.load_model_from_string(graph)
    convolutions = [node for node in model.graph.node if node.op_type == "Conv"]
    # the tail's pooling is a depthwise convolution too, one for each layer
    depthwise = [node for node in convolutions if any(a.name == "group" and a.i > 1 for a in node.attribute)]
    if _multiplies_matrices(model) or len(depthwise) >= len(convolutions) / 4:
        return False
    return "avx2" in cpu_flags()


def quantised(backbone: Backbone, views: Iterable[Array]) -> Backbone:
    """The backbone with its convolutions in int8; `views` (H, W, 3) show what ranges its activations take."""
    silent_onnx_runtime()
    from onnxruntime import quantization as q

    model, name = onnx.load_model_from_string(backbone.graph), backbone.info.name
    if _multiplies_matrices(model):
        raise UserError(f"{name} has few convolutions to quantise: use `precision=fp32`")
    before = logging.root.manager.disable
    logging.disable(max(before, logging.WARNING))  # it advises to preprocess a graph that needs no view
    try:
        with tempfile.TemporaryDirectory(prefix="mhpatchcore-int8-") as folder:
            path = Path(folder) / "int8.onnx"
            q.quantize_static(
                model,
                path,
                _Feed(views),
                quant_format=q.QuantFormat.QDQ,
                per_channel=True,
                reduce_range=True,
                activation_type=q.QuantType.QUInt8,
                weight_type=q.QuantType.QInt8,
                op_types_to_quantize=OPERATORS,
                nodes_to_exclude=_tail(model),
            )
            model = onnx.load(path)
    except (ValueError, RuntimeError, KeyError) as error:
        raise UserError(f"{name} cannot be quantised ({error}); use `precision=fp32`") from error
    finally:
        logging.disable(before)
    give_back()
    return Backbone(replace(backbone.info, precision="int8"), model.SerializeToString(), backbone.threads)


def _multiplies_matrices(model: Any) -> bool:
    """Whether a network works by matrix products, as transformers do, and not by convolutions."""
    operators = [node.op_type for node in model.graph.node]
    return operators.count("MatMul") > operators.count("Conv")


def _tail(model: Any) -> list[str]:
    """The nodes that pool the layers: those whose results are rounded to halves and put out."""
    made_by = {output: node for node in model.graph.node for output in node.output}
    casts = (made_by[made_by[output.name].input[0]] for output in model.graph.output)
    return [made_by[cast.input[0]].name for cast in casts]


class _Feed:
    """Views as the calibrator asks for them, one at a time."""

    def __init__(self, views: Iterable[Array]) -> None:
        self.views = iter(views)

    def get_next(self) -> dict[str, Any] | None:
        view = next(self.views, None)
        return None if view is None else {"image": np.ascontiguousarray(view[None], np.float32)}


def _readable(images: Sequence[ImageLike], view: View, roi: Roi | None) -> Iterator[Array]:
    """Views of the images that can be read: whether one that cannot be read matters is for the fit to say."""
    for image in images:
        with suppress(ImageError):
            yield middle_view(image, view, roi)
