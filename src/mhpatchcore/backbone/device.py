"""The device that networks run on, through ONNX Runtime's execution providers: one for the whole process.

It is the CPU unless `use_device`, `--device` or the variable MHPATCHCORE_DEVICE says otherwise. Processes that are
started later inherit it. What a device cannot compute runs on the CPU. Scores of two devices differ in their last
digits, so a model's history says on which one it was made, and `mhpatchcore verify --device` compares.
"""

from __future__ import annotations

import json
import os
from typing import Any, NamedTuple

from mhpatchcore.errors import UserError

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


def use_device(name: str) -> str:
    """Compute on a device from now on; returns its name.

    Sessions that have been made stay where they are: call it before a model is loaded or fitted.

    Parameters
    ----------
    name
        cpu, openvino, cuda, tensorrt, directml or coreml; auto takes the first one that is installed, the CPU last.
    """
    chosen = resolved(name)
    os.environ[VARIABLE] = chosen
    return chosen


def current_device() -> str:
    """The name of the device in use."""
    return resolved(os.environ.get(VARIABLE) or "cpu")


def resolved(name: str) -> str:
    """A device that is installed, by its name or as the first one of "auto"."""
    if name == "cpu":
        return name
    import onnxruntime

    installed = set(onnxruntime.get_available_providers())
    if name == "auto":
        return next(one for one, device in DEVICES.items() if device.provider in installed)
    if name not in DEVICES:
        raise UserError(f"unknown device '{name}'; choose one of: auto, {', '.join(sorted(DEVICES))}")
    if DEVICES[name].provider not in installed:
        raise UserError(
            f"the device {name} is not installed: put {DEVICES[name].package} in the place of onnxruntime "
            f"(pip uninstall onnxruntime; pip install {DEVICES[name].package.split()[0].strip(',')})"
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
