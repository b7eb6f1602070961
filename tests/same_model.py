"""Are two models the same, bit for bit? Names, sources and times do not count."""

from __future__ import annotations

import numpy as np
from safetensors.numpy import load

from mhpatchcore import Detector
from mhpatchcore.model.file import to_bytes


def tensors_of(detector: Detector) -> dict[str, np.ndarray]:
    """Everything that was learnt."""
    tensors = dict(load(to_bytes(detector.model)))
    tensors["n"] = np.array([scale.moments.n for scale in detector.scales])
    return tensors


def assert_same_model(ours: Detector, theirs: Detector) -> None:
    one, other = tensors_of(ours), tensors_of(theirs)
    assert one.keys() == other.keys()
    for name in one:
        assert one[name].dtype == other[name].dtype and one[name].shape == other[name].shape, name
        assert one[name].tobytes() == other[name].tobytes(), name
