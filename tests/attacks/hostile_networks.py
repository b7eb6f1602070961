"""A user's own network from somebody else: ONNX files and the descriptions beside them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from benchmarks.stress import tiny
from hostile_graphs import add_node, endless_loop, external_weights, giant_tensor, recursive_function
from recipes import Recipes

from mhpatchcore import backbone


def used(path: Path) -> None:
    """Load the network and run it once."""
    network = backbone.load(str(path))
    network(np.zeros((1, network.info.height, network.info.width, 3), np.uint8))


NETWORKS = Recipes(used)


def written(
    folder: Path,
    change: Callable[[Any], Any] | None = None,
    description: str | None = None,
    suffix: str = ".json",
) -> Path:
    path = folder / "net.onnx"
    model = tiny.network()
    if change is not None:
        change(model)
    path.write_bytes(model.SerializeToString())
    for other in (".json", ".toml"):
        path.with_suffix(other).unlink(missing_ok=True)
    text = json.dumps(tiny.DESCRIPTION) if description is None else description
    path.with_suffix(suffix).write_text(text, encoding="utf-8")
    return path


@NETWORKS.refused
def weights_in_a_system_file(folder: Path) -> Path:
    return written(folder, lambda model: external_weights(model, "/etc/hostname"))


@NETWORKS.refused
def weights_in_a_folder_above(folder: Path) -> Path:
    (folder / "secret.bin").write_bytes(b"\0" * 10**4)
    inner = folder / "inner"
    inner.mkdir(exist_ok=True)
    return written(inner, lambda model: external_weights(model, "../secret.bin"))


@NETWORKS.refused
def weights_in_a_link_to_elsewhere(folder: Path) -> Path:
    (folder / "secret.bin").write_bytes(b"\0" * 10**4)
    inner = folder / "linked"
    inner.mkdir(exist_ok=True)
    link = inner / "weights.bin"
    link.unlink(missing_ok=True)
    link.symlink_to(folder / "secret.bin")
    return written(inner, lambda model: external_weights(model, "weights.bin"))


@NETWORKS.refused
def a_loop_that_never_ends(folder: Path) -> Path:
    return written(folder, endless_loop)


@NETWORKS.refused
def a_tensor_of_four_terabytes(folder: Path) -> Path:
    return written(folder, lambda model: giant_tensor(model, 10**12))


@NETWORKS.refused
def a_tensor_of_ten_gigabytes(folder: Path) -> Path:
    return written(folder, lambda model: giant_tensor(model, 25 * 10**8))


@NETWORKS.refused
def a_function_that_calls_itself(folder: Path) -> Path:
    return written(folder, recursive_function)


@NETWORKS.refused
def an_operator_from_elsewhere(folder: Path) -> Path:
    return written(folder, lambda model: add_node(model, "Execute", domain="evil.example"))


@NETWORKS.refused
def a_size_of_a_million_pixels(folder: Path) -> Path:
    return written(folder, description=json.dumps(tiny.DESCRIPTION | {"size": [10**6, 10**6]}))


@NETWORKS.refused
def a_negative_size(folder: Path) -> Path:
    return written(folder, description=json.dumps(tiny.DESCRIPTION | {"size": [-32, 32]}))


@NETWORKS.refused
def a_deviation_of_nothing(folder: Path) -> Path:
    return written(folder, description=json.dumps(tiny.DESCRIPTION | {"std": [0, 0, 0]}))


@NETWORKS.refused
def a_mean_that_is_no_number(folder: Path) -> Path:
    return written(folder, description=json.dumps(tiny.DESCRIPTION | {"mean": [float("nan")] * 3}))


@NETWORKS.refused
def a_description_of_lists_within_lists(folder: Path) -> Path:
    return written(folder, description="[" * 10**6)


@NETWORKS.refused
def a_description_of_tables_within_tables(folder: Path) -> Path:
    return written(folder, description="x = " + "[" * 10**5, suffix=".toml")


@NETWORKS.refused
def a_number_of_a_million_digits(folder: Path) -> Path:
    return written(folder, description="size = [" + "9" * 10**6 + ", 32]", suffix=".toml")


@NETWORKS.harmless
def an_output_named_a_hundred_times(folder: Path) -> Path:
    return written(folder, description=json.dumps(tiny.DESCRIPTION | {"outputs": ["fine"] * 100}))


@NETWORKS.refused
def something_else_called_onnx(folder: Path) -> Path:
    path = written(folder)
    path.write_bytes(b"\x80\x04\x95" + b"x" * 1000)
    return path
