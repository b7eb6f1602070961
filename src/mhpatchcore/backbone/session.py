"""A frozen network ready to run: images in, descriptor maps out, through ONNX Runtime.

It runs on one device for the whole process: the CPU unless `use_device`, `--device` or the variable MHPATCHCORE_DEVICE
says otherwise. Processes that are started later inherit it. What a device cannot compute runs on the CPU. Scores of two
devices differ in their last digits, so a model's history says on which one it was made, and `mhpatchcore verify
--device` compares.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from mhpatchcore.errors import UserError, WeightsError, in_one_line
from mhpatchcore.runtime.arrays import Array, Floats, resized
from mhpatchcore.runtime.system import available_cores, give_back

VARIABLE = "MHPATCHCORE_DEVICE"
CPU = "CPUExecutionProvider"


class Device(NamedTuple):
    """What ONNX Runtime calls a device, what to install for it, and the options it is used with."""

    provider: str
    package: str
    options: dict[str, Any] = {}  # noqa: RUF012  # never changed


# the order of "auto"
DEVICES = {
    "tensorrt": Device("TensorrtExecutionProvider", "onnxruntime-gpu and tensorrt"),
    "cuda": Device("CUDAExecutionProvider", "onnxruntime-gpu", {"use_tf32": 0}),
    "directml": Device("DmlExecutionProvider", "onnxruntime-directml"),
    "coreml": Device("CoreMLExecutionProvider", "onnxruntime, on macOS,"),
    "openvino": Device("OpenVINOExecutionProvider", "onnxruntime-openvino", {"device_type": "CPU"}),
    "cpu": Device(CPU, "onnxruntime"),
}


@dataclass(frozen=True)
class BackboneInfo:
    """Everything about a backbone that a model file records.

    It sees images of height × width; `maps` are the shapes (C, h, w) of its layers, the finest grid first, whose cells
    are averages of `pool` × `pool`.
    """

    name: str
    weights_sha256: str
    weights_source: str
    layers: tuple[str, ...]
    descriptor: str
    height: int
    width: int
    maps: tuple[tuple[int, int, int], ...]
    pool: int = 1
    precision: str = "fp32"

    @property
    def grid(self) -> tuple[int, int]:
        """Rows and columns of patches."""
        return self.maps[0][1:]

    @property
    def patches(self) -> int:
        """How many patches a view has."""
        return self.grid[0] * self.grid[1]

    @property
    def dim(self) -> int:
        """d, the length of a descriptor."""
        return sum(channels for channels, _, _ in self.maps)

    @property
    def stored(self) -> int:
        """How many numbers the layers of a view have on their own grids."""
        return sum(channels * height * width for channels, height, width in self.maps)

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @staticmethod
    def from_json(fields: dict[str, Any]) -> BackboneInfo:
        maps = tuple((int(c), int(h), int(w)) for c, h, w in fields["maps"])
        return BackboneInfo(**fields | {"layers": tuple(fields["layers"]), "maps": maps})


@dataclass(frozen=True)
class Backbone:
    """A network as an ONNX graph (bytes) with its description. A value: it is shared by threads, and pickles.

    `threads` is how many cores one call may use; descriptors do not depend on it.
    """

    info: BackboneInfo
    graph: bytes = field(repr=False)
    threads: int = 0

    @cached_property
    def session(self) -> Any:
        try:
            return make_session(self.graph, self.threads)
        except Exception as error:  # ONNX Runtime's errors have no common base
            raise WeightsError(f"the network {self.info.name} does not run: {in_one_line(error)}") from error

    def __call__(self, images: Array) -> list[Array]:
        """(N, H, W, 3) pixels in 0..255 → the layers' descriptor maps (N, C, h, w), as halves."""
        maps: list[Array] = self.session.run(None, {"image": np.ascontiguousarray(images, np.float32)})
        if tuple(layer.shape[1:] for layer in maps) != self.info.maps:
            raise WeightsError(
                f"the network {self.info.name} gives maps of other shapes than it says: build it or its model again"
            )
        if not all(np.isfinite(layer).all() for layer in maps):
            raise WeightsError(
                f"the network {self.info.name} gives numbers that are not finite, or too large for float16: "
                "check its weights, and the mean and std of its description"
            )
        return maps

    def descriptors(self, image: Array) -> Floats:
        """Of one view (H, W, 3): (h, w, d), the layers aligned to the finest grid."""
        maps = [layer[0] for layer in self(image[None])]
        return aligned_rows(maps).reshape(*self.info.grid, self.info.dim)

    @cached_property
    def graph_sha256(self) -> str:
        return hashlib.sha256(self.graph).hexdigest()

    def __getstate__(self) -> dict[str, Any]:
        """Without the session, which is made anew where it is needed."""
        return {"info": self.info, "graph": self.graph, "threads": self.threads}


def aligned_rows(maps: Sequence[Array]) -> Floats:
    """Descriptors (h·w, d) of one image from its layers (C_l, h_l, w_l), on the grid of the first."""
    grid = maps[0].shape[-2:]
    return np.concatenate([resized(layer, grid).reshape(len(layer), -1) for layer in maps]).T


def check_sees(backbone: Backbone) -> None:
    """Refuse a network that gives no finite numbers, or the same ones whatever it sees: nothing is learnt from it."""
    info, random = backbone.info, np.random.default_rng(0)
    dark, bright = (
        backbone(random.integers(least, least + 128, (1, info.height, info.width, 3))) for least in (0, 128)
    )
    for layer, one, other in zip(info.layers, dark, bright, strict=True):
        if np.array_equal(one, other):
            raise WeightsError(
                f"the network {info.name} gives the same numbers for every image in its layer {layer}: "
                "check its weights, and the mean and std of its description"
            )


def use_device(name: str) -> str:
    """Compute on a device from now on; returns its name.

    Sessions that have been made stay where they are: call it before a model is loaded or fitted.

    Parameters
    ----------
    name
        cpu, openvino, cuda, tensorrt, directml or coreml; auto takes the first one that is installed, the CPU last.
    """
    os.environ[VARIABLE] = chosen = _installed(name)
    return chosen


def current_device() -> str:
    """The name of the device in use."""
    return _installed(os.environ.get(VARIABLE) or "cpu")


def _installed(name: str) -> str:
    """A device that is installed, by its name or as the first one of "auto"."""
    if name == "cpu":
        return name
    found = silent_onnx_runtime().get_available_providers()
    if name == "auto":
        return next(one for one, device in DEVICES.items() if device.provider in found)
    if name not in DEVICES:
        raise UserError(f"unknown device '{name}'; choose one of: auto, {', '.join(sorted(DEVICES))}")
    package = DEVICES[name].package
    if DEVICES[name].provider not in found:
        raise UserError(
            f"the device {name} is not installed: put {package} in the place of onnxruntime "
            f"(pip uninstall onnxruntime; pip install {package.split()[0].strip(',')})"
        )
    return name


def providers(threads: int) -> list[Any]:
    """What a session of ONNX Runtime is to run on; the CPU takes what the device cannot."""
    name = current_device()
    if name == "cpu":
        return [CPU]
    options = dict(DEVICES[name].options)
    if name == "openvino":
        exact = {"INFERENCE_NUM_THREADS": str(threads), "INFERENCE_PRECISION_HINT": "f32"}
        options["load_config"] = json.dumps({"CPU": exact})
    return [(DEVICES[name].provider, options), CPU]


def make_session(graph: bytes, threads: int = 0) -> Any:
    """A session of ONNX Runtime on the device in use; `threads` = 0 takes all cores of a CPU."""
    ort = silent_onnx_runtime()
    options = ort.SessionOptions()
    options.intra_op_num_threads = threads or available_cores()
    options.inter_op_num_threads = 1
    options.log_severity_level = 4  # errors are raised: logged too they would be said twice
    # idle threads that spin take the core from decoding, BLAS and other sessions (and gained nothing when measured)
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    options.enable_mem_pattern = False  # a second block of activations, for no time that could be measured
    session = ort.InferenceSession(graph, options, providers=providers(options.intra_op_num_threads))
    give_back()  # loading leaves more free memory behind than the weights take
    return session


def letting_go() -> Any:
    """Options of a run after which its session gives back the memory that activations took; else it is kept."""
    options = silent_onnx_runtime().RunOptions()
    options.add_run_config_entry("memory.enable_memory_arena_shrinkage", "cpu:0")
    return options


def silent_onnx_runtime() -> Any:
    """ONNX Runtime without its telemetry, also where something else has loaded it before this package could say so."""
    import onnxruntime

    onnxruntime.disable_telemetry_events()
    return onnxruntime
