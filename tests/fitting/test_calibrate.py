"""Another threshold for a fitted model: at another rate, from other images, or from more of them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from small_detector import small_detector, vials

from mhpatchcore import Config, Detector, Execution, UserError
from mhpatchcore.calibration.deciding_patches import NOT_LEARNT


@pytest.fixture(scope="module", params=[{}, {"sizes": "64,96"}], ids=["one scale", "two scales"])
def detector(request: pytest.FixtureRequest) -> Detector:
    return small_detector(**request.param)


def test_another_rate_changes_the_threshold_alone(detector: Detector) -> None:
    loose = detector.calibrated(0.3)
    assert loose.threshold < detector.threshold
    assert loose.calibration.pixel_threshold < detector.calibration.pixel_threshold
    assert (loose.config.false_alarm, detector.config.false_alarm) == (0.3, 0.03)
    assert loose.scales is detector.scales and loose.calibration.n == detector.calibration.n
    assert loose.calibrated(0.03).threshold == detector.threshold
    picture = vials(60, 1)[0]
    assert loose.score(picture).score == detector.score(picture).score


def test_further_images_replace_the_scores_or_join_them(detector: Detector) -> None:
    fresh = vials(50, 6)
    replaced, added = detector.calibrated(0.2, fresh), detector.calibrated(0.2, fresh, add=True)
    assert (replaced.calibration.n, replaced.calibration.method) == (6, "held-out")
    assert (added.calibration.n, added.calibration.method) == (14, "cross-image and held-out")
    scores = [result.score for result in detector.score(fresh)]
    assert np.allclose(replaced.calibration.scores, sorted(scores, reverse=True), rtol=1e-4)
    both = [*detector.calibration.scores, *replaced.calibration.scores]
    assert added.calibration.scores.tolist() == sorted(both, reverse=True)
    assert {one.image for one in replaced.calibration.deciding} == {NOT_LEARNT}
    assert replaced.calibration.expected_rate == pytest.approx(0.2)
    assert replaced.threshold < detector.calibrated(0.03, fresh).threshold


def test_a_number_is_a_threshold_too(detector: Detector, tmp_path: Path) -> None:
    by_hand = detector.calibrated(threshold=20)
    assert by_hand.threshold == 20.0 and by_hand.history[-1].threshold == 20.0
    by_hand.save(tmp_path / "part.mhpc")
    loaded = Detector.load(tmp_path / "part.mhpc")
    assert loaded.threshold == 20.0 and loaded.calibration.expected_rate == by_hand.calibration.expected_rate
    assert by_hand.calibrated(images=vials(50, 6)).threshold == 20.0
    assert by_hand.calibrated(0.03).threshold == detector.threshold
    with pytest.raises(UserError, match="a false-alarm rate or a threshold"):
        detector.calibrated(0.1, threshold=20)


def test_a_model_of_one_image_judges_by_a_number() -> None:
    alone = Detector.fit(vials(0, 1), Config(sizes=96, K=200)).calibrated(threshold=1e-6)
    result = alone.score(vials(60, 1)[0])
    assert result.verdict == "rejected" and result.regions and result.mask.any()
    assert alone.calibrated(threshold=1e6).score(vials(60, 1)[0]).verdict == "passed"


def test_copies_count_once(detector: Detector) -> None:
    """Sixty copies of six parts would promise ten times what they know."""
    fresh, told = vials(50, 6), list[str]()
    copied = detector.calibrated(0.2, [*fresh, *fresh, *fresh], execution=Execution(warn=told.append))
    assert np.array_equal(copied.calibration.scores, detector.calibrated(0.2, fresh).calibration.scores)
    assert copied.history[-1].images == 6
    assert len(told) == 1 and told[0].startswith("12 of 18 images are near-duplicates")


def test_images_are_added_once(detector: Detector) -> None:
    """Added twice, the same parts would promise a smaller rate than they support."""
    fresh, told = vials(50, 6), list[str]()
    added = detector.calibrated(0.2, fresh, add=True)
    with pytest.raises(UserError, match="counts all of these images already"):
        added.calibrated(0.2, fresh, add=True)
    more = added.calibrated(0.2, vials(54, 4), add=True, execution=Execution(warn=told.append))
    assert more.calibration.n == added.calibration.n + 2
    assert told == ["2 of 4 images count in the threshold already: left out"]


def test_a_calibrated_model_survives_its_file(detector: Detector, tmp_path: Path) -> None:
    changed = detector.calibrated(0.2, vials(50, 6), add=True)
    changed.save(tmp_path / "part.mhpc")
    loaded = Detector.load(tmp_path / "part.mhpc")
    assert loaded.threshold == changed.threshold and loaded.config == changed.config
    assert loaded.history == changed.history


def test_learnt_images_cannot_calibrate(detector: Detector) -> None:
    with pytest.raises(UserError, match="already"):
        detector.calibrated(images=vials(0, 8))


def test_broken_images_can_be_left_out(detector: Detector, tmp_path: Path) -> None:
    Image.fromarray(vials(50, 1)[0]).save(tmp_path / "a.png")
    (tmp_path / "b.png").write_bytes(b"torn")
    with pytest.raises(UserError, match=r"b\.png"):
        detector.calibrated(images=tmp_path)
    careful = Execution(skip_broken=True)
    assert detector.calibrated(images=tmp_path, execution=careful).calibration.n == 1
    with pytest.raises(UserError, match="none of the images could be read"):
        detector.calibrated(images=[tmp_path / "b.png"], execution=careful)


@pytest.mark.parametrize("rate", [0.0, 1.0, -1.0])
def test_a_rate_lies_between_zero_and_one(detector: Detector, rate: float) -> None:
    with pytest.raises(UserError, match=r"false.alarm"):
        detector.calibrated(rate)
