"""Another ONNX graph: one field of a message somewhere in it is changed, removed, doubled or moved."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from benchmarks.stress.mutations import INTERESTING, NUMBERS, TEXTS, Random, damaged_bytes, one_of

Place = tuple[Any, Any]  # a message and the descriptor of one of its fields


def mutate(message: Any, random: Random) -> str:
    """Change one field; what it is called."""
    parent, field = one_of(random, _places(message))
    if _is_repeated(field):
        _mutate_list(getattr(parent, field.name), field, random)
    elif field.cpp_type == field.CPPTYPE_MESSAGE or random.random() < 0.1:
        parent.ClearField(field.name)
    else:
        _assign(parent, field, _another(getattr(parent, field.name), field, random))
    return f"{parent.DESCRIPTOR.name}.{field.name}"


def _is_repeated(field: Any) -> bool:
    repeated = getattr(field, "is_repeated", None)
    return bool(field.label == field.LABEL_REPEATED if repeated is None else repeated)


def _places(message: Any) -> Iterator[Place]:
    for field, value in message.ListFields():
        yield message, field
        if field.cpp_type == field.CPPTYPE_MESSAGE:
            for inner in value if _is_repeated(field) else [value]:
                yield from _places(inner)


def _mutate_list(values: Any, field: Any, random: Random) -> None:
    at, action = int(random.integers(len(values))), int(random.integers(5))
    if field.cpp_type == field.CPPTYPE_MESSAGE:
        copy = type(values[at])()
        copy.CopyFrom(values[at])
        if action < 2:
            del values[at]
        elif action < 4:
            values.add().CopyFrom(copy)
        else:
            values[at].CopyFrom(values[int(random.integers(len(values)))])
    elif action == 0:
        del values[at]
    elif action == 1:
        values.append(values[at])
    else:
        try:
            values[at] = _another(values[at], field, random)
        except (ValueError, TypeError, OverflowError):
            del values[at]


def _another(value: Any, field: Any, random: Random) -> Any:
    if isinstance(value, bytes):
        return damaged_bytes(value, random)
    if isinstance(value, str):
        return one_of(random, (*TEXTS, value + "x", value[:-1], "image", "conv1", "Loop", "com.microsoft"))
    if isinstance(value, float):
        return one_of(random, NUMBERS)
    return one_of(random, (*INTERESTING, value + 1, value - 1, -value))


def _assign(parent: Any, field: Any, value: Any) -> None:
    try:
        setattr(parent, field.name, value)
    except (ValueError, TypeError, OverflowError):  # too large for its type, or no text
        parent.ClearField(field.name)
