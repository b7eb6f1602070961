"""The pickle inside a PyTorch file, read without executing any of it.

A pickle is a program. So instead of restricting Python's unpickler, the few instructions are interpreted here
that build plain containers and describe tensors. What the file asks for beyond that is refused by name.
"""

from __future__ import annotations

import pickletools
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import IO, Any

import numpy as np

# bfloat16 is the upper half of a float32, read as uint16 and widened in `_flat`.
NUMPY_DTYPES = {
    "F64": "<f8", "F32": "<f4", "F16": "<f2", "BF16": "<u2", "BOOL": "?",
    "I64": "<i8", "I32": "<i4", "I16": "<i2", "I8": "i1",
    "U64": "<u8", "U32": "<u4", "U16": "<u2", "U8": "u1",
}  # fmt: skip
_STORAGE_DTYPES = {
    "torch.DoubleStorage": "F64", "torch.FloatStorage": "F32", "torch.HalfStorage": "F16",
    "torch.BFloat16Storage": "BF16", "torch.BoolStorage": "BOOL", "torch.LongStorage": "I64",
    "torch.IntStorage": "I32", "torch.ShortStorage": "I16", "torch.CharStorage": "I8",
    "torch.ByteStorage": "U8", "torch.UntypedStorage": "U8", "torch.storage.UntypedStorage": "U8",
}  # fmt: skip
_BUILDERS = ("collections.OrderedDict", "torch._utils._rebuild_tensor_v2", "torch._utils._rebuild_parameter")

_MOST_DIMENSIONS = 32

_LITERALS = {
    "BININT", "BININT1", "BININT2", "LONG1", "LONG4", "BINFLOAT",
    "BINUNICODE", "SHORT_BINUNICODE", "BINUNICODE8", "BINSTRING", "SHORT_BINSTRING",
}  # fmt: skip
_CONSTANTS: dict[str, Callable[[], Any]] = {
    "NONE": lambda: None, "NEWTRUE": lambda: True, "NEWFALSE": lambda: False,
    "EMPTY_DICT": dict, "EMPTY_LIST": list, "EMPTY_TUPLE": tuple,
}  # fmt: skip


class RefusedError(Exception):
    """The pickle asks for something a state dict does not need; the message says what."""


@dataclass(frozen=True)
class _Global:
    name: str


@dataclass(frozen=True)
class Storage:
    key: str
    dtype: str
    numel: int

    @property
    def nbytes(self) -> int:
        return self.numel * np.dtype(NUMPY_DTYPES[self.dtype]).itemsize


@dataclass(frozen=True)
class StoredTensor:
    """A strided view of a storage, counted in elements; not yet checked against it."""

    storage: Storage
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]


def unpickle(file: IO[bytes], storages: dict[str, Storage]) -> Any:
    """Interpret one pickle and note the storages it names; the file is left right behind it."""
    stack: list[Any] = []
    below: list[list[Any]] = []  # the stacks under each mark
    memo: dict[int, Any] = {}
    argument: Any
    for opcode, argument, _ in pickletools.genops(file):
        match opcode.name:
            case "PROTO" | "FRAME":
                pass
            case literal if literal in _LITERALS:
                stack.append(argument)
            case constant if constant in _CONSTANTS:
                stack.append(_CONSTANTS[constant]())
            case "MARK":
                below.append(stack)
                stack = []
            case "TUPLE1" | "TUPLE2" | "TUPLE3":
                size = int(opcode.name[-1])
                stack[-size:] = [tuple(stack[-size:])]
            case "TUPLE":
                items, stack = stack, below.pop()
                stack.append(tuple(items))
            case "APPENDS" | "SETITEMS":
                items, stack = stack, below.pop()
                _fill(stack[-1], items)
            case "APPEND" | "SETITEM":
                size = 1 if opcode.name == "APPEND" else 2
                items = stack[-size:]
                del stack[-size:]
                _fill(stack[-1], items)
            case "BINPUT" | "LONG_BINPUT":
                memo[argument] = stack[-1]
            case "MEMOIZE":
                memo[len(memo)] = stack[-1]
            case "BINGET" | "LONG_BINGET":
                stack.append(memo[argument])
            case "GLOBAL":
                stack.append(_allowed_global(*argument.split(" ", 1)))
            case "STACK_GLOBAL":
                name, module = stack.pop(), stack.pop()
                stack.append(_allowed_global(module, name))
            case "BINPERSID":
                storage = _storage(stack.pop())
                storages[storage.key] = storage
                stack.append(storage)
            case "REDUCE":
                arguments, builder = stack.pop(), stack.pop()
                stack.append(_built(builder, arguments))
            case "BUILD":  # attributes set on an OrderedDict: version notes of the modules
                stack.pop()
            case "STOP":
                return stack.pop()
            case _:
                raise RefusedError(f"the pickle instruction {opcode.name}")
    raise ValueError("the pickle has no end")


# What comes from a pickle is never hashed, compared or printed before its type is known: nested a million
# deep, or containing itself many times over, it would crash or stall the interpreter.


def _fill(container: Any, items: list[Any]) -> None:
    if isinstance(container, dict):
        container.update(_dictionary(zip(items[::2], items[1::2], strict=True)))
    else:
        container.extend(items)


def _dictionary(pairs: Iterable[tuple[Any, Any]]) -> dict[str | int, Any]:
    pairs = [(key, value) for key, value in pairs]
    if not all(isinstance(key, str | int) for key, _ in pairs):
        raise ValueError("a dictionary key is neither text nor a number")
    return dict(pairs)


def _allowed_global(module: Any, name: Any) -> _Global:
    if not (isinstance(module, str) and isinstance(name, str)):
        raise ValueError("a name in the pickle is not text")
    full = f"{module}.{name}"
    if full not in _STORAGE_DTYPES and full not in _BUILDERS:
        raise RefusedError(repr(full))
    return _Global(full)


def _storage(persistent_id: Any) -> Storage:
    match persistent_id:
        case ("storage", _Global(name), str(key), _, int(numel), *view) if name in _STORAGE_DTYPES:
            if numel >= 0 and not any(view):
                return Storage(key, _STORAGE_DTYPES[name], numel)
    raise ValueError("a tensor's storage is described in an unknown way")


def _built(builder: Any, arguments: Any) -> Any:
    match builder, arguments:
        case _Global("collections.OrderedDict"), ():
            return {}
        case _Global("collections.OrderedDict"), (list(pairs),):
            return _dictionary(pairs)
        case _Global("torch._utils._rebuild_parameter"), (StoredTensor() as tensor, *_):
            return tensor
        case _Global("torch._utils._rebuild_tensor_v2"), (Storage(), int(), tuple(), tuple(), *_):
            storage, offset, shape, strides = arguments[:4]
            counts = all(isinstance(n, int) and n >= 0 for n in (offset, *shape, *strides))
            if counts and len(shape) == len(strides) <= _MOST_DIMENSIONS:
                return StoredTensor(storage, offset, shape, strides)
    raise ValueError("a tensor is described in an unknown way")
