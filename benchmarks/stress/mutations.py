"""Ways to damage bytes, numbers and documents, each decided by a random generator."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from typing import Any

import numpy as np

Random = np.random.Generator
DEEP, DEPTH = "@deep@", 100_000
INTERESTING = (
    *(0, 1, -1, 2, 3, 7, 8, 127, 128, 255, 256, 32767, 65535, 65536, 2**24, 2**31 - 1, 2**31, -(2**31)),
    *(2**32 - 1, 2**32, 2**53, 2**63 - 1, 2**63, 2**64 - 1, -(2**63), 10**30),
)
NUMBERS = (
    0.0,
    -0.0,
    1.0,
    -1.0,
    1e-320,
    1e-30,
    1e30,
    1e300,
    -1e300,
    math.inf,
    -math.inf,
    math.nan,
    0.5,
    1 + 1e-12,
)
TEXTS = (
    "",
    " ",
    "0",
    "../../etc/passwd",
    "/etc/passwd",
    "a\nb",
    "\0",
    "é" * 100,
    "x" * 5000,
    "NaN",
    "\ud800",
    "{}",
    "%s%n",
)


def random_of(family: str, seed: int) -> Random:
    """The generator of one trial; it repeats."""
    return np.random.default_rng([*family.encode(), seed])


def one_of(random: Random, options: Any) -> Any:
    options = list(options)
    return options[int(random.integers(len(options)))]


def damaged_bytes(content: bytes, random: Random, times: int | None = None) -> bytes:
    """Flipped bits, other bytes, cuts, insertions, repetitions, swapped pieces."""
    data = bytearray(content)
    for _ in range(times or 1 + int(random.integers(3))):
        if not data:
            break
        at, length = int(random.integers(len(data))), 1 + int(random.integers(min(64, len(data))))
        match int(random.integers(7)):
            case 0:
                data[at] ^= 1 << int(random.integers(8))
            case 1:
                data[at : at + length] = random.bytes(min(length, len(data) - at))
            case 2:
                del data[at:]
            case 3:
                data[at:at] = random.bytes(length)
            case 4:
                del data[at : at + length]
            case 5:
                data[at:at] = data[at : at + length] * int(random.integers(1, 20))
            case 6:
                width = int(one_of(random, (1, 2, 4, 8)))
                value = int(one_of(random, INTERESTING)) % 256**width
                data[at : at + width] = value.to_bytes(width, one_of(random, ("little", "big")))
    return bytes(data)


def another_value(value: Any, random: Random) -> Any:
    """Something else in its place, of its kind or of another."""
    kind = int(random.integers(10))
    if kind == 0:
        return one_of(random, (None, True, False, [], {}, "", 0))
    if kind == 1:
        return one_of(random, TEXTS)
    if kind == 2:
        return one_of(random, INTERESTING)
    if kind == 3:
        return one_of(random, NUMBERS)
    if kind == 4:
        return one_of(random, ([value], {"x": value}, [[value]], DEEP))
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return one_of(random, (value + 1, value - 1, 2 * value, -value, value // 2, float(value), str(value)))
    if isinstance(value, float):
        return one_of(
            random,
            (value * 1.01, -value, value * 1e6, value / 1e6, int(value) if math.isfinite(value) else 0),
        )
    if isinstance(value, str):
        return one_of(random, (value + "x", value[:-1], value.upper(), value[::-1], value * 2))
    if isinstance(value, list):
        changed = list(value)
        match int(random.integers(4)):
            case 0:
                changed = changed + changed
            case 1:
                changed = changed[:-1]
            case 2:
                changed = changed[::-1]
            case 3:
                changed.append(one_of(random, (0, "x", None, [])))
        return changed
    return one_of(random, (None, [], {}, "x", 1))


def as_json(document: Any) -> str:
    """Its JSON, in which DEEP stands for lists within lists, more than a reader can follow."""
    return json.dumps(document).replace(json.dumps(DEEP), "[" * DEPTH + "]" * DEPTH)


def places(document: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The paths of all values in a document of lists and tables, but that of itself."""
    entries = document.items() if isinstance(document, dict) else enumerate(document)
    for key, value in entries:
        yield (*path, key)
        if isinstance(value, dict | list):
            yield from places(value, (*path, key))


def mutated_document(document: Any, random: Random) -> tuple[tuple[Any, ...], Any]:
    """Change, remove, rename or add one value of a document, in its place; its path, and the document."""
    path = one_of(random, places(document))
    parent = document
    for key in path[:-1]:
        parent = parent[key]
    key, action = path[-1], int(random.integers(10))
    if action == 0:
        del parent[key]
    elif action == 1 and isinstance(parent, dict):
        parent[one_of(random, TEXTS)] = parent.pop(key)
    elif action == 2 and isinstance(parent, dict):
        parent[one_of(random, ("x", *TEXTS))] = another_value(0, random)
    else:
        parent[key] = another_value(parent[key], random)
    return path, document
