"""Sentences about thresholds: said where they apply, and only there."""

import numpy as np
import pytest

from mhpatchcore.calibration.choices import cautions, realised_note
from mhpatchcore.calibration.threshold import calibrate

SCORES = np.random.default_rng(0).gumbel(size=200).astype(np.float32) + 10


@pytest.mark.parametrize(("rejected", "good"), [(0, 28), (1, 28), (3, 28), (0, 100), (8, 100), (0, 0)])
def test_what_chance_explains_needs_no_sentence(rejected: int, good: int) -> None:
    assert realised_note(calibrate(SCORES, SCORES, 0.03, "cross-image"), rejected, good) == ""


def test_parts_unlike_those_of_the_threshold() -> None:
    note = realised_note(calibrate(SCORES, SCORES, 0.03, "cross-image"), 9, 28)
    assert note.startswith("9 of 28 good parts are rejected, where about 3%")
    assert "calibrate with further good parts" in note


def test_images_of_the_threshold_that_vary_more() -> None:
    note = realised_note(calibrate(SCORES, SCORES, 0.2, "cross-image"), 4, 200)
    assert "vary more" in note and "larger rate" in note


def test_no_scores_no_sentence() -> None:
    none = np.empty(0, np.float32)
    assert realised_note(calibrate(none, none, 0.03, "").at_threshold(5.0), 9, 28) == ""


def test_few_images_make_a_high_threshold() -> None:
    few = calibrate(SCORES[:8], SCORES[:8], 0.03, "cross-image")
    (note,) = cautions(few, {})
    assert note.startswith("8 images tell little") and "bring it down" in note
    assert cautions(few.at_threshold(20.0), {}) == []
    assert cautions(calibrate(SCORES, SCORES, 0.03, "cross-image"), {}) == []
