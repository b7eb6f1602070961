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
import safetensors.numpy as safetensors
from safetensors import SafetensorError

from mhpatchcore import __version__
from mhpatchcore.backbone.session import Backbone, BackboneInfo
from mhpatchcore.calibration.deciding_patches import stacked, unstacked
from mhpatchcore.calibration.threshold import Calibration
from mhpatchcore.config import Config
from mhpatchcore.errors import ModelFileError, UserError, in_one_line
from mhpatchcore.metric.moments import Moments
from mhpatchcore.metric.whitening import Whitening
from mhpatchcore.model.history import Event
from mhpatchcore.model.validation import OF_SCALE, check_document, check_model, check_tensors
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
DAMAGE = (
    *(ArithmeticError, AttributeError, LookupError, MemoryError, RecursionError, TypeError, ValueError),
    *(SafetensorError, UserError),
)


def save(model: Model, path: Path) -> None:
    if url_of(path) is None:
        remove_abandoned(path.parent)
    with atomic_path(path) as temporary:
        temporary.write_bytes(to_bytes(model))


def load(path: Path) -> Model:
    return from_bytes(*read_file(path))


def read_file(path: Path) -> tuple[bytes, str]:
    """The content of a model file, of which the header is checked, and what messages call it."""
    url = url_of(path)
    if url is not None:
        content = read_url(url, ModelFileError)
        read_document(content, url)
        return content, url
    document_of(path)  # what is not a model is refused before all of it is read
    return _read(path), str(path)


def document_of(path: Path) -> dict[str, Any]:
    """The JSON part of a model file, of which no more than that is read."""
    check_file(path)
    length = _read(path, 8)
    return read_document(_read(path, 8 + min(int.from_bytes(length, "little"), MOST_HEADER)), str(path))


def check_file(path: Path) -> None:
    """Refuse a path that is not a file."""
    if not path.is_file():
        why = f"{path} is a folder, not a model file" if path.is_dir() else f"there is no model file {path}"
        raise ModelFileError(f"{why}: name the file that `fit` has written")


def _read(path: Path, size: int = -1) -> bytes:
    try:
        with path.open("rb") as file:
            return file.read(size)
    except (OSError, MemoryError) as error:
        raise ModelFileError(f"cannot read {path}: {in_one_line(error)}; check its permissions") from error


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
    tensors = {name: np.ascontiguousarray(array) for name, array in _tensors(model).items()}
    document = _document(model) | {"sha256": {name: _sha256(array) for name, array in tensors.items()}}
    text = json.dumps(document)
    content = safetensors.save(tensors, {KEY: text, DIGEST: hashlib.sha256(text.encode()).hexdigest()})
    # the library writes metadata in any order
    length = int.from_bytes(content[:8], "little")
    header = json.dumps(json.loads(content[8 : 8 + length]), sort_keys=True).encode()
    header += b" " * (-len(header) % 8)
    return len(header).to_bytes(8, "little") + header + content[8 + length :]


def from_bytes(content: bytes, name: str = "the model") -> Model:
    """The model in a file's content, checked; `name` is what messages call it."""
    document = read_document(content, name)
    try:
        tensors = safetensors.load(content)
        check_tensors(document, tensors)
        for key, sha256 in document["sha256"].items():
            if _sha256(tensors[key]) != sha256:
                raise ValueError(f"{key} is not what was written")
        model = _model(document, tensors)
        check_model(model)
        return model
    except DAMAGE as error:
        raise damaged(name, error) from error


def read_document(content: bytes, name: str) -> dict[str, Any]:
    """The JSON part alone, checked."""
    try:
        length = int.from_bytes(content[:8], "little")
        if not 0 < length <= len(content) - 8:
            raise ValueError("its header does not end")
        # safetensors gives metadata only of files
        metadata = json.loads(content[8 : 8 + length]).get("__metadata__", {})
        if KEY not in metadata:
            raise ModelFileError(f"{name} is a safetensors file, but not a model of mhpatchcore")
        document: dict[str, Any] = json.loads(metadata[KEY])
        if document["format"] != FORMAT:
            raise ModelFileError(
                f"{name} has format {document['format']} (mhpatchcore {in_one_line(document.get('version'))}), and "
                f"this is mhpatchcore {__version__}, which reads format {FORMAT}: fit the model again, or use the "
                "version that wrote it"
            )
        if hashlib.sha256(metadata[KEY].encode()).hexdigest() != metadata.get(DIGEST):
            raise ValueError("its settings are not what was written")
        check_document(document)
        return document
    except ModelFileError:
        raise
    except DAMAGE as error:
        raise damaged(name, error) from error


def damaged(name: object, why: object) -> ModelFileError:
    return ModelFileError(
        f"{name} is damaged, truncated or not a model file ({in_one_line(why)}); copy it again or fit the model again"
    )


def _document(model: Model) -> dict[str, Any]:
    calibration = model.calibration
    return {
        "format": FORMAT,
        "version": __version__,
        "product": model.product,
        "config": model.config.to_json(),
        "scales": [
            {"backbone": scale.backbone.info.to_json(), "n_patches": scale.moments.n}
            | {name: getattr(scale.whitening, name) for name in ("lam", "jitter", "retained")}
            for scale in model.scales
        ],
        "calibration": {name: getattr(calibration, name) for name in ("false_alarm", "method", "by_hand")},
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
            tensors[f"{i}.defects.rows"] = model.defects.rows[i]
            tensors[f"{i}.defects.kinds"] = model.defects.kinds[i]
    return tensors


def _model(document: dict[str, Any], tensors: dict[str, Array]) -> Model:
    scales = []
    for i, entry in enumerate(document["scales"]):
        own = {name: tensors[f"{i}.{name}"] for name in OF_SCALE}
        mean = own["moments.mean"]
        scales.append(
            Scale(
                Backbone(BackboneInfo.from_json(entry["backbone"]), own["graph"].tobytes()),
                Moments(entry["n_patches"], mean, own["moments.M2"], own["moments.rest"]),
                own["variances"],
                Whitening(own["whitening.A"], mean, entry["lam"], entry["jitter"], entry["retained"]),
                own["bank.raw"],
                own["bank.origin"],
                own["bank.weights"],
            )
        )
    every = range(len(scales))
    of_scales = [[tensors[f"{i}.deciding.{name}"] for i in every] for name in ("cells", "rows")]
    deciding = unstacked(tensors["deciding.images"], tensors["deciding.sizes"], *of_scales)
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


def _sha256(array: Array) -> str:
    return hashlib.sha256(np.ascontiguousarray(array).data).hexdigest()
