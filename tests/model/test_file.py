"""The model file: what is loaded is what was saved; damage anywhere gets one clear line."""

from __future__ import annotations

import json
import os
import random
from pathlib import Path

import numpy as np
import pytest
from forging import put_together, taken_apart
from safetensors.numpy import save_file
from same_model import assert_same_model
from small_detector import small_detector

from mhpatchcore.demo.dataset import vial_image
from mhpatchcore.detector import Detector
from mhpatchcore.errors import ModelFileError, UserError
from mhpatchcore.model.file import FORMAT, KEY, from_bytes, to_bytes


@pytest.fixture(scope="module")
def detector() -> Detector:
    return small_detector(sizes=64, layers=("block1", "block2"), K=60)


@pytest.fixture(scope="module")
def content(detector: Detector) -> bytes:
    return to_bytes(detector.model)


@pytest.fixture
def saved(detector: Detector, tmp_path: Path) -> Path:
    detector.save(tmp_path / "part.mhpc")
    return tmp_path / "part.mhpc"


def message(path: Path) -> str:
    """The error of loading, which must be one line that names the file."""
    with pytest.raises(ModelFileError) as caught:
        Detector.load(path)
    text = str(caught.value)
    assert str(path) in text and "\n" not in text
    return text


@pytest.mark.parametrize(
    "settings",
    [{}, {"sizes": "64,96"}, {"sizes": "104/2"}, {"sizes": "64x96", "score": "reweighted", "local": 1}],
    ids=str,
)
def test_a_loaded_detector_scores_the_same(tmp_path: Path, settings: dict[str, object]) -> None:
    detector = small_detector(**settings)
    detector.save(tmp_path / "part.mhpc")
    loaded = Detector.load(tmp_path / "part.mhpc")
    for seed, defect in ((50, None), (51, "scratch"), (52, "low_fill")):
        picture, _ = vial_image(seed, defect, pixels=120)
        ours, theirs = detector.score(picture), loaded.score(picture)
        assert (ours.score, ours.threshold, ours.p_value) == (theirs.score, theirs.threshold, theirs.p_value)
        assert ours.pixel_threshold == theirs.pixel_threshold
        assert np.array_equal(ours.map, theirs.map) and ours.map.shape == (120, 120)


def test_everything_survives(detector: Detector, saved: Path) -> None:
    loaded = Detector.load(saved)
    assert repr(loaded) == repr(detector)
    for name in ("config", "images", "hashes", "history", "excluded", "product"):
        assert getattr(loaded.model, name) == getattr(detector.model, name)
    assert_same_model(loaded, detector)
    for ours, theirs in zip(loaded.scales, detector.scales, strict=True):
        assert ours.backbone.info == theirs.backbone.info and ours.backbone.graph == theirs.backbone.graph
        for number in ("lam", "jitter", "retained"):
            assert getattr(ours.whitening, number) == getattr(theirs.whitening, number)
    assert (loaded.calibration.false_alarm, loaded.calibration.method) == (0.03, "cross-image")


def test_saving_again_gives_the_same_bytes(saved: Path, content: bytes, tmp_path: Path) -> None:
    Detector.load(saved).save(tmp_path / "again.mhpc")
    assert (tmp_path / "again.mhpc").read_bytes() == saved.read_bytes() == content
    assert all(
        to_bytes(from_bytes(content)) == content for _ in range(5)
    )  # whatever the order of any hash table


def test_the_file_is_safetensors_with_json_and_no_pickle(content: bytes) -> None:
    length = int.from_bytes(content[:8], "little")
    header = json.loads(content[8 : 8 + length])
    assert set(json.loads(header["__metadata__"][KEY])) >= {"format", "version", "config", "scales", "images"}
    tensors = {name: entry for name, entry in header.items() if name != "__metadata__"}
    assert {entry["dtype"] for entry in tensors.values()} <= {"F64", "F32", "F16", "I32", "I64", "U8"}
    # the tensors fill the file: there is no room for anything else
    assert 8 + length + max(entry["data_offsets"][1] for entry in tensors.values()) == len(content)
    assert (8 + length) % 8 == 0


def test_any_flipped_bit_is_noticed(content: bytes) -> None:
    length, rng = int.from_bytes(content[:8], "little"), random.Random(0)
    header = [*range(8), *range(8, 8 + length, 41)]
    numbers = [rng.randrange(8 + length, len(content)) for _ in range(60)]
    for position in [*header, 7 + length, 8 + length, *numbers, len(content) - 1]:
        damaged = bytearray(content)
        damaged[position] ^= 1 << rng.randrange(8)
        with pytest.raises(ModelFileError) as caught:
            from_bytes(bytes(damaged), "part.mhpc")
        assert "part.mhpc" in str(caught.value) and "\n" not in str(caught.value), position


def test_further_bytes_are_noticed(content: bytes) -> None:
    for damaged in (content + b"\0", content + content):
        with pytest.raises(ModelFileError):
            from_bytes(damaged)


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


@pytest.mark.parametrize("written", [FORMAT - 1, FORMAT + 1])
def test_another_format_names_the_version_that_wrote_it(content: bytes, tmp_path: Path, written: int) -> None:
    document, tensors = taken_apart(content)
    other = put_together(document | {"format": written, "version": "9.9\n9"}, tensors)
    (tmp_path / "a.mhpc").write_bytes(other)
    text = message(tmp_path / "a.mhpc")
    assert f"has format {written} (mhpatchcore 9.9 9)" in text and "fit the model again" in text


def test_a_missing_file_or_a_folder(tmp_path: Path) -> None:
    assert "there is no model file" in message(tmp_path / "gone.mhpc")
    assert "is a folder, not a model file" in message(tmp_path)


@pytest.mark.parametrize("name", ["0.graph", "0.whitening.A", "0.bank.raw", "calibration.scores"])
def test_a_damaged_tensor_is_named(content: bytes, tmp_path: Path, name: str) -> None:
    length = int.from_bytes(content[:8], "little")
    start, stop = json.loads(content[8 : 8 + length])[name]["data_offsets"]
    damaged = bytearray(content)
    damaged[8 + length + (start + stop) // 2 // 8 * 8] ^= 1  # the least significant byte of a number
    (tmp_path / "a.mhpc").write_bytes(damaged)
    assert name in message(tmp_path / "a.mhpc")


def test_a_full_disk_is_named_and_leaves_the_old_file(
    detector: Detector, saved: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = saved.read_bytes()

    def half(path: Path, content: bytes) -> int:
        with path.open("wb") as file:
            file.write(content[: len(content) // 2])
        raise OSError(28, "No space left on device", str(path))

    monkeypatch.setattr(Path, "write_bytes", half)
    with pytest.raises(UserError, match=r"cannot write .*part\.mhpc: No space left on device") as caught:
        detector.calibrated(0.2).save(saved)
    assert "\n" not in str(caught.value)
    assert saved.read_bytes() == before
    assert os.listdir(saved.parent) == ["part.mhpc"]  # noqa: PTH208


def test_a_place_that_cannot_be_written_is_named(detector: Detector, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(UserError, match=r"cannot write .*file/part\.mhpc"):
        detector.save(tmp_path / "file" / "part.mhpc")
