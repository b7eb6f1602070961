"""Tensors out of weight files: safetensors, or PyTorch's zip and legacy formats. Nothing in them is executed."""

from __future__ import annotations

import json
import math
import zipfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, TypeVar

import numpy as np
from numpy.typing import NDArray
from safetensors import safe_open

from mhpatchcore.backbone.torch_pickle import NUMPY_DTYPES, RefusedError, Storage, StoredTensor, unpickle
from mhpatchcore.errors import WeightsError, in_one_line

StateDict = Mapping[str, NDArray[Any]]
Value = TypeVar("Value")

_LEGACY_MAGIC = 0x1950A86A20F9469CFC6C
_WRAPPERS = ("state_dict", "model")
# Tensors may share a storage or repeat its values by a zero stride, which lets a small file ask for any
# amount of memory; real checkpoints stay near 1, half precision near 2.
_LARGEST_GROWTH = 8


def read_state_dict(path: Path) -> StateDict:
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
            return _read(file, path)
    except RefusedError as refused:
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


def _read(file: IO[bytes], path: Path) -> StateDict:
    head, file_size = file.read(9), path.stat().st_size
    file.seek(0)
    if head.startswith(b"PK\x03\x04"):
        return _without_module_prefix(_read_zip(file, file_size))
    if head[8:] == b"{":  # safetensors: the header's length in 8 bytes, then the header in JSON
        return SafetensorsFile(path, _without_module_prefix(_safetensors_entries(file, path)))
    if head.startswith(b"\x80"):
        return _without_module_prefix(_read_legacy(file, file_size))
    raise ValueError("the file is empty" if not head else "neither safetensors nor PyTorch begins like this")


@dataclass(frozen=True)
class _Entry:
    """A tensor in a safetensors file: its type and shape, and where its bytes are."""

    dtype: str
    shape: tuple[int, ...]
    start: int
    stop: int


class SafetensorsFile(Mapping[str, NDArray[Any]]):
    """The tensors of a file, each read when asked for, so that a network is built without holding all its weights."""

    def __init__(self, path: Path, entries: dict[str, _Entry]) -> None:
        self.path, self.entries = path, entries

    def __getitem__(self, name: str) -> NDArray[Any]:
        entry = self.entries[name]
        with self.path.open(
            "rb"
        ) as file:  # not a memory map, whose pages would count as this process's memory
            file.seek(entry.start)
            raw = file.read(entry.stop - entry.start)
        return _plain(_flat(raw, entry.dtype).reshape(entry.shape))

    def __contains__(self, name: object) -> bool:
        return name in self.entries

    def __iter__(self) -> Iterator[str]:
        return iter(self.entries)

    def __len__(self) -> int:
        return len(self.entries)


def _safetensors_entries(file: IO[bytes], path: Path) -> dict[str, _Entry]:
    with safe_open(path, "numpy"):
        pass  # opening checks that the header is sound and the tensors fill the file
    length = int.from_bytes(file.read(8), "little")
    header = json.loads(file.read(length))
    header.pop("__metadata__", None)
    data = 8 + length
    unknown = [tensor["dtype"] for tensor in header.values() if tensor["dtype"] not in NUMPY_DTYPES]
    if unknown:
        raise ValueError(f"tensors of type {unknown[0]} are not supported")
    return {
        name: _Entry(tensor["dtype"], tuple(tensor["shape"]), *(data + at for at in tensor["data_offsets"]))
        for name, tensor in header.items()
    }


def _read_zip(file: IO[bytes], file_size: int) -> dict[str, NDArray[Any]]:
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
            root = unpickle(pickled, {})
        return _tensors(root, lambda key: archive.read(f"{folder}data/{key}"), file_size)


def _read_legacy(file: IO[bytes], file_size: int) -> dict[str, NDArray[Any]]:
    storages: dict[str, Storage] = {}
    if unpickle(file, storages) != _LEGACY_MAGIC:
        raise ValueError("a pickle without PyTorch's magic number")
    _protocol, _system, root, keys = (unpickle(file, storages) for _ in range(4))
    raw: dict[str, bytes] = {}
    for key in keys:
        if not isinstance(key, str) or key not in storages:
            raise ValueError("the file lists a storage that no tensor uses")
        storage = storages[key]
        if int.from_bytes(file.read(8), "little") != storage.numel:
            raise ValueError(f"storage {key!r} has another size than its tensors say, or is cut off")
        if storage.nbytes > file_size - file.tell():
            raise ValueError(f"the file ends inside storage {key!r}")
        raw[key] = file.read(storage.nbytes)
    return _tensors(root, raw.__getitem__, file_size)


def _tensors(root: Any, read_storage: Callable[[str], bytes], file_size: int) -> dict[str, NDArray[Any]]:
    tensors = {
        name: value
        for name, value in _unwrapped(root).items()
        if isinstance(name, str) and isinstance(value, StoredTensor)
    }
    if not tensors:
        raise ValueError("there are no tensors in it")
    elements = sum(math.prod(tensor.shape) for tensor in tensors.values())
    if elements * np.dtype(np.float32).itemsize > _LARGEST_GROWTH * file_size:
        raise ValueError("the tensors are far larger than the file")
    flat: dict[Storage, NDArray[Any]] = {}
    for tensor in tensors.values():
        storage = tensor.storage
        if storage not in flat:
            raw = read_storage(storage.key)
            if len(raw) != storage.nbytes:
                raise ValueError(f"storage {storage.key!r} has {len(raw)} bytes instead of {storage.nbytes}")
            flat[storage] = _flat(raw, storage.dtype)
    return {name: _strided(flat[tensor.storage], tensor) for name, tensor in tensors.items()}


def _unwrapped(root: Any) -> dict[Any, Any]:
    for _ in _WRAPPERS:  # not `while`: a hostile dictionary can contain itself
        if isinstance(root, dict):
            root = next((root[key] for key in _WRAPPERS if isinstance(root.get(key), dict)), root)
    if not isinstance(root, dict):
        raise ValueError("it does not hold a dictionary of tensors")
    return root


def _strided(flat: NDArray[Any], tensor: StoredTensor) -> NDArray[Any]:
    if 0 in tensor.shape:
        return _plain(np.empty(tensor.shape, flat.dtype))
    # A dimension of one never steps, and its stride may be any number.
    strides = [stride if n > 1 else 0 for n, stride in zip(tensor.shape, tensor.strides, strict=True)]
    furthest = sum((n - 1) * stride for n, stride in zip(tensor.shape, strides, strict=True))
    if tensor.offset + furthest >= flat.size:
        raise ValueError(f"a tensor reaches outside its storage {tensor.storage.key!r}")
    steps = [stride * flat.itemsize for stride in strides]
    return _plain(np.lib.stride_tricks.as_strided(flat[tensor.offset :], tensor.shape, steps))


def _flat(raw: bytes | bytearray, dtype: str) -> NDArray[Any]:
    """The elements of a raw buffer.

    >>> _flat(b"\\x80\\x3f\\x20\\xc1", "BF16")
    array([  1., -10.], dtype=float32)
    """
    if dtype not in NUMPY_DTYPES:
        raise ValueError(f"tensors of type {dtype} are not supported")
    values = np.frombuffer(raw, NUMPY_DTYPES[dtype])
    return (values.astype("<u4") << 16).view("<f4") if dtype == "BF16" else values


def _plain(tensor: NDArray[Any]) -> NDArray[Any]:
    """Contiguous, floats as float32; a tensor that is so already stays where it is, for weights are large."""
    return np.asarray(tensor, np.float32 if tensor.dtype.kind == "f" else tensor.dtype, order="C")


def _without_module_prefix(state: dict[str, Value]) -> dict[str, Value]:
    """DataParallel puts `module.` before every name; one unprefixed name means that it is a real layer."""
    prefixed = all(name.startswith("module.") for name in state)
    return {name.removeprefix("module."): tensor for name, tensor in state.items()} if prefixed else state
