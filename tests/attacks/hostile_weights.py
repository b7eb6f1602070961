"""Weights files: PyTorch's pickles are programs, archives can be bombs, headers can promise anything."""

from __future__ import annotations

import io
import json
import os
import pickle
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
from recipes import MARKER, Recipes

from mhpatchcore.backbone.statedict import read_state_dict


def used(path: Path) -> None:
    """Read all tensors, as a network is built of them."""
    state = read_state_dict(path)
    for name in state:
        np.asarray(state[name]).sum()


WEIGHTS = Recipes(used)


class RunsACommand:
    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self) -> tuple[Any, ...]:
        return os.system, (f"touch {self.marker}",)


def archive(folder: Path, program: bytes, raw: bytes = b"", compression: int = zipfile.ZIP_STORED) -> Path:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", compression) as file:
        file.writestr("archive/data.pkl", program)
        file.writestr("archive/data/0", raw)
    path = folder / "hostile.pth"
    path.write_bytes(buffer.getvalue())
    return path


def tensor(shape: bytes, strides: bytes, numel: bytes = b"K\x04") -> bytes:
    """The pickle of {"w": a tensor of these shape and strides}, given as instructions."""
    storage = b"(X\x07\0\0\0storagectorch\nFloatStorage\nX\x01\0\0\x000X\x03\0\0\0cpu" + numel + b"tQ"
    build = b"ctorch._utils\n_rebuild_tensor_v2\n(" + storage + b"K\0(" + shape + b"t(" + strides + b"t"
    return b"\x80\x02}X\x01\0\0\0w" + build + b"\x89ccollections\nOrderedDict\n)RtRs."


@WEIGHTS.refused
def a_pickle_that_runs_a_command(folder: Path) -> Path:
    return archive(folder, pickle.dumps({"w": RunsACommand(folder / MARKER)}, 2))


@WEIGHTS.refused
def a_bare_pickle_that_runs_a_command(folder: Path) -> Path:
    path = folder / "hostile.pt"
    path.write_bytes(pickle.dumps(RunsACommand(folder / MARKER)))
    return path


@WEIGHTS.refused
def an_archive_that_unpacks_to_gigabytes(folder: Path) -> Path:
    return archive(folder, tensor(b"K\x04", b"K\x01"), b"\0" * 10**8, zipfile.ZIP_DEFLATED)


@WEIGHTS.refused
def a_tensor_that_repeats_one_number_a_billion_times(folder: Path) -> Path:
    return archive(folder, tensor(b"J\x00\xca\x9a\x3b", b"K\x00"), np.ones(4, np.float32).tobytes())


@WEIGHTS.refused
def a_tensor_outside_of_its_storage(folder: Path) -> Path:
    return archive(folder, tensor(b"K\x04", b"J\xff\xff\xff\x7f"), np.ones(4, np.float32).tobytes())


@WEIGHTS.refused
def tuples_within_tuples(folder: Path) -> Path:
    return archive(folder, b"\x80\x02}" + b")" + b"\x85" * 10**5 + b"K\x01s.")


@WEIGHTS.refused
def a_dictionary_inside_itself(folder: Path) -> Path:
    return archive(folder, b"\x80\x02}q\x00X\x05\x00\x00\x00modelh\x00s.")


@WEIGHTS.refused
def a_text_of_gigabytes_that_is_not_there(folder: Path) -> Path:
    return archive(folder, b"\x80\x02B\xff\xff\xff\x7fabc.")


@WEIGHTS.refused
def a_safetensors_header_of_gigabytes(folder: Path) -> Path:
    path = folder / "hostile.safetensors"
    path.write_bytes((10**11).to_bytes(8, "little") + b"{" + b" " * 1000)
    return path


@WEIGHTS.refused
def a_safetensors_tensor_of_terabytes(folder: Path) -> Path:
    text = json.dumps({"w": {"dtype": "F32", "shape": [10**12], "data_offsets": [0, 4 * 10**12]}}).encode()
    path = folder / "hostile.safetensors"
    path.write_bytes(len(text).to_bytes(8, "little") + text + b"\0" * 64)
    return path


@WEIGHTS.refused
def a_device_that_never_ends(folder: Path) -> Path:
    return Path("/dev/zero")
