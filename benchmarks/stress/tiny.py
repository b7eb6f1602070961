"""A network of two convolutions, a model that is fitted with it in a moment, and images to probe them with."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from mhpatchcore import Config, Detector
from mhpatchcore.runtime.arrays import Array

SIDE = 32
DESCRIPTION = {"outputs": ["fine", "coarse"], "size": [SIDE, SIDE], "mean": [128.0] * 3, "std": [64.0] * 3}


def network() -> Any:
    """Image (N, 3, H, W) → fine (N, 4, H/4, W/4), coarse (N, 6, H/8, W/8)."""
    random = np.random.default_rng(5)
    weights = {
        "w1": random.standard_normal((4, 3, 4, 4)).astype(np.float32) / 7,
        "b1": random.standard_normal(4).astype(np.float32) / 7,
        "w2": random.standard_normal((6, 4, 2, 2)).astype(np.float32) / 4,
    }
    nodes = [
        helper.make_node("Conv", ["image", "w1", "b1"], ["conv1"], kernel_shape=[4, 4], strides=[4, 4]),
        helper.make_node("Relu", ["conv1"], ["fine"]),
        helper.make_node("Conv", ["fine", "w2"], ["coarse"], kernel_shape=[2, 2], strides=[2, 2]),
    ]
    image = helper.make_tensor_value_info("image", TensorProto.FLOAT, ["n", 3, "h", "w"])
    outputs = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, list("nchw")) for name in ("fine", "coarse")
    ]
    constants = [numpy_helper.from_array(array, name) for name, array in weights.items()]
    graph = helper.make_graph(nodes, "tiny", [image], outputs, constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)


def write_network(folder: Path) -> Path:
    """The network with its description beside it."""
    path = folder / "tiny.onnx"
    path.write_bytes(network().SerializeToString())
    path.with_suffix(".json").write_text(json.dumps(DESCRIPTION), encoding="utf-8")
    onnx.checker.check_model(str(path))
    return path


def pictures(first: int, n: int, side: int = SIDE) -> list[Array]:
    """Smooth waves with some noise (side, side, 3), by their seeds."""
    y, x = np.mgrid[0:side, 0:side] / side
    found = []
    for seed in range(first, first + n):
        random = np.random.default_rng(seed)
        phase = random.uniform(0, 1, 3)
        waves = np.stack([np.sin(6 * (x + p)) * np.cos(5 * (y - p)) for p in phase], axis=2)
        noisy = 128 + 90 * waves + random.normal(0, 6, (side, side, 3))
        found.append(np.clip(noisy, 0, 255).astype(np.uint8))
    return found


def settings(path: Path) -> Config:
    return Config(backbone=str(path), sizes=SIDE, K=24, m_c=16, false_alarm=0.1)  # type: ignore[arg-type]


def write_model(folder: Path) -> Path:
    """A model of twelve pictures."""
    path = folder / "tiny.mhpc"
    Detector.fit(pictures(0, 12), settings(write_network(folder))).save(path)
    return path
