"""What the golden arrays are made from: pixels and weights that numpy gives anywhere, and what is kept of them.

Shared by `make_golden.py`, which runs PyTorch, and the tests, which do not. Everything random comes from
`RandomState`, whose streams numpy has frozen for good.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.floating]

GOLDEN = Path(__file__).with_name("golden")
KEPT = 1500  # values of each output, at seeded positions


@dataclass(frozen=True)
class Case:
    """A network on one image. `outputs` are layers, "descriptors" or "logits"; no `seed` means real weights."""

    name: str
    network: str
    height: int
    width: int
    outputs: tuple[str, ...]
    seed: int | None = None

    @property
    def file(self) -> Path:
        return GOLDEN / f"{self.name}.npz"


CASES = (
    Case("lite0", "efficientnet_lite0", 224, 224, ("block4", "block10", "descriptors", "logits")),
    # one side odd, one even, and both parities on the way down: TensorFlow's padding differs in each
    Case("lite0_odd", "efficientnet_lite0", 225, 200, ("block4", "block10", "descriptors", "logits")),
    Case("resnet18_genuine", "resnet18", 224, 224, ("layer2", "layer3", "descriptors", "logits")),
    Case("resnet18_random", "resnet18", 161, 200, ("layer2", "layer3", "descriptors", "logits"), seed=18),
    Case("resnet50_random", "resnet50", 97, 130, ("layer3", "descriptors"), seed=50),
    Case("wide_resnet50_2_random", "wide_resnet50_2", 224, 224, ("layer3", "descriptors"), seed=502),
)

# stages × (blocks, inner channels, outer channels)
RESNETS = {
    "resnet18": ((2, 64, 64), (2, 128, 128), (2, 256, 256), (2, 512, 512)),
    "resnet50": ((3, 64, 256), (4, 128, 512), (6, 256, 1024), (3, 512, 2048)),
    "wide_resnet50_2": ((3, 128, 256), (4, 256, 512), (6, 512, 1024), (3, 1024, 2048)),
}


def pixels(height: int, width: int, seed: int = 0) -> NDArray[np.uint8]:
    """An image (height, width, 3) with large coloured patches under noise."""
    random = np.random.RandomState(seed)
    patches = random.randint(0, 256, (height // 28 + 1, width // 28 + 1, 3))
    coarse = patches.repeat(28, axis=0).repeat(28, axis=1)[:height, :width]
    return np.clip(coarse + random.randint(-40, 41, coarse.shape), 0, 255).astype(np.uint8)


def kept(array: Floats) -> Floats:
    """The values of an output that are stored."""
    positions = np.random.RandomState(7).randint(0, array.size, KEPT)
    return array.reshape(-1)[positions].astype(np.float32)


def random_resnet(network: str, seed: int, stages: int = 4) -> dict[str, Floats]:
    """A state dict with He-scaled weights and batch statistics that keep the activations alive.

    Only the first `stages` are real; the tensors of the others have one element each, which is enough for a
    network that is cut before them.
    """
    random = np.random.RandomState(seed)
    state: dict[str, Floats] = {}

    def uniform(low: float, high: float, *shape: int) -> Floats:
        return random.uniform(low, high, shape).astype(np.float32)

    def conv_bn(conv: str, bn: str, n_out: int, n_in: int, kernel: int, gain: float = 1.0) -> None:
        bound = (6 / (n_in * kernel**2)) ** 0.5
        state[f"{conv}.weight"] = uniform(-bound, bound, n_out, n_in, kernel, kernel)
        state[f"{bn}.weight"] = uniform(0.6 * gain, 1.2 * gain, n_out)
        state[f"{bn}.bias"] = uniform(-0.2, 0.2, n_out)
        state[f"{bn}.running_mean"] = uniform(-0.2, 0.2, n_out)
        state[f"{bn}.running_var"] = uniform(0.5, 1.5, n_out)

    conv_bn("conv1", "bn1", 64, 3, 7)
    n_in = 64
    for stage, (blocks, inner, outer) in enumerate(RESNETS[network], start=1):
        if stage > stages:
            inner = outer = n_in = 1
        for block in range(blocks):
            name = f"layer{stage}.{block}"
            shapes = [(inner, n_in, 1), (inner, inner, 3), (outer, inner, 1)]
            if network == "resnet18":
                shapes = [(inner, n_in, 3), (outer, inner, 3)]
            for i, shape in enumerate(shapes, start=1):
                gain = 0.4 if i == len(shapes) else 1.0
                conv_bn(f"{name}.conv{i}", f"{name}.bn{i}", *shape, gain=gain)
            if block == 0 and (stage > 1 or n_in != outer):
                conv_bn(f"{name}.downsample.0", f"{name}.downsample.1", outer, n_in, 1)
            n_in = outer
    state["fc.weight"] = uniform(-0.05, 0.05, 1000, n_in)
    state["fc.bias"] = uniform(-0.05, 0.05, 1000)
    return state
