"""The model file: what is loaded is what was saved; anything else gets one clear line."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from safetensors import SafetensorError, safe_open
from safetensors.numpy import load_file, save_file

from mhpatchcore.model import file as modelfile
from mhpatchcore.config import Config
from mhpatchcore.demo.dataset import vial_image
from mhpatchcore.detector import Detector
from mhpatchcore.errors import ModelFileError, UserError
from mhpatchcore.model.file import KEY


@pytest.fixture(scope="module")
def detector(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Detector]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MHPATCHCORE_CACHE", str(tmp_path_factory.mktemp("cache")))
        pictures = [vial_image(seed, pixels=96)[0] for seed in range(6)]
        yield Detector.fit(pictures, Config(size=96, K=100, m_c=32, layers=("block4", "block10")))


@pytest.fixture
def saved(detector: Detector, tmp_path: Path) -> Path:
    detector.save(tmp_path / "part.mhpc")
    return tmp_path / "part.mhpc"


def rewritten(path: Path, document: object = None, **tensors: np.ndarray | None) -> None:
    """Change the file's JSON document or tensors; None drops a tensor."""
    with safe_open(path, "numpy") as file:
        metadata = file.metadata()
    kept = {name: array for name, array in (load_file(path) | tensors).items() if array is not None}
    if document is not None:
        metadata = {KEY: document if isinstance(document, str) else json.dumps(document)}
    save_file(kept, path, metadata=metadata)


def document_of(path: Path) -> dict[str, object]:
    return modelfile.read_document(path)


def message(path: Path) -> str:
    """The error of loading, which must be one line that names the file."""
    with pytest.raises(ModelFileError) as caught:
        Detector.load(path)
    text = str(caught.value)
    assert str(path) in text and "\n" not in text
    return text


def test_a_loaded_detector_scores_the_same(detector: Detector, saved: Path) -> None:
    loaded = Detector.load(saved)
    for seed, defect in ((50, None), (51, "scratch"), (52, "low_fill")):
        picture, _ = vial_image(seed, defect, pixels=120)
        ours, theirs = detector.score(picture), loaded.score(picture)
        assert (ours.score, ours.threshold, ours.p_value) == (theirs.score, theirs.threshold, theirs.p_value)
        assert ours.pixel_threshold == theirs.pixel_threshold
        assert np.array_equal(ours.map, theirs.map) and ours.map.shape == (120, 120)


def test_everything_survives(detector: Detector, saved: Path) -> None:
    loaded = Detector.load(saved)
    assert repr(loaded) == repr(detector)
    assert loaded.config == detector.config and loaded.images == detector.images
    assert loaded.backbone.info == detector.backbone.info and loaded.backbone.graph == detector.backbone.graph
    assert loaded.moments.n == detector.moments.n
    for name in (
        "moments.mean",
        "moments.M2",
        "variances",
        "whitening.A",
        "whitening.mean",
        "bank_raw",
        "bank_origin",
    ):
        one, other = detector, loaded
        for part in name.split("."):
            one, other = getattr(one, part), getattr(other, part)
        assert one.dtype == other.dtype and np.array_equal(one, other), name
    for name in ("lam", "jitter", "retained"):
        assert getattr(loaded.whitening, name) == getattr(detector.whitening, name)
    assert np.array_equal(loaded.calibration.scores, detector.calibration.scores)
    assert (loaded.calibration.false_alarm, loaded.calibration.method) == (0.01, "cross-image")


def test_saving_again_gives_the_same_bytes(saved: Path, tmp_path: Path) -> None:
    Detector.load(saved).save(tmp_path / "again.mhpc")
    assert (tmp_path / "again.mhpc").read_bytes() == saved.read_bytes()


def test_the_file_is_safetensors_with_json_and_no_pickle(saved: Path) -> None:
    content = saved.read_bytes()
    header = json.loads(content[8 : 8 + int.from_bytes(content[:8], "little")])
    assert set(json.loads(header["__metadata__"][KEY])) >= {
        "format",
        "version",
        "config",
        "backbone",
        "images",
    }
    tensors = {name: entry for name, entry in header.items() if name != "__metadata__"}
    assert {entry["dtype"] for entry in tensors.values()} <= {"F64", "F32", "F16", "I32", "I64", "U8"}
    # the tensors fill the file: there is no room for anything else
    length = 8 + int.from_bytes(content[:8], "little") + max(e["data_offsets"][1] for e in tensors.values())
    assert length == len(content)


@pytest.mark.parametrize("share", [0.0, 0.0001, 0.01, 0.5, 0.999])
def test_truncated(saved: Path, share: float) -> None:
    content = saved.read_bytes()
    saved.write_bytes(content[: int(share * len(content))])
    assert "truncated" in message(saved)


@pytest.mark.parametrize(
    "content", [b"garbage", b"\x80\x04\x95" + b"x" * 500, b"\xff" * 64, b"{}", b"\0" * 4096]
)
def test_garbage(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "a.mhpc").write_bytes(content)
    message(tmp_path / "a.mhpc")


def test_another_safetensors_file(tmp_path: Path) -> None:
    save_file({"weight": np.ones(3)}, tmp_path / "a.mhpc")
    assert "not a model of mhpatchcore" in message(tmp_path / "a.mhpc")


def test_a_newer_format_asks_for_an_upgrade(saved: Path) -> None:
    rewritten(saved, document_of(saved) | {"format": modelfile.FORMAT + 1, "version": "9.9"})
    text = message(saved)
    assert "9.9" in text and "upgrade" in text


def test_a_missing_file_or_a_folder(tmp_path: Path) -> None:
    assert "there is no model file" in message(tmp_path / "gone.mhpc")
    message(tmp_path)


@pytest.mark.parametrize("name", ["bank.raw", "whitening.A", "backbone.graph", "calibration.scores"])
def test_a_missing_tensor_is_named(saved: Path, name: str) -> None:
    rewritten(saved, **{name: None})
    assert name in message(saved)


@pytest.mark.parametrize("document", ["not json", "[]", "{}", '{"format": "one"}'])
def test_a_damaged_document(saved: Path, document: str) -> None:
    rewritten(saved, document)
    message(saved)


@pytest.mark.parametrize("field", ["config", "backbone", "whitening", "calibration", "images", "n_patches"])
def test_a_missing_field_is_named(saved: Path, field: str) -> None:
    document = document_of(saved)
    del document[field]
    rewritten(saved, document)
    assert field in message(saved)


def test_an_unknown_setting_is_an_error_of_the_file(saved: Path) -> None:
    document = document_of(saved)
    rewritten(saved, document | {"config": document["config"] | {"colour": "red"}})
    assert "colour" in message(saved)


@pytest.mark.parametrize("name", ["backbone.graph", "whitening.A", "bank.raw", "calibration.scores"])
def test_a_damaged_tensor_is_named(saved: Path, name: str) -> None:
    tensor = load_file(saved)[name].copy()
    tensor.view(np.uint8).reshape(-1)[tensor.nbytes // 2] ^= 1
    rewritten(saved, **{name: tensor})
    assert f"{name} is not what was written" in message(saved)


@pytest.mark.parametrize("rate", [5, None])
def test_a_rate_that_is_none_is_an_error_of_the_file(saved: Path, rate: float | None) -> None:
    document = document_of(saved)
    rewritten(saved, document | {"calibration": document["calibration"] | {"false_alarm": rate}})
    message(saved)


def test_a_full_disk_is_named(detector: Detector, saved: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(tensors: object, path: Path, metadata: object) -> None:
        raise SafetensorError("I/O error: No space left on device")

    monkeypatch.setattr("safetensors.numpy.save_file", full)
    with pytest.raises(UserError, match=r"cannot write .*part\.mhpc.*No space left"):
        detector.save(saved)


def test_a_failing_save_leaves_the_old_file(
    detector: Detector, saved: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = saved.read_bytes()

    def half(tensors: object, path: Path, metadata: object) -> None:
        Path(path).write_bytes(b"half")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("safetensors.numpy.save_file", half)
    with pytest.raises(Exception, match="No space left"):
        detector.save(saved)
    assert saved.read_bytes() == before
    assert [path.name for path in saved.parent.iterdir()] == ["part.mhpc"]
