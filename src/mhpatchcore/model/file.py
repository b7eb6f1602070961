"""One file per model: a safetensors file (no pickle) whose metadata is one JSON document.

Format 2 added the history and the witnesses of the calibration images; files of format 1 are read without them. Format
3 added the place of patches, format 4 what bank rows span. A setting that a file does not name did not exist when it
was written: EARLIER says what was done instead.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np

from mhpatchcore import __version__
from mhpatchcore.backbone.session import Backbone, BackboneInfo
from mhpatchcore.calibration.conformal import calibrate
from mhpatchcore.calibration.deciding_patches import Witness, stacked, unstacked
from mhpatchcore.config import Config
from mhpatchcore.detector import Detector
from mhpatchcore.errors import ModelFileError, UserError
from mhpatchcore.metric.moments import Moments
from mhpatchcore.metric.whitening import Whitening
from mhpatchcore.model.history import Event
from mhpatchcore.runtime.arrays import Array
from mhpatchcore.runtime.files import atomic_path

FORMAT = 4
KEY = "mhpatchcore"
EARLIER = {
    "dense": 0.0,
    "parts": 1,
    "place": 0.0,
    "precision": "fp32",
    "reach": 0.0,
    "shuffle": False,
    "span": 1,
}


def save(detector: Detector, path: Path) -> None:
    from safetensors import SafetensorError
    from safetensors.numpy import save_file

    whitening, calibration = detector.whitening, detector.calibration
    document = {
        "format": FORMAT,
        "version": __version__,
        "config": detector.config.to_json(),
        "backbone": detector.backbone.info.to_json(),
        "n_patches": detector.moments.n,
        "whitening": {
            "lam": whitening.lam,
            "jitter": whitening.jitter,
            "retained": whitening.retained,
            "placed": whitening.placed,
        },
        "calibration": {"false_alarm": calibration.false_alarm, "method": calibration.method},
        "images": list(detector.images),
        "history": [event.to_json() for event in detector.history],
        "excluded": list(detector.excluded),
    }
    witness_images, witness_places, witness_rows = stacked(calibration.witnesses)
    tensors = {
        "moments.mean": detector.moments.mean,
        "moments.M2": detector.moments.M2,
        "moments.rest": np.broadcast_to(detector.moments.rest, detector.moments.mean.shape),
        "variances": detector.variances,
        "whitening.A": whitening.A,
        "whitening.mean": whitening.mean,
        "bank.raw": detector.bank_raw,
        "bank.origin": detector.bank_origin,
        "calibration.scores": calibration.scores,
        "calibration.peaks": calibration.peaks,
        "witnesses.images": witness_images,
        "witnesses.places": witness_places,
        "witnesses.rows": witness_rows,
        "backbone.graph": np.frombuffer(detector.backbone.graph, np.uint8),
    }
    tensors = {name: np.ascontiguousarray(array) for name, array in tensors.items()}
    document["sha256"] = {name: _sha256(array) for name, array in tensors.items()}
    with atomic_path(path) as temporary:
        try:
            save_file(tensors, temporary, metadata={KEY: json.dumps(document)})
        except SafetensorError as error:
            raise UserError(f"cannot write {path}: {error}; choose another place") from error


def load(path: Path) -> Detector:
    from safetensors.numpy import load_file

    document, tensors = read_document(path), load_file(path)
    try:
        _check(tensors, document)
        return Detector(
            config=Config.from_json(EARLIER | document["config"]),
            backbone=Backbone(
                BackboneInfo.from_json(document["backbone"]), tensors["backbone.graph"].tobytes()
            ),
            moments=Moments(
                document["n_patches"], tensors["moments.mean"], tensors["moments.M2"], tensors["moments.rest"]
            ),
            variances=tensors["variances"],
            whitening=Whitening(tensors["whitening.A"], tensors["whitening.mean"], **document["whitening"]),
            bank_raw=tensors["bank.raw"],
            bank_origin=tensors["bank.origin"],
            calibration=calibrate(
                tensors["calibration.scores"],
                tensors["calibration.peaks"],
                **document["calibration"],
                witnesses=() if document["format"] < 2 else _witnesses(tensors),
            ),
            images=tuple(document["images"]),
            history=() if document["format"] < 2 else tuple(Event(**one) for one in document["history"]),
            excluded=tuple(document.get("excluded", ())),
        )
    except (KeyError, TypeError, ValueError, UserError) as error:
        raise ModelFileError(f"{path} is damaged ({error}); copy it again or fit the model again") from error


def read_document(path: Path) -> dict[str, Any]:
    """The JSON part alone, without loading any tensor."""
    from safetensors import SafetensorError, safe_open

    if not path.is_file():
        raise ModelFileError(f"there is no model file {path}")
    try:
        with safe_open(path, "numpy") as file:
            metadata = file.metadata() or {}
    except (SafetensorError, OSError, ValueError) as error:
        raise ModelFileError(
            f"{path} is truncated or no model file ({error}); copy it again or fit the model again"
        ) from error
    if KEY not in metadata:
        raise ModelFileError(f"{path} is a safetensors file, but not a model of mhpatchcore")
    try:
        document: dict[str, Any] = dict(json.loads(metadata[KEY]))
        newer = int(document["format"]) > FORMAT
    except (KeyError, TypeError, ValueError) as error:
        raise ModelFileError(f"{path} is damaged ({error}); copy it again or fit the model again") from error
    if newer:
        raise ModelFileError(
            f"{path} was written by mhpatchcore {document.get('version')}, which is newer than this one "
            f"({__version__}): upgrade with pip install -U mhpatchcore"
        )
    return document


def _witnesses(tensors: dict[str, Array]) -> tuple[Witness, ...]:
    return unstacked(tensors["witnesses.images"], tensors["witnesses.places"], tensors["witnesses.rows"])


def _check(tensors: dict[str, Array], document: dict[str, Any]) -> None:
    """Refuse tensors that are not those that were written; files from before that was recorded name the graph alone."""
    written = document.get("sha256") or {"backbone.graph": document["graph_sha256"]}
    for name, sha256 in written.items():
        if _sha256(tensors[name]) != sha256:
            raise ValueError(f"{name} is not what was written")


def _sha256(array: Array) -> str:
    return hashlib.sha256(array.tobytes()).hexdigest()
