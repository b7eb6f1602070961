"""Weights files: safetensors headers, and the pickles, archives and storages of PyTorch files.

Each is refused in one line, or gives tensors that together are not much larger than the file.
"""

from __future__ import annotations

import io
import json
import pickle
import zipfile
from functools import cache
from pathlib import Path

import numpy as np
from safetensors.numpy import save

from benchmarks.stress.mutations import (
    INTERESTING,
    Random,
    as_json,
    damaged_bytes,
    mutated_document,
    one_of,
    random_of,
)
from benchmarks.stress.processes import HARMLESS, Family, Violation
from mhpatchcore.backbone.statedict import read_state_dict

TENSORS = {
    "conv.weight": np.arange(24, dtype=np.float32).reshape(2, 3, 4),
    "conv.bias": np.ones(2, np.float32),
}
MOST_GROWTH = 16
OPCODES = tuple(bytes([code]) for code in range(256))


def prepare(folder: Path) -> None:
    (folder / "whole.safetensors").write_bytes(save(TENSORS))
    (folder / "whole.pth").write_bytes(_archive(_program(), [array.tobytes() for array in TENSORS.values()]))
    (folder / "whole.pt").write_bytes(_legacy(_program(), list(TENSORS.values())))


def undamaged(folder: Path) -> None:
    for name, (_, tensors) in _originals(folder).items():
        if not all(np.array_equal(tensors[key], array) for key, array in TENSORS.items()):
            raise Violation(f"the original {name} is not read as it was written")


def attempt(folder: Path, seed: int) -> str:
    random = random_of("weights", seed)
    name = one_of(random, sorted(_originals(folder)))
    content = _mutated(_originals(folder)[name][0], Path(name).suffix, random)
    path = folder / f"{seed}{Path(name).suffix}"
    try:
        path.write_bytes(content)
        state = read_state_dict(path)
        size = sum(np.asarray(state[key]).nbytes for key in state)
    finally:
        path.unlink(missing_ok=True)
    if size > MOST_GROWTH * len(content):
        raise Violation(f"memory: {size} bytes of tensors from a file of {len(content)}")
    return HARMLESS


FAMILY = Family("weights", prepare, undamaged, attempt)


@cache
def _originals(folder: Path) -> dict[str, tuple[bytes, dict[str, np.ndarray]]]:
    return {path.name: (path.read_bytes(), dict(read_state_dict(path))) for path in folder.glob("whole.*")}


def _mutated(content: bytes, suffix: str, random: Random) -> bytes:
    if random.random() < 0.3:
        return damaged_bytes(content, random)
    if suffix == ".safetensors":
        length = int.from_bytes(content[:8], "little")
        header = json.loads(content[8 : 8 + length])
        mutated_document(header, random)
        text = as_json(header).encode()
        length = int(one_of(random, INTERESTING)) % 2**64 if random.random() < 0.2 else len(text)
        return length.to_bytes(8, "little") + text + content[8 + int.from_bytes(content[:8], "little") :]
    program, raws = bytearray(_program()), [array.tobytes() for array in TENSORS.values()]
    for _ in range(int(random.integers(1, 4))):
        at = int(random.integers(2, len(program)))
        if random.random() < 0.5:
            program[at : at + 1] = one_of(random, OPCODES)
        else:
            program[at:at] = one_of(random, OPCODES) * int(one_of(random, (1, 2, 1000, 200_000)))
    if random.random() < 0.2:
        raws[0] = raws[0] * int(random.integers(4))
    return (
        _archive(bytes(program), raws)
        if suffix == ".pth"
        else _legacy(bytes(program), list(TENSORS.values()))
    )


def _program() -> bytes:
    """The pickle of an ordered dictionary of TENSORS, as PyTorch writes it, instruction by instruction."""
    parts = [b"\x80\x02ccollections\nOrderedDict\n)R("]
    for key, (name, array) in enumerate(TENSORS.items()):
        strides = [step // array.itemsize for step in array.strides]
        parts += [
            _text(name),
            b"ctorch._utils\n_rebuild_tensor_v2\n(",
            b"(" + _text("storage") + b"ctorch\nFloatStorage\n" + _text(str(key)) + _text("cpu"),
            b"K" + bytes([array.size]) + b"tQK\0",
            b"(" + b"".join(b"K" + bytes([side]) for side in array.shape) + b"t",
            b"(" + b"".join(b"K" + bytes([step]) for step in strides) + b"t",
            b"\x89ccollections\nOrderedDict\n)RtR",
        ]
    return b"".join([*parts, b"u."])


def _text(text: str) -> bytes:
    return b"X" + len(text).to_bytes(4, "little") + text.encode()


def _archive(program: bytes, raws: list[bytes]) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("archive/data.pkl", program)
        for key, raw in enumerate(raws):
            archive.writestr(f"archive/data/{key}", raw)
    return buffer.getvalue()


def _legacy(program: bytes, arrays: list[np.ndarray]) -> bytes:
    header = (0x1950A86A20F9469CFC6C, 1001, {"protocol_version": 1001, "little_endian": True})
    # the older format says of every storage that it is no view
    with_views = program.replace(b"tQK\0", b"NtQK\0")
    keys = pickle.dumps([str(key) for key in range(len(arrays))], 2)
    content = [array.size.to_bytes(8, "little") + array.tobytes() for array in arrays]
    return b"".join([*(pickle.dumps(part, 2) for part in header), with_views, keys, *content])
