"""A model after its fit: another threshold, its history, its file, and the patches that let scores be taken again."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import numpy as np
import pytest
from safetensors import safe_open
from safetensors.numpy import load_file, save_file
from small_detector import PIXELS, small_detector

from mhpatchcore import Detector, UserError
from mhpatchcore.bank.patches import Patches
from mhpatchcore.calibration.deciding_patches import NOT_LEARNT, hear_again
from mhpatchcore.demo.dataset import vial_image
from mhpatchcore.model.file import EARLIER, FORMAT, KEY, read_document
from mhpatchcore.model.history import event


def vials(first: int, n: int) -> list[np.ndarray]:
    return [vial_image(seed, pixels=PIXELS)[0] for seed in range(first, first + n)]


@pytest.fixture(scope="module")
def detector() -> Detector:
    return small_detector()


def test_another_rate_changes_the_threshold_alone(detector: Detector) -> None:
    loose = detector.calibrated(0.3)
    assert loose.threshold < detector.threshold
    assert loose.calibration.pixel_threshold < detector.calibration.pixel_threshold
    assert (loose.config.false_alarm, detector.config.false_alarm) == (0.3, 0.01)
    assert loose.bank_raw is detector.bank_raw and loose.calibration.n == detector.calibration.n
    assert loose.calibrated(0.01).threshold == detector.threshold
    picture = vials(60, 1)[0]
    assert loose.score(picture).score == detector.score(picture).score


def test_further_images_replace_the_scores_or_join_them(detector: Detector) -> None:
    fresh = vials(50, 6)
    replaced, added = detector.calibrated(0.2, fresh), detector.calibrated(0.2, fresh, add=True)
    assert (replaced.calibration.n, replaced.calibration.method) == (6, "held-out")
    assert (added.calibration.n, added.calibration.method) == (14, "cross-image and held-out")
    scores = sorted(result.score for result in detector.score(fresh))
    assert np.allclose(replaced.calibration.scores, scores, rtol=1e-2)  # but for the rounding of descriptors
    assert np.isin(detector.calibration.scores, added.calibration.scores).all()
    assert {witness.image for witness in replaced.calibration.witnesses} == {NOT_LEARNT}
    assert replaced.calibration.supported_rate == 0.2
    assert detector.calibrated(images=fresh).calibration.supported_rate == pytest.approx(1 / 7)


def test_learnt_images_cannot_calibrate(detector: Detector) -> None:
    with pytest.raises(UserError, match="already"):
        detector.calibrated(images=vials(0, 8))


@pytest.mark.parametrize("rate", [0.0, 1.0, -1.0])
def test_a_rate_lies_between_zero_and_one(detector: Detector, rate: float) -> None:
    with pytest.raises(UserError, match="false-alarm rate"):
        detector.calibrated(rate)


def test_witnesses_repeat_the_scores_under_the_same_bank(detector: Detector) -> None:
    bank = Patches(detector.whitening(detector.bank_raw), detector.bank_raw, detector.bank_origin)
    again = [
        hear_again(witness, detector.whitening, bank, detector.scorer)
        for witness in detector.calibration.witnesses
    ]
    assert len(again) == detector.calibration.n
    # of other patches, other ones are looked at closely; that is much on so small a grid
    assert np.allclose(sorted(one.score for one in again), detector.calibration.scores, rtol=0.07)
    assert np.allclose(sorted(one.peak for one in again), detector.calibration.peaks, rtol=0.02)


def test_witnesses_are_as_many_for_every_image(detector: Detector) -> None:
    for witness in detector.calibration.witnesses:
        assert witness.rows.shape == (64, detector.backbone.info.columns)
        assert len(set(witness.places.tolist())) == 64


def test_the_history_tells_everything(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1800000000")
    grown = small_detector().updated(vials(20, 3)).calibrated(0.2).calibrated(images=vials(30, 2), add=True)
    assert [(one.what, one.images, one.total) for one in grown.history] == [
        ("fit", 8, 8),
        ("update", 3, 11),
        ("calibrate", 0, 11),
        ("calibrate", 2, 11),
    ]
    assert [one.false_alarm for one in grown.history] == [0.01, 0.01, 0.2, 0.2]
    assert {one.when for one in grown.history[1:]} == {"2027-01-15T08:00:00Z"}


def test_a_wrong_epoch_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "yesterday")
    with pytest.raises(UserError, match=r"SOURCE_DATE_EPOCH.*yesterday"):
        event("fit", "parts", 1, 1, 0.01)


def test_a_given_time_makes_equal_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, epoch in (("a", "1"), ("b", "1"), ("c", "2")):
        monkeypatch.setenv("SOURCE_DATE_EPOCH", epoch)
        small_detector().updated(vials(20, 2)).save(tmp_path / name)
    a, b, c = ((tmp_path / name).read_bytes() for name in "abc")
    assert a == b != c
    other, ours = load_file(tmp_path / "c"), load_file(tmp_path / "a")
    assert all(np.array_equal(ours[name], other[name]) for name in ours)


def as_format_1(path: Path) -> Path:
    """The file as version 0.1.0 wrote it first: no history, no witnesses, fewer settings."""
    with safe_open(path, "numpy") as file:
        document = json.loads(file.metadata()[KEY])
    tensors = {name: array for name, array in load_file(path).items() if not name.startswith("witnesses.")}
    del document["history"], document["sha256"]
    document["graph_sha256"] = hashlib.sha256(tensors["backbone.graph"].tobytes()).hexdigest()
    for name in EARLIER:
        del document["config"][name]
    save_file(tensors, path, metadata={KEY: json.dumps(document | {"format": 1})})
    return path


def test_files_of_format_1_are_read(tmp_path: Path) -> None:
    detector = small_detector(**EARLIER)
    detector.save(tmp_path / "new.mhpc")
    detector.save(tmp_path / "old.mhpc")
    old = Detector.load(as_format_1(tmp_path / "old.mhpc"))
    assert old.config == detector.config
    assert (old.history, old.calibration.witnesses) == ((), ())
    assert old.threshold == detector.threshold
    picture = vials(60, 1)[0]
    assert old.score(picture).score == Detector.load(tmp_path / "new.mhpc").score(picture).score
    old.calibrated(0.2).save(tmp_path / "old.mhpc")
    assert read_document(tmp_path / "old.mhpc")["format"] == FORMAT == 4
    assert [one.what for one in Detector.load(tmp_path / "old.mhpc").history] == ["calibrate"]


def test_a_grown_model_survives_its_file(detector: Detector, tmp_path: Path) -> None:
    grown = detector.updated(vials(20, 3))
    grown.save(tmp_path / "a.mhpc")
    loaded = Detector.load(tmp_path / "a.mhpc")
    assert loaded.history == grown.history and loaded.images == grown.images
    again, further = loaded.updated(vials(30, 2)), grown.updated(vials(30, 2))
    assert again.bank_raw.tobytes() == further.bank_raw.tobytes()
    assert again.calibration.scores.tobytes() == further.calibration.scores.tobytes()
    for ours, theirs in zip(loaded.calibration.witnesses, grown.calibration.witnesses, strict=True):
        assert ours.image == theirs.image and np.array_equal(ours.places, theirs.places)
        assert np.array_equal(ours.rows, theirs.rows)
