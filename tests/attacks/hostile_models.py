"""Model files that were made to mislead, to crash, to hang or to take over; all hashes in them are right."""

from __future__ import annotations

import hashlib
import json
import os
import pickle
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from benchmarks.stress import tiny
from hostile_graphs import add_node, endless_loop, external_weights, giant_tensor, recursive_function
from recipes import MARKER, Recipes
from safetensors.numpy import load as tensors_of
from safetensors.numpy import save

from mhpatchcore import Detector
from mhpatchcore.model.file import DIGEST, KEY


def used(path: Path) -> None:
    """Load the model and score two images with it."""
    detector = Detector.load(path)
    for picture in tiny.pictures(50, 2):
        result = detector.score(picture)
        assert np.isfinite(result.score) and np.isfinite(result.map).all()


MODELS = Recipes(used)


@cache
def whole(folder: Path) -> bytes:
    place = folder / "whole"
    place.mkdir(exist_ok=True)
    return tiny.write_model(place).read_bytes()


def document_of(content: bytes) -> dict[str, Any]:
    header = json.loads(content[8 : 8 + int.from_bytes(content[:8], "little")])
    return dict(json.loads(header["__metadata__"][KEY]))


def forged(
    folder: Path,
    change: Callable[[dict[str, Any]], Any] | None = None,
    tensors: dict[str, np.ndarray | None] | None = None,
) -> Path:
    """The whole model with another document or other tensors, every hash as it should be."""
    content = whole(folder)
    document = document_of(content)
    if change is not None:
        change(document)
    arrays = {
        name: array for name, array in (tensors_of(content) | (tensors or {})).items() if array is not None
    }
    document["sha256"] = {name: hashlib.sha256(array.tobytes()).hexdigest() for name, array in arrays.items()}
    text = json.dumps(document)
    path = folder / "forged.mhpc"
    path.write_bytes(save(arrays, {KEY: text, DIGEST: hashlib.sha256(text.encode()).hexdigest()}))
    return path


def with_graph(folder: Path, change: Callable[[Any], Any]) -> Path:
    """The whole model with another network in it."""
    graph = onnx.load_model_from_string(tensors_of(whole(folder))["0.graph"].tobytes())
    change(graph)
    return forged(folder, tensors={"0.graph": np.frombuffer(graph.SerializeToString(), np.uint8)})


def written(folder: Path, content: bytes) -> Path:
    (folder / "raw.mhpc").write_bytes(content)
    return folder / "raw.mhpc"


class RunsACommand:
    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self) -> tuple[Any, ...]:
        return os.system, (f"touch {self.marker}",)


@MODELS.refused
def a_pickle_that_runs_a_command(folder: Path) -> Path:
    return written(folder, pickle.dumps(RunsACommand(folder / MARKER)))


@MODELS.refused
def a_header_longer_than_any_file(folder: Path) -> Path:
    return written(folder, (2**63 - 1).to_bytes(8, "little") + whole(folder)[8:])


@MODELS.refused
def a_header_of_lists_within_lists(folder: Path) -> Path:
    text = b"[" * 10**6
    return written(folder, len(text).to_bytes(8, "little") + text)


@MODELS.refused
def a_terabyte_of_nothing(folder: Path) -> Path:
    """A sparse file takes no room on the disk, but would in memory."""
    path = folder / "sparse.mhpc"
    with path.open("wb") as file:
        file.truncate(10**12)
    return path


@MODELS.refused
def a_whole_header_and_a_terabyte_of_nothing(folder: Path) -> Path:
    path = written(folder, whole(folder))
    os.truncate(path, 10**12)
    return path


@MODELS.refused
def tensors_that_overlap(folder: Path) -> Path:
    content = whole(folder)
    length = int.from_bytes(content[:8], "little")
    header = json.loads(content[8 : 8 + length])
    names = sorted(name for name in header if name != "__metadata__")
    header[names[1]]["data_offsets"] = header[names[0]]["data_offsets"]
    text = json.dumps(header).encode()
    return written(folder, len(text).to_bytes(8, "little") + text + content[8 + length :])


@MODELS.refused
def a_rate_that_is_no_number(folder: Path) -> Path:
    def change(document: dict[str, Any]) -> None:
        document["calibration"]["false_alarm"] = document["config"]["false_alarm"] = float("nan")

    return forged(folder, change)


@MODELS.refused
def scores_that_are_no_numbers(folder: Path) -> Path:
    """No threshold could be exceeded."""
    scores = tensors_of(whole(folder))["calibration.scores"].copy()
    scores[:] = np.nan
    return forged(folder, tensors={"calibration.scores": scores})


@MODELS.refused
def distances_beyond_all_numbers(folder: Path) -> Path:
    """Finite in the file, infinite or none when they are squared."""
    return forged(folder, tensors={"0.whitening.A": tensors_of(whole(folder))["0.whitening.A"] * 1e200})


@MODELS.refused
def a_bank_of_infinite_rows(folder: Path) -> Path:
    raw = tensors_of(whole(folder))["0.bank.raw"].copy()
    raw[0, 0] = np.inf
    return forged(folder, tensors={"0.bank.raw": raw})


@MODELS.refused
def a_bank_without_rows(folder: Path) -> Path:
    empty = {
        f"0.bank.{name}": tensors_of(whole(folder))[f"0.bank.{name}"][:0]
        for name in ("raw", "origin", "weights")
    }
    return forged(folder, tensors=dict(empty))


@MODELS.refused
def rows_of_images_that_are_not_there(folder: Path) -> Path:
    origin = tensors_of(whole(folder))["0.bank.origin"].copy()
    origin[:, 0] = 2**31 - 1
    return forged(folder, tensors={"0.bank.origin": origin})


@MODELS.refused
def a_grid_of_a_million_by_a_million(folder: Path) -> Path:
    def change(document: dict[str, Any]) -> None:
        document["scales"][0]["backbone"]["maps"][0][1:] = [10**6, 10**6]

    return forged(folder, change)


@MODELS.refused
def a_thousand_scales(folder: Path) -> Path:
    return forged(folder, lambda document: document.update(scales=document["scales"] * 1000))


@MODELS.refused
def smoothing_without_end(folder: Path) -> Path:
    return forged(folder, lambda document: document["config"].update(sigma=1e300))


@MODELS.refused
def a_million_neighbours(folder: Path) -> Path:
    return forged(folder, lambda document: document["config"].update(local=10**6))


@MODELS.refused
def a_network_that_reads_a_file(folder: Path) -> Path:
    return with_graph(folder, lambda model: external_weights(model, "/etc/hostname"))


@MODELS.refused
def a_network_that_reads_a_file_beside(folder: Path) -> Path:
    return with_graph(folder, lambda model: external_weights(model, "pyproject.toml"))


@MODELS.refused
def a_network_that_never_ends(folder: Path) -> Path:
    return with_graph(folder, endless_loop)


@MODELS.refused
def a_network_of_four_terabytes(folder: Path) -> Path:
    return with_graph(folder, lambda model: giant_tensor(model, 10**12))


@MODELS.refused
def a_network_of_ten_gigabytes(folder: Path) -> Path:
    """Small enough for the system to promise the memory, large enough to end the process."""
    return with_graph(folder, lambda model: giant_tensor(model, 25 * 10**8))


@MODELS.refused
def a_network_with_a_function_that_calls_itself(folder: Path) -> Path:
    return with_graph(folder, recursive_function)


@MODELS.refused
def a_network_with_an_operator_from_elsewhere(folder: Path) -> Path:
    return with_graph(folder, lambda model: add_node(model, "Execute", domain="evil.example"))


@MODELS.refused
def a_network_of_numbers_that_are_none(folder: Path) -> Path:
    """Every image would get the same verdict."""

    def change(model: Any) -> None:
        for tensor in model.graph.initializer:
            if tensor.name.endswith("w1"):
                values = np.full(tuple(tensor.dims), np.nan, np.float32)
                tensor.CopyFrom(onnx.numpy_helper.from_array(values, tensor.name))

    return with_graph(folder, change)


@MODELS.harmless
def names_that_are_commands_to_a_terminal_or_a_page(folder: Path) -> Path:
    def change(document: dict[str, Any]) -> None:
        names = [
            "\x1b]0;owned\x07",
            "<script>alert(1)</script>",
            "../../../etc/passwd",
            "a\nb",
            "$(touch was_here)",
        ]
        document["images"][: len(names)] = names

    return forged(folder, change)
