"""A frozen network ready to run: images in, patch descriptors out, through ONNX Runtime."""

from __future__ import annotations

import hashlib
from dataclasses import asdict, dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from mhpatchcore.runtime.arrays import Array, Floats
from mhpatchcore.runtime.memory import give_back
from mhpatchcore.runtime.parallel import available_cores


@dataclass(frozen=True)
class BackboneInfo:
    """Everything about a backbone that a model file records; `dim` is d, the length of a descriptor."""

    name: str
    weights_sha256: str
    weights_source: str
    layers: tuple[str, ...]
    descriptor: str
    height: int
    width: int
    grid: tuple[int, int]
    dim: int
    precision: str = "fp32"
    place: bool = False

    @property
    def columns(self) -> int:
        """What a patch is told by: the `dim` numbers of its look and, with `place`, its row and column."""
        return self.dim + 2 * self.place

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @staticmethod
    def from_json(fields: dict[str, Any]) -> BackboneInfo:
        return BackboneInfo(**fields | {"layers": tuple(fields["layers"]), "grid": tuple(fields["grid"])})


@dataclass(frozen=True)
class Backbone:
    """A network as an ONNX graph (bytes) with its description. Immutable and safe to share among threads.

    `threads` is how many cores one call may use; descriptors do not depend on it.
    """

    info: BackboneInfo
    graph: bytes = field(repr=False)
    threads: int = 0

    @cached_property
    def session(self) -> Any:
        return make_session(self.graph, self.threads)

    def __call__(self, images: Array) -> Floats:
        """(N, H, W, 3) pixels in 0..255 → descriptors (N, h, w, d), or (N, h, w, d + 2) with their place."""
        feed = {"image": np.ascontiguousarray(images, np.float32)}
        result: Floats = self.session.run(None, feed)[0]
        return result

    @cached_property
    def graph_sha256(self) -> str:
        return hashlib.sha256(self.graph).hexdigest()

    @property
    def patches_per_image(self) -> int:
        return self.info.grid[0] * self.info.grid[1]


def make_session(graph: bytes, threads: int = 0) -> Any:
    """An ONNX Runtime CPU session; `threads` = 0 takes all cores."""
    import onnxruntime as ort

    options = ort.SessionOptions()
    options.intra_op_num_threads = threads or available_cores()
    options.inter_op_num_threads = 1
    options.log_severity_level = 3
    # idle threads that spin take the core from decoding, BLAS and other sessions (and gained nothing when measured)
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    session = ort.InferenceSession(graph, options, providers=["CPUExecutionProvider"])
    give_back()  # loading leaves more free memory behind than the weights take
    return session
