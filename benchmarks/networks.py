"""Networks to measure: the embedded one, and ResNets with random weights where speed is all that matters."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save_file

from mhpatchcore.backbone.building import ARCHITECTURES
from mhpatchcore.backbone.graph import Graph
from mhpatchcore.backbone.resnet import SHAPES
from mhpatchcore.backbone.weights import load_weights
from mhpatchcore.runtime.arrays import Array


def random_resnet(name: str, seed: int = 0) -> dict[str, Array]:
    """A state dict of the right shapes, scaled so that activations stay in range."""
    shape, rng = SHAPES[name], np.random.default_rng(seed)
    state: dict[str, Array] = {}

    def conv(key: str, bn: str, out: int, inside: int, kernel: int) -> None:
        scale = np.sqrt(2 / (inside * kernel**2))
        state[f"{key}.weight"] = (
            rng.standard_normal((out, inside, kernel, kernel), np.float32) * scale
        ).astype("f4")
        for part, value in (("weight", 0.5), ("bias", 0.0), ("running_mean", 0.0), ("running_var", 1.0)):
            state[f"{bn}.{part}"] = np.full(out, value, np.float32)

    conv("conv1", "bn1", 64, 3, 7)
    channels = 64
    for stage, blocks in enumerate(shape.blocks, start=1):
        inner = shape.width * 2 ** (stage - 1)
        out = 256 * 2 ** (stage - 1) if shape.bottleneck else inner
        for block in range(blocks):
            key = f"layer{stage}.{block}"
            sizes = [(inner, channels, 1), (inner, inner, 3), (out, inner, 1)]
            if not shape.bottleneck:
                sizes = [(inner, channels, 3), (inner, inner, 3)]
            for i, (o, c, kernel) in enumerate(sizes, start=1):
                conv(f"{key}.conv{i}", f"{key}.bn{i}", o, c, kernel)
            if block == 0 and (stage > 1 or out != channels):
                conv(f"{key}.downsample.0", f"{key}.downsample.1", out, channels, 1)
            channels = out
    return state


def weights_file(name: str, given: str | None) -> str | None:
    """The given file, nothing for the embedded network, or a temporary file of random weights."""
    if given or name == "efficientnet_lite0":
        return given
    path = Path(tempfile.gettempdir()) / f"mhpatchcore-random-{name}.safetensors"
    if not path.is_file():
        save_file(random_resnet(name), path)
    return str(path)


def settings(name: str, given: str | None) -> dict[str, Any]:
    """Settings of a fit. Random weights spread little, so that 99 % of the variance would keep too few directions:
    they get as many as genuine weights keep (ResNet-18 on several data sets: 390 to 420 of 1024)."""
    random = name != "efficientnet_lite0" and not given
    return {"backbone": name, **({"components": 400} if random else {})}


def bare_graph(name: str, weights: str | None, size: int) -> bytes:
    """The network alone, up to the last layer that descriptors need: the floor that everything else stands on."""
    architecture = ARCHITECTURES[name]
    state = load_weights(name, file=Path(weights) if weights else None).state
    graph = Graph(name, size, size)
    image = graph.normalised_image(architecture.mean, architecture.std)
    last = architecture.build(graph, state, image, architecture.layers)[architecture.layers[-1]]
    model = graph.model(last.name, ["N", last.channels, last.height, last.width])
    return bytes(model.SerializeToString())
