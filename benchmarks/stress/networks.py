"""A user's own network: fields of its ONNX file, of its description, and bytes anywhere in either.

Each is refused in one line, or gives finite maps of the shapes that it tells.
"""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path

import numpy as np
import onnx

from benchmarks.stress import protobuf, tiny
from benchmarks.stress.mutations import Random, as_json, damaged_bytes, mutated_document, one_of, random_of
from benchmarks.stress.processes import HARMLESS, Family, Violation
from mhpatchcore import backbone


def prepare(folder: Path) -> None:
    tiny.write_network(folder)


def attempt(folder: Path, seed: int) -> str:
    random = random_of("networks", seed)
    network, description = _original(folder)
    path = folder / f"{seed}.onnx"
    beside = path.with_suffix(one_of(random, (".json", ".toml")))
    what = int(random.integers(4))
    try:
        path.write_bytes(_mutated(network, random) if what else network)
        beside.write_bytes(_described(description, beside.suffix, random, mutate=what == 0))
        size = one_of(random, (None, (32, 32), (48, 64)))
        loaded = backbone.load(str(path), height=size and size[0], width=size and size[1], threads=1)
        image = np.full((1, loaded.info.height, loaded.info.width, 3), 77, np.uint8)
        maps = loaded(image)
        if [one.shape[1:] for one in maps] != list(loaded.info.maps) or not all(
            np.isfinite(one).all() for one in maps
        ):
            raise Violation("maps: not those that the network is said to have")
    finally:
        path.unlink(missing_ok=True)
        beside.unlink(missing_ok=True)
    return HARMLESS


def undamaged(folder: Path) -> None:
    backbone.load(str(folder / "tiny.onnx"))


FAMILY = Family("networks", prepare, undamaged, attempt)


@cache
def _original(folder: Path) -> tuple[bytes, bytes]:
    path = folder / "tiny.onnx"
    return path.read_bytes(), path.with_suffix(".json").read_bytes()


def _mutated(content: bytes, random: Random) -> bytes:
    if random.random() < 0.2:
        return damaged_bytes(content, random)
    model = onnx.load_model_from_string(content)
    for _ in range(int(random.integers(1, 4))):
        protobuf.mutate(model, random)
    try:
        return bytes(model.SerializeToString())
    except ValueError:  # a text that is none
        return damaged_bytes(content, random)


def _described(content: bytes, suffix: str, random: Random, mutate: bool) -> bytes:
    description = json.loads(content)
    if mutate and random.random() < 0.8:
        mutated_document(description, random)
    text = as_json(description) if suffix == ".json" else _as_toml(description)
    data = text.encode(errors="surrogatepass")
    return damaged_bytes(data, random) if mutate and random.random() < 0.3 else data


def _as_toml(description: dict[str, object]) -> str:
    """Lists and numbers look the same in TOML; what is more than that makes a file that is none."""
    return "\n".join(f"{json.dumps(name)} = {as_json(value)}" for name, value in description.items())
