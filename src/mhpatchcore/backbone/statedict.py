"""Tensors out of weight files: safetensors, or PyTorch's zip and legacy formats. Nothing in them is executed.

The pickle inside a PyTorch file is a program. So instead of restricting Python's unpickler, the few instructions that
build plain containers and describe tensors are interpreted here. What else a file asks for is refused by name.
"""

from __future__ import annotations

import json
import math
import pickletools
import zipfile
from collections import UserDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, TypeVar

import numpy as np
from safetensors import safe_open

from mhpatchcore.errors import WeightsError, in_one_line
from mhpatchcore.runtime.arrays import Array

Value = TypeVar("Value")

# bfloat16 is the upper half of a float32, read as uint16 and widened in `_flat`.
_NUMPY_DTYPES = {
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
_LITERALS = {
    "BININT", "BININT1", "BININT2", "LONG1", "LONG4", "BINFLOAT",
    "BINUNICODE", "SHORT_BINUNICODE", "BINUNICODE8", "BINSTRING", "SHORT_BINSTRING",
}  # fmt: skip
_CONSTANTS: dict[str, Callable[[], Any]] = {
    "NONE": lambda: None, "NEWTRUE": lambda: True, "NEWFALSE": lambda: False,
    "EMPTY_DICT": dict, "EMPTY_LIST": list, "EMPTY_TUPLE": tuple,
}  # fmt: skip

_LEGACY_MAGIC = 0x1950A86A20F9469CFC6C
_WRAPPERS = ("state_dict", "model")
# Tensors may share a storage or repeat its values by a zero stride, which lets a small file ask for any
# amount of memory; real checkpoints stay near 1, half precision near 2.
_LARGEST_GROWTH = 8


class _RefusedError(Exception):
    """The pickle asks for something a state dict does not need; the message says what."""


@dataclass(frozen=True)
class _Global:
    name: str


@dataclass(frozen=True)
class _Storage:
    key: str
    dtype: str
    numel: int

    @property
    def nbytes(self) -> int:
        return self.numel * np.dtype(_NUMPY_DTYPES[self.dtype]).itemsize


@dataclass(frozen=True)
class _Tensor:
    """A strided view of a storage, counted in elements; not yet checked against it."""

    storage: _Storage
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]


def read_state_dict(path: Path) -> Mapping[str, Array]:
    """Read `.safetensors` or a PyTorch state dict (zip or legacy format); the content decides, not the name.

    Floating tensors come as float32, the others as they are; all are contiguous. Those of a safetensors file are
    read when they are asked for. A state dict inside {"state_dict": ...} or {"model": ...} is unwrapped, and a
    `module.` before every name is dropped.

    >>> import tempfile
    >>> from safetensors.numpy import save_file
    >>> path = Path(tempfile.mkdtemp()) / "tiny.safetensors"
    >>> save_file({"module.conv.weight": np.ones((2, 3), np.float16)}, path)
    >>> {name: (tensor.shape, str(tensor.dtype)) for name, tensor in read_state_dict(path).items()}
    {'conv.weight': ((2, 3), 'float32')}
    """
    path = Path(path)
    try:
        with path.open("rb") as file:
            head, size = file.read(9), path.stat().st_size
            file.seek(0)
            if head.startswith(b"PK\x03\x04"):
                return _without_module_prefix(_read_zip(file, size))
            if head[8:] == b"{":  # safetensors: the header's length in 8 bytes, then the header in JSON
                return _SafetensorsFile(file, path)
            if head.startswith(b"\x80"):
                return _without_module_prefix(_read_legacy(file, size))
            raise ValueError("it begins neither like safetensors nor like PyTorch")
    except _RefusedError as refused:
        raise WeightsError(
            f"{path} is refused: it wants {in_one_line(refused)}, which a plain state dict does not need; "
            "convert it to safetensors where you trust it (safetensors.torch.save_file) and use that file"
        ) from refused
    except OSError as error:
        raise WeightsError(
            f"cannot read weights {path}: {error.strerror or error}; check the path"
        ) from error
    except Exception as error:  # a damaged file can fail in any step of any of the parsers
        raise WeightsError(
            f"{path} is not a usable weights file: {in_one_line(error)}; "
            "fetch it again, or give a .safetensors file or a PyTorch state dict"
        ) from error


def _without_module_prefix(state: dict[str, Value]) -> dict[str, Value]:
    """DataParallel puts `module.` before every name; one unprefixed name means that it is a real layer."""
    prefixed = all(name.startswith("module.") for name in state)
    return {name.removeprefix("module."): tensor for name, tensor in state.items()} if prefixed else state


class _SafetensorsFile(UserDict[str, Any]):
    """The tensors of a file, each read when asked for, so that a network is built without holding all its weights."""

    def __init__(self, file: IO[bytes], path: Path) -> None:
        super().__init__()
        with safe_open(path, "numpy"):
            pass  # opening checks that the header is sound and the tensors fill the file
        self.path, self.start = path, 8 + int.from_bytes(file.read(8), "little")
        header = json.loads(file.read(self.start - 8))
        header.pop("__metadata__", None)
        unknown = [tensor["dtype"] for tensor in header.values() if tensor["dtype"] not in _NUMPY_DTYPES]
        if unknown:
            raise ValueError(f"tensors of type {unknown[0]} are not supported")
        self.data = _without_module_prefix(header)

    def __getitem__(self, name: str) -> Array:
        tensor = self.data[name]
        first, end = tensor["data_offsets"]
        # not a memory map, whose pages would count as this process's memory
        with self.path.open("rb") as file:
            file.seek(self.start + first)
            return _plain(_flat(file.read(end - first), tensor["dtype"]).reshape(tensor["shape"]))


def _read_zip(file: IO[bytes], file_size: int) -> dict[str, Array]:
    with zipfile.ZipFile(file) as archive:
        # PyTorch never compresses; entries larger than the file mean compression or overlap: a zip bomb.
        if sum(entry.file_size for entry in archive.infolist()) > file_size:
            raise ValueError("the entries of the archive are larger than the file")
        pickles = [name for name in archive.namelist() if name.rpartition("/")[2] == "data.pkl"]
        if len(pickles) != 1:
            raise ValueError(f"the archive has {len(pickles)} data.pkl entries instead of one")
        folder = pickles[0].removesuffix("data.pkl")
        if f"{folder}byteorder" in archive.namelist() and archive.read(f"{folder}byteorder") != b"little":
            raise ValueError("the tensors are not little-endian")
        with archive.open(pickles[0]) as pickled:
            root = _unpickle(pickled, {})
        return _tensors(root, lambda key: archive.read(f"{folder}data/{key}"), file_size)


def _read_legacy(file: IO[bytes], file_size: int) -> dict[str, Array]:
    storages: dict[str, _Storage] = {}
    if _unpickle(file, storages) != _LEGACY_MAGIC:
        raise ValueError("a pickle without PyTorch's magic number")
    _protocol, _system, root, keys = (_unpickle(file, storages) for _ in range(4))
    raw: dict[str, bytes] = {}
    for key in keys:
        if not isinstance(key, str):
            raise ValueError("a storage has no name")
        size = int.from_bytes(file.read(8), "little")
        if size != storages[key].numel or storages[key].nbytes > file_size - file.tell():
            raise ValueError(f"storage {key!r} has another size than its tensors say, or is cut off")
        raw[key] = file.read(storages[key].nbytes)
    return _tensors(root, raw.__getitem__, file_size)


def _tensors(root: Any, read_storage: Callable[[str], bytes], file_size: int) -> dict[str, Array]:
    for _ in _WRAPPERS:  # not `while`: a hostile dictionary can contain itself
        if isinstance(root, dict):
            root = next((root[key] for key in _WRAPPERS if isinstance(root.get(key), dict)), root)
    found = root.items() if isinstance(root, dict) else ()
    tensors = {key: value for key, value in found if isinstance(key, str) and isinstance(value, _Tensor)}
    if not tensors:
        raise ValueError("there are no tensors in it")
    elements = sum(math.prod(tensor.shape) for tensor in tensors.values())
    if elements * np.dtype(np.float32).itemsize > _LARGEST_GROWTH * file_size:
        raise ValueError("the tensors are far larger than the file")
    flat: dict[_Storage, Array] = {}
    for tensor in tensors.values():
        storage = tensor.storage
        if storage not in flat:
            raw = read_storage(storage.key)
            if len(raw) != storage.nbytes:
                raise ValueError(f"storage {storage.key!r} has {len(raw)} bytes instead of {storage.nbytes}")
            flat[storage] = _flat(raw, storage.dtype)
    return {name: _strided(flat[tensor.storage], tensor) for name, tensor in tensors.items()}


def _strided(flat: Array, tensor: _Tensor) -> Array:
    if 0 in tensor.shape:
        return _plain(np.empty(tensor.shape, flat.dtype))
    # A dimension of one never steps, and its stride may be any number.
    strides = [stride if n > 1 else 0 for n, stride in zip(tensor.shape, tensor.strides, strict=True)]
    furthest = sum((n - 1) * stride for n, stride in zip(tensor.shape, strides, strict=True))
    if tensor.offset + furthest >= flat.size:
        raise ValueError(f"a tensor reaches outside its storage {tensor.storage.key!r}")
    steps = [stride * flat.itemsize for stride in strides]
    return _plain(np.lib.stride_tricks.as_strided(flat[tensor.offset :], tensor.shape, steps))


def _flat(raw: bytes, dtype: str) -> Array:
    """The elements of a raw buffer.

    >>> _flat(b"\\x80\\x3f\\x20\\xc1", "BF16")
    array([  1., -10.], dtype=float32)
    """
    values = np.frombuffer(raw, _NUMPY_DTYPES[dtype])
    return (values.astype("<u4") << 16).view("<f4") if dtype == "BF16" else values


def _plain(tensor: Array) -> Array:
    """Contiguous, floats as float32; a tensor that is so already stays where it is, for weights are large."""
    return np.asarray(tensor, np.float32 if tensor.dtype.kind == "f" else tensor.dtype, order="C")


# What comes from a pickle is never hashed, compared or printed before its type is known: nested a million
# deep, or containing itself many times over, it would crash or stall the interpreter.


def _unpickle(file: IO[bytes], storages: dict[str, _Storage]) -> Any:
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
            case "TUPLE1" | "TUPLE2" | "TUPLE3" as name:
                size = int(name[-1])
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
                raise _RefusedError(f"the pickle instruction {opcode.name}")
    raise ValueError("the pickle has no end")


def _fill(container: Any, items: list[Any]) -> None:
    if isinstance(container, dict):
        container.update(_dictionary(list(zip(items[::2], items[1::2], strict=True))))
    else:
        container.extend(items)


def _dictionary(pairs: list[tuple[Any, Any]]) -> dict[str | int, Any]:
    if not all(isinstance(key, str | int) for key, _ in pairs):
        raise ValueError("a dictionary key is neither text nor a number")
    return dict(pairs)


def _allowed_global(module: Any, name: Any) -> _Global:
    if not (isinstance(module, str) and isinstance(name, str)):
        raise ValueError("a name in the pickle is not text")
    full = f"{module}.{name}"
    if full not in _STORAGE_DTYPES and full not in _BUILDERS:
        raise _RefusedError(repr(full))
    return _Global(full)


def _storage(persistent_id: Any) -> _Storage:
    match persistent_id:
        case ("storage", _Global(name), str(key), _, int(numel), *view) if name in _STORAGE_DTYPES:
            if numel >= 0 and not any(view):
                return _Storage(key, _STORAGE_DTYPES[name], numel)
    raise ValueError("a tensor's storage is described in an unknown way")


def _built(builder: Any, arguments: Any) -> Any:
    match builder, arguments:
        case _Global("collections.OrderedDict"), ():
            return {}
        case _Global("collections.OrderedDict"), (list(pairs),):
            return _dictionary(pairs)
        case _Global("torch._utils._rebuild_parameter"), (_Tensor() as tensor, *_):
            return tensor
        case _Global("torch._utils._rebuild_tensor_v2"), (_Storage(), int(), tuple(), tuple(), *_):
            storage, offset, shape, strides = arguments[:4]
            counts = all(isinstance(n, int) and n >= 0 for n in (offset, *shape, *strides))
            if counts and len(shape) == len(strides):
                return _Tensor(storage, offset, shape, strides)
    raise ValueError("a tensor is described in an unknown way")
