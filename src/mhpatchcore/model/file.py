"""One file per model: a safetensors file (no pickle) whose metadata is one JSON document.

Everything in it is known by hash: the document names that of every tensor, and the metadata names the document's. So
damage anywhere is noticed; what was made up on purpose is caught by `validation.py`.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from mhpatchcore import __version__
from mhpatchcore.backbone.session import Backbone, BackboneInfo
from mhpatchcore.calibration.deciding_patches import stacked, unstacked
from mhpatchcore.calibration.threshold import Calibration
from mhpatchcore.config import Config
from mhpatchcore.errors import ModelFileError, UserError, in_one_line
from mhpatchcore.metric.moments import Moments
from mhpatchcore.metric.whitening import Whitening
from mhpatchcore.model.history import Event
from mhpatchcore.model.validation import check_document, check_model, check_tensors
from mhpatchcore.model.value import Model, Scale
from mhpatchcore.runtime.arrays import Array
from mhpatchcore.runtime.files import atomic_path, remove_abandoned
from mhpatchcore.runtime.urls import read_url, url_of
from mhpatchcore.scoring.known_defects import NO_DEFECTS, KnownDefects

FORMAT = 9
MOST_HEADER = 100_000_000  # bytes, as in safetensors itself
HASH = 72  # bytes of the header for the hash of an image, and what separates it
THE_REST = 1_000_000  # bytes of the header for anything but names and hashes of images
KEY, DIGEST = "mhpatchcore", "sha256"
# what reading a file can raise that is not what it should be
DAMAGE = (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError, UserError)


def save(model: Model, path: Path) -> None:
    if url_of(path) is None:
        remove_abandoned(path.parent)
    with atomic_path(path) as temporary:
        temporary.write_bytes(to_bytes(model))


def load(path: Path) -> Model:
    content, name = read_file(path)
    return from_bytes(content, name)


def read_file(path: Path) -> tuple[bytes, str]:
    """The content of a model file, of which the header is checked, and what messages call it."""
    url = url_of(path)
    if url is not None:
        content = read_url(url, ModelFileError)
        read_document(content, url)
        return content, url
    document_of(path)  # what is not a model is refused before all of it is read
    try:
        content = path.read_bytes()
    except OSError as error:
        raise _unreadable(path, error) from error
    except MemoryError as error:
        raise _damaged(str(path), "it is larger than the memory") from error
    return content, str(path)


def document_of(path: Path) -> dict[str, Any]:
    """The JSON part of a model file, of which no more than that is read."""
    check_file(path)
    try:
        with path.open("rb") as file:
            length = file.read(8)
            header = file.read(min(int.from_bytes(length, "little"), MOST_HEADER))
    except OSError as error:
        raise _unreadable(path, error) from error
    return read_document(length + header, str(path))


def check_file(path: Path) -> None:
    """Refuse a path that is not a file."""
    if path.is_dir():
        raise ModelFileError(f"{path} is a folder, not a model file; name the file that `fit` has written")
    if not path.is_file():
        raise ModelFileError(f"there is no model file {path}; check the path")


def check_can_be_listed(names: Sequence[str], most: int = MOST_HEADER) -> None:
    """Refuse more images than a model file can list, before the work and not after it.

    >>> check_can_be_listed(["1.png", "2.png"])
    """
    size = THE_REST + len(json.dumps(json.dumps(list(names)))) + HASH * len(names)
    if size > most:
        fit = int(len(names) * most / size)
        raise UserError(
            f"{len(names):,} images are too many for one model, which lists them in a header of at most "
            f"{most / 1e6:.0f} MB: learn from about {fit:,} of them"
        )


def to_bytes(model: Model) -> bytes:
    from safetensors.numpy import save as serialised

    tensors = {name: np.ascontiguousarray(array) for name, array in _tensors(model).items()}
    document = _document(model) | {"sha256": {name: _sha256(array) for name, array in tensors.items()}}
    text = json.dumps(document)
    metadata = {KEY: text, DIGEST: hashlib.sha256(text.encode()).hexdigest()}
    return _in_order(bytes(serialised(tensors, metadata)))


def from_bytes(content: bytes, name: str = "the model") -> Model:
    """The model in a file's content, checked; `name` is what messages call it."""
    document, tensors = read_document(content, name), _read_tensors(content, name)
    try:
        check_tensors(document, tensors)
        for key, sha256 in document["sha256"].items():
            if _sha256(tensors[key]) != sha256:
                raise ValueError(f"{key} is not what was written")
        model = _model(document, tensors)
        check_model(model)
        return model
    except DAMAGE as error:
        raise _damaged(name, error) from error


def read_document(content: bytes, name: str) -> dict[str, Any]:
    """The JSON part alone."""
    metadata = _metadata(content, name)
    if KEY not in metadata:
        raise ModelFileError(f"{name} is a safetensors file, but not a model of mhpatchcore")
    try:
        document: dict[str, Any] = dict(json.loads(metadata[KEY]))
        written, digest = int(document["format"]), hashlib.sha256(metadata[KEY].encode()).hexdigest()
    except DAMAGE as error:
        raise _damaged(name, error) from error
    if written != FORMAT:
        raise ModelFileError(
            f"{name} has format {written} (mhpatchcore {in_one_line(document.get('version'))}), and this is "
            f"mhpatchcore {__version__}, which reads format {FORMAT}: fit the model again, or use the version that "
            "wrote it"
        )
    if digest != metadata.get(DIGEST):
        raise _damaged(name, "its settings are not what was written")
    try:
        check_document(document)
    except DAMAGE as error:
        raise _damaged(name, error) from error
    return document


def _document(model: Model) -> dict[str, Any]:
    calibration = model.calibration
    return {
        "format": FORMAT,
        "version": __version__,
        "product": model.product,
        "config": model.config.to_json(),
        "scales": [
            {
                "backbone": scale.backbone.info.to_json(),
                "n_patches": scale.moments.n,
                "lam": scale.whitening.lam,
                "jitter": scale.whitening.jitter,
                "retained": scale.whitening.retained,
            }
            for scale in model.scales
        ],
        "calibration": {
            "false_alarm": calibration.false_alarm,
            "method": calibration.method,
            "by_hand": calibration.by_hand,
        },
        "images": list(model.images),
        "hashes": list(model.hashes),
        "n_learnt": model.n_learnt,
        "history": [event.to_json() for event in model.history],
        "excluded": list(model.excluded),
        "defects": [
            {"name": name, "images": images}
            for name, images in zip(model.defects.names, model.defects.images, strict=True)
        ],
    }


def _tensors(model: Model) -> dict[str, Array]:
    calibration = model.calibration
    tensors: dict[str, Array] = {
        "images.thumbnails": model.thumbnails,
        "images.measures": model.measures,
        "calibration.scores": calibration.scores,
        "calibration.peaks": calibration.peaks,
        "deciding.images": np.array([one.image for one in calibration.deciding], np.int32),
        "deciding.sizes": np.array([one.size for one in calibration.deciding], np.int32).reshape(-1, 2),
    }
    for i, scale in enumerate(model.scales):
        cells, rows = stacked(calibration.deciding, i, scale.backbone.info.dim)
        tensors |= {
            f"{i}.moments.mean": scale.moments.mean,
            f"{i}.moments.M2": scale.moments.M2,
            f"{i}.moments.rest": np.broadcast_to(scale.moments.rest, scale.moments.mean.shape),
            f"{i}.variances": scale.variances,
            f"{i}.whitening.A": scale.whitening.A,
            f"{i}.bank.raw": scale.raw,
            f"{i}.bank.origin": scale.origin,
            f"{i}.bank.weights": scale.weights,
            f"{i}.deciding.cells": cells,
            f"{i}.deciding.rows": rows,
            f"{i}.graph": np.frombuffer(scale.backbone.graph, np.uint8),
        }
        if model.defects.names:
            tensors |= {
                f"{i}.defects.rows": model.defects.rows[i],
                f"{i}.defects.kinds": model.defects.kinds[i],
            }
    return tensors


def _model(document: dict[str, Any], tensors: dict[str, Array]) -> Model:
    scales = []
    for i, entry in enumerate(document["scales"]):
        mean = tensors[f"{i}.moments.mean"]
        moments = Moments(entry["n_patches"], mean, tensors[f"{i}.moments.M2"], tensors[f"{i}.moments.rest"])
        A, numbers = tensors[f"{i}.whitening.A"], (entry["lam"], entry["jitter"], entry["retained"])
        scales.append(
            Scale(
                Backbone(BackboneInfo.from_json(entry["backbone"]), tensors[f"{i}.graph"].tobytes()),
                moments,
                tensors[f"{i}.variances"],
                Whitening(A, mean, *numbers),
                tensors[f"{i}.bank.raw"],
                tensors[f"{i}.bank.origin"],
                tensors[f"{i}.bank.weights"],
            )
        )
    every = range(len(scales))
    deciding = unstacked(
        tensors["deciding.images"],
        tensors["deciding.sizes"],
        [tensors[f"{i}.deciding.cells"] for i in every],
        [tensors[f"{i}.deciding.rows"] for i in every],
    )
    defects = NO_DEFECTS
    if document["defects"]:
        names, images = zip(*((one["name"], one["images"]) for one in document["defects"]), strict=True)
        rows, kinds = (tuple(tensors[f"{i}.defects.{name}"] for i in every) for name in ("rows", "kinds"))
        defects = KnownDefects(names, images, rows, kinds)
    scores, peaks = tensors["calibration.scores"], tensors["calibration.peaks"]
    calibration = Calibration(scores, peaks, **document["calibration"], deciding=deciding)
    return Model(
        config=Config.from_json(document["config"]),
        scales=tuple(scales),
        calibration=calibration,
        images=tuple(document["images"]),
        hashes=tuple(document["hashes"]),
        thumbnails=tensors["images.thumbnails"],
        measures=tensors["images.measures"],
        n_learnt=document["n_learnt"],
        history=tuple(Event(**one) for one in document["history"]),
        excluded=tuple(document["excluded"]),
        product=document["product"],
        defects=defects,
    )


def _metadata(content: bytes, name: str) -> dict[str, str]:
    """The metadata in the header, which safetensors itself gives only for files."""
    length = int.from_bytes(content[:8], "little")
    try:
        if len(content) < 8 or length > len(content) - 8:
            raise ValueError("its header does not end")
        header = json.loads(content[8 : 8 + length])
        metadata = header.get("__metadata__", {})
        if not all(isinstance(value, str) for value in metadata.values()):
            raise ValueError("its metadata are not texts")
        return dict(metadata)
    except DAMAGE as error:
        raise _damaged(name, error, "truncated, or not a model file") from error


def _read_tensors(content: bytes, name: str) -> dict[str, Array]:
    from safetensors import SafetensorError
    from safetensors.numpy import load as deserialised

    try:
        return dict(deserialised(content))
    except (SafetensorError, *DAMAGE) as error:
        raise _damaged(name, error, "truncated, or not a model file") from error


def _in_order(content: bytes) -> bytes:
    """A safetensors file with its header in one order: the library writes metadata in any."""
    length = int.from_bytes(content[:8], "little")
    header = json.dumps(json.loads(content[8 : 8 + length]), sort_keys=True).encode()
    header += b" " * (-len(header) % 8)
    return len(header).to_bytes(8, "little") + header + content[8 + length :]


def _damaged(name: str, why: object, what: str = "damaged") -> ModelFileError:
    return ModelFileError(f"{name} is {what} ({in_one_line(why)}); copy it again or fit the model again")


def _unreadable(path: Path, error: OSError) -> ModelFileError:
    return ModelFileError(f"cannot read {path}: {error.strerror}; check its permissions")


def _sha256(array: Array) -> str:
    return hashlib.sha256(np.ascontiguousarray(array).data).hexdigest()
