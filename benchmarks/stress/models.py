"""Model files: damaged, and forged with all hashes right.

Damage must be refused, unless the file gives the very same results. A forged file may be another model, then it has to
be a lawful one: finite scores, a threshold or none, p-values in (0, 1], results that survive saving, and no tracebacks
from whatever else is done with it. If the forged field takes no part in scoring, the results must be the same.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from functools import cache
from math import isnan
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from google.protobuf.message import DecodeError

from benchmarks.stress import protobuf, tiny
from benchmarks.stress.mutations import (
    INTERESTING,
    NUMBERS,
    Random,
    another_value,
    as_json,
    damaged_bytes,
    mutated_document,
    one_of,
    random_of,
)
from benchmarks.stress.processes import HARMLESS, Family, Violation
from mhpatchcore import Detector
from mhpatchcore.model.file import DIGEST, KEY, to_bytes

# what takes part in a result: with any other field forged the results stay what they were
DECIDES = {
    *("config", "scales", "format", "sha256", "calibration", "false_alarm", "threshold"),
    *("sizes", "resize", "window", "roi", "score", "local", "neighbours", "sigma"),
    *("height", "width", "maps"),
}
DECIDING_TENSORS = ("graph", "A", "mean", "raw", "weights", "scores", "peaks")
Results = tuple[Any, ...]


def prepare(folder: Path) -> None:
    tiny.write_model(folder)


def attempt(folder: Path, seed: int) -> str:
    random = random_of("models", seed)
    content, expected = _original(folder)
    changed, decides = one_of(random, MUTATIONS)(content, random)
    path = folder / f"{seed}.mhpc"
    try:
        path.write_bytes(changed)
        detector = Detector.load(path)
        results = _results(detector)
        if not decides and results != expected:
            raise Violation("verdict: a damaged file gives other results, without an error")
        _check_lawful(detector, results)
        _use(detector, random)
    finally:
        path.unlink(missing_ok=True)
    return HARMLESS


def undamaged(folder: Path) -> None:
    _original(folder)
    _another_detector()


FAMILY = Family("models", prepare, undamaged, attempt)


@cache
def _original(folder: Path) -> tuple[bytes, Results]:
    path = folder / "tiny.mhpc"
    return path.read_bytes(), _results(Detector.load(path))


def _results(detector: Detector) -> Results:
    """All that is said of two images, one of them with a defect."""
    fine, defective = tiny.pictures(70, 2)
    defective[8:16, 8:16] = (255, 0, 0)
    said: list[Any] = []
    for picture in (fine, defective):
        result = detector.score(picture)
        said += [result.score, result.threshold, result.p_value, result.pixel_threshold, result.map.tobytes()]
        said += [result.verdict, len(result.regions)]
    return tuple(said)


def _check_lawful(detector: Detector, results: Results) -> None:
    for score, threshold, p, pixels, heat in (results[0:5], results[7:12]):
        if not (np.isfinite(score) and score >= 0 and np.isfinite(np.frombuffer(heat, np.float32)).all()):
            raise Violation(f"verdict: a score of {score} from a model that was taken")
        if isnan(threshold) or isnan(pixels) or not 0 < p <= 1:
            raise Violation(f"verdict: threshold {threshold}, for pixels {pixels}, p {p}")


def _use(detector: Detector, random: Random) -> None:
    """Whatever else is done with a model; what a user can mend may be refused."""
    from mhpatchcore.model.file import from_bytes

    if _results(Detector(from_bytes(to_bytes(detector.model)))) != _results(detector):
        raise Violation("verdict: what is saved again gives other results")
    repr(detector)
    picture = tiny.pictures(80, 1)[0]
    match int(random.integers(8)):
        case 0:
            detector.explain(picture)
        case 1:
            detector.calibrated(0.3)
        case 2:
            detector.calibrated(0.2, tiny.pictures(90, 3), add=True)
        case 3:
            detector.updated(tiny.pictures(60, 3))
        case 4:
            detector.merged(_another_detector())
        case 5:
            detector.updated(tiny.pictures(60, 2), returned=True)


@cache
def _another_detector() -> Detector:
    """With the same network and settings, of other pictures."""
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        path = tiny.write_network(Path(folder))
        return Detector.fit(tiny.pictures(30, 8), tiny.settings(path))


# mutations: (content, random) → (other content, whether what was changed decides results)


def _bytes(content: bytes, random: Random) -> tuple[bytes, bool]:
    return damaged_bytes(content, random), False


def _one_bit(content: bytes, random: Random) -> tuple[bytes, bool]:
    data = bytearray(content)
    header = 8 + int.from_bytes(content[:8], "little")
    at = int(
        random.integers(header if random.random() < 0.7 else len(data))
    )  # most settings stand in the header
    data[at] ^= 1 << int(random.integers(8))
    return bytes(data), False


def _header_field(content: bytes, random: Random) -> tuple[bytes, bool]:
    """The table of tensors: names, types, shapes, places."""
    header, data = _parted(content)
    mutated_document(header, random)
    return _joined(header, data), False


def _document_unsigned(content: bytes, random: Random) -> tuple[bytes, bool]:
    header, data = _parted(content)
    document = json.loads(header["__metadata__"][KEY])
    mutated_document(document, random)
    header["__metadata__"][KEY] = as_json(document)
    return _joined(header, data), False


def _document_signed(content: bytes, random: Random) -> tuple[bytes, bool]:
    header, data = _parted(content)
    document = json.loads(header["__metadata__"][KEY])
    path, _ = mutated_document(document, random)
    decides = bool(DECIDES & {str(key) for key in path})
    # scales are deep: of what they tell some decides
    if path[0] == "scales" and len(path) > 2:
        decides = bool({"maps", "height", "width"} & {str(key) for key in path}) or path[2:] == ("backbone",)
    if path[0] == "config" and len(path) > 1:
        decides = bool(DECIDES & {str(path[1])})
    return _signed(header, document, data), decides


def _tensor_signed(content: bytes, random: Random) -> tuple[bytes, bool]:
    """Other numbers in a tensor, its hash made right."""
    header, data = _parted(content)
    name = one_of(
        random, sorted(name for name in header if name != "__metadata__" and not name.endswith("graph"))
    )
    start, stop = header[name]["data_offsets"]
    kind = {"F64": "<f8", "F32": "<f4", "F16": "<f2", "I32": "<i4", "U8": "u1"}[header[name]["dtype"]]
    values = np.frombuffer(data[start:stop], kind).copy()
    if len(values):
        with np.errstate(all="ignore"):
            for _ in range(int(random.integers(1, 4))):
                value = one_of(random, NUMBERS if kind[1] == "f" else INTERESTING)
                at = slice(None) if random.random() < 0.2 else int(random.integers(len(values)))
                values[at] = value if kind[1] == "f" else np.array(value % 2**32).astype("<u4").view("<i4")
    changed = data[:start] + values.tobytes() + data[stop:]
    return _signed(header, json.loads(header["__metadata__"][KEY]), changed), name.endswith(DECIDING_TENSORS)


def _shape_signed(content: bytes, random: Random) -> tuple[bytes, bool]:
    """Rows and columns of a tensor taken away, repeated or of another type, its hash and its place made right."""
    header, data = _parted(content)
    names = sorted(name for name in header if name != "__metadata__")
    name = one_of(random, names)
    start, stop = header[name]["data_offsets"]
    shape, width = list(header[name]["shape"]), (stop - start) // max(int(np.prod(header[name]["shape"])), 1)
    if not shape or not width:
        return _bytes(content, random)
    match int(random.integers(4)):
        case 0:
            shape[0] = max(0, shape[0] - 1)
        case 1:
            shape[0] += int(random.integers(1, 5))
        case 2:
            shape = shape[::-1]
        case 3:
            shape = [*shape, 1]
    wanted = int(np.prod(shape)) * width
    piece = (data[start:stop] * (1 + wanted // max(stop - start, 1)))[:wanted]
    header[name] |= {"shape": shape, "data_offsets": [start, start + len(piece)]}
    for other in names:
        begin, end = header[other]["data_offsets"]
        if other != name and begin >= stop:
            header[other]["data_offsets"] = [
                begin + len(piece) - (stop - start),
                end + len(piece) - (stop - start),
            ]
    changed = data[:start] + piece + data[stop:]
    return _signed(header, json.loads(header["__metadata__"][KEY]), changed), name.endswith(DECIDING_TENSORS)


def _network_signed(content: bytes, random: Random) -> tuple[bytes, bool]:
    """Another network in the model, its hash made right."""
    header, data = _parted(content)
    name = next(name for name in header if name.endswith("graph"))
    start, stop = header[name]["data_offsets"]
    model = onnx.load_model_from_string(data[start:stop])
    for _ in range(int(random.integers(1, 3))):
        protobuf.mutate(model, random)
    try:
        graph = model.SerializeToString()
    except (DecodeError, ValueError):
        graph = damaged_bytes(data[start:stop], random)
    grown = len(graph) - (stop - start)
    header[name] |= {"shape": [len(graph)], "data_offsets": [start, start + len(graph)]}
    for other, entry in header.items():
        if other not in (name, "__metadata__") and entry["data_offsets"][0] >= stop:
            entry["data_offsets"] = [place + grown for place in entry["data_offsets"]]
    changed = data[:start] + graph + data[stop:]
    return _signed(header, json.loads(header["__metadata__"][KEY]), changed), True


def _metadata(content: bytes, random: Random) -> tuple[bytes, bool]:
    header, data = _parted(content)
    header["__metadata__"] = another_value(header["__metadata__"], random)
    return _joined(header, data), False


MUTATIONS: tuple[Callable[[bytes, Random], tuple[bytes, bool]], ...] = (
    *(_bytes, _one_bit, _header_field, _document_unsigned, _metadata),
    *(_document_signed, _document_signed, _document_signed),
    *(_tensor_signed, _tensor_signed, _shape_signed, _network_signed, _network_signed),
)


def _parted(content: bytes) -> tuple[dict[str, Any], bytes]:
    length = int.from_bytes(content[:8], "little")
    return dict(json.loads(content[8 : 8 + length])), content[8 + length :]


def _joined(header: Any, data: bytes) -> bytes:
    text = as_json(header).encode()
    return len(text).to_bytes(8, "little") + text + data


def _signed(header: dict[str, Any], document: Any, data: bytes) -> bytes:
    """The file with the hashes of all its tensors and of its document."""
    if isinstance(document, dict) and isinstance(document.get("sha256"), dict):
        for name, entry in header.items():
            if name in document["sha256"]:
                start, stop = entry["data_offsets"]
                document["sha256"][name] = hashlib.sha256(data[start:stop]).hexdigest()
    text = as_json(document)
    header["__metadata__"] = {KEY: text, DIGEST: hashlib.sha256(text.encode()).hexdigest()}
    return _joined(header, data)
