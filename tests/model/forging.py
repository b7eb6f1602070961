"""Model files taken apart and put together again, with hashes that are right: made up, but consistent."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from typing import Any

import numpy as np
from safetensors.numpy import load, save

from mhpatchcore.model.file import DIGEST, KEY

Document = dict[str, Any]
Tensors = dict[str, np.ndarray]
Change = Callable[[Document, Tensors], object]


def taken_apart(content: bytes) -> tuple[Document, Tensors]:
    length = int.from_bytes(content[:8], "little")
    metadata = json.loads(content[8 : 8 + length])["__metadata__"]
    return json.loads(metadata[KEY]), {name: array.copy() for name, array in load(content).items()}


def put_together(document: Document, tensors: Tensors) -> bytes:
    """A file of these parts, whose document names the hash of every tensor, and whose metadata that of the document."""
    tensors = {name: np.ascontiguousarray(array) for name, array in tensors.items()}
    hashes = {name: hashlib.sha256(array.tobytes()).hexdigest() for name, array in tensors.items()}
    return with_text(json.dumps(document | {"sha256": hashes}), tensors)


def with_text(text: str, tensors: Tensors) -> bytes:
    """A file with any text in place of the document."""
    metadata = {KEY: text, DIGEST: hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()}
    return bytes(save(tensors, metadata))


def forged(content: bytes, change: Change) -> bytes:
    """The file with some of its parts changed."""
    document, tensors = taken_apart(content)
    change(document, tensors)
    return put_together(document, tensors)


def setting(*path: str | int, to: Any) -> Change:
    """Another value in the document, at a path of keys and indices."""

    def change(document: Document, _: Tensors) -> None:
        place: Any = document
        for key in path[:-1]:
            place = place[key]
        place[path[-1]] = to

    return change


def without(*path: str | int) -> Change:
    """The document without what is at a path."""

    def change(document: Document, _: Tensors) -> None:
        place: Any = document
        for key in path[:-1]:
            place = place[key]
        del place[path[-1]]

    return change


def tensor(name: str, change: Callable[[np.ndarray], np.ndarray]) -> Change:
    """Another tensor in the place of one."""
    return lambda _, tensors: tensors.update({name: change(tensors[name])})


def dropped(name: str) -> Change:
    """The file without one of its tensors."""
    return lambda _, tensors: tensors.pop(name)


def at(index: Any, value: Any) -> Callable[[np.ndarray], np.ndarray]:
    """A tensor with another value in one place."""

    def change(array: np.ndarray) -> np.ndarray:
        array = array.copy()
        array[index] = value
        return array

    return change
