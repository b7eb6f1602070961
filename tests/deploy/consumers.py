"""Those who run an exported file without mhpatchcore (Python, OpenVINO, Node, C++) and what they say of images."""

from __future__ import annotations

import functools
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import onnxruntime
import pytest
from PIL import Image

import mhpatchcore.deploy

SAMPLES = Path(mhpatchcore.deploy.__file__).parent / "samples"
NODE_PACKAGE = "onnxruntime-node@1.30.0"
SECONDS = 300
# the package cannot be imported, wherever it is installed, and the environment's paths do not count (-I)
ALONE = """
import runpy, sys
sys.modules["mhpatchcore"] = None
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
assert not [name for name in sys.modules if name.startswith("mhpatchcore.")]
"""


class Said(NamedTuple):
    """What a consumer says of one image."""

    score: float
    p_value: float
    verdict: int


Consumer = Callable[[Path, Sequence[Path]], list[Said]]


def by_python(model: Path, images: Sequence[Path]) -> list[Said]:
    """onnxruntime alone, by the sample."""
    command = [sys.executable, "-I", "-c", ALONE, SAMPLES / "consumer.py"]
    return _said([*command, model, *images])


def by_openvino(model: Path, images: Sequence[Path]) -> list[Said]:
    openvino = pytest.importorskip("openvino")
    core = openvino.Core()
    compiled = core.compile_model(core.read_model(str(model)), "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
    found = []
    for path in images:
        with Image.open(path) as image:
            outputs = compiled(np.asarray(image.convert("RGB"))[None])
        numbers = (outputs[name][0].item() for name in ("score", "p_value", "verdict"))
        found.append(Said(*numbers))
    return found


def by_node(model: Path, images: Sequence[Path]) -> list[Said]:
    """onnxruntime-node, by the sample; images as PPM files, of which every decoder makes the same pixels."""
    sample = node_folder() / "consumer.mjs"
    shutil.copy(SAMPLES / "consumer.mjs", sample)
    return _said(["node", sample, model, *_as_ppm(images, model.parent / "ppm")])


def by_cpp(model: Path, images: Sequence[Path]) -> list[Said]:
    """The sample in C++, compiled here against the library in the wheel of onnxruntime."""
    program = _compiled(model.parent)
    return _said([program, model, *_as_ppm(images, model.parent / "ppm")])


CONSUMERS: dict[str, Consumer] = {
    "onnxruntime": by_python,
    "OpenVINO": by_openvino,
    "Node": by_node,
    "C++": by_cpp,
}


@functools.cache
def node_folder() -> Path:
    """A folder in which onnxruntime-node is installed, once for all runs; without npm or the registry tests skip."""
    folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "mhpatchcore-tests" / "node"
    if shutil.which("node") is None or shutil.which("npm") is None:
        pytest.skip("there is no Node")
    if not (folder / "node_modules" / "onnxruntime-node" / "package.json").is_file():
        folder.mkdir(parents=True, exist_ok=True)
        # its script would fetch CUDA
        options = ["--ignore-scripts", "--no-audit", "--no-fund", "--no-package-lock", "--prefix", folder]
        try:
            subprocess.run(
                ["npm", "install", *options, NODE_PACKAGE], check=True, capture_output=True, timeout=SECONDS
            )
        except (subprocess.SubprocessError, OSError) as error:
            pytest.skip(f"{NODE_PACKAGE} cannot be installed: {error}")
    return folder


def _compiled(folder: Path) -> Path:
    """The program in C++; tests skip without a compiler, or without headers: libonnxruntime-dev from Debian 13 on, or
    those that MHPATCHCORE_ORT_INCLUDE names."""
    headers = Path(os.environ.get("MHPATCHCORE_ORT_INCLUDE") or "/usr/include/onnxruntime")
    library = next((Path(onnxruntime.__file__).parent / "capi").glob("libonnxruntime.so.*"), None)
    if shutil.which("g++") is None or library is None or not (headers / "onnxruntime_cxx_api.h").is_file():
        pytest.skip("there is no compiler, or no onnxruntime for C++")
    (folder / "libonnxruntime.so.1").symlink_to(library)
    link = [folder / "libonnxruntime.so.1", f"-Wl,-rpath,{folder}"]
    command = ["g++", "-std=c++17", "-Wall", "-Werror", "-isystem", headers, SAMPLES / "consumer.cpp", *link]
    subprocess.run([*map(str, command), "-o", str(folder / "consumer")], check=True, timeout=SECONDS)
    return folder / "consumer"


def _as_ppm(images: Sequence[Path], folder: Path) -> list[Path]:
    folder.mkdir(exist_ok=True)
    written = []
    for i, path in enumerate(images):
        written.append(folder / f"{i}.ppm")
        with Image.open(path) as image:
            image.convert("L" if image.mode == "L" else "RGB").save(written[-1])
    return written


def _said(command: Sequence[object]) -> list[Said]:
    """Run a consumer that writes lines of path, score, p-value and verdict."""
    done = subprocess.run([*map(str, command)], capture_output=True, text=True, check=False, timeout=SECONDS)
    assert done.returncode == 0, done.stderr
    lines = (line.split("\t")[1:] for line in done.stdout.splitlines())
    return [Said(float(score), float(p_value), int(verdict)) for score, p_value, verdict in lines]
