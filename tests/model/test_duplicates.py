"""Near-duplicates: copies, pictures saved again and frames of one part count once; two parts are two."""

from __future__ import annotations

import io

import numpy as np
import pytest
from PIL import Image
from small_detector import vials

from mhpatchcore import Config, Detector, Execution
from mhpatchcore.model.duplicates import SIDE, near_duplicate_groups, near_duplicates, thumbnail


def saved_again(picture: np.ndarray) -> np.ndarray:
    file = io.BytesIO()
    Image.fromarray(picture).save(file, "JPEG", quality=80)
    return np.asarray(Image.open(file))


def brighter(picture: np.ndarray) -> np.ndarray:
    return np.clip(picture.astype(int) + 6, 0, 255).astype(np.uint8)


def noisy(picture: np.ndarray) -> np.ndarray:
    noise = np.random.default_rng(0).normal(0, 3, picture.shape)
    return np.clip(picture + noise, 0, 255).astype(np.uint8)


def thumbnails(pictures: list[np.ndarray]) -> np.ndarray:
    return np.stack([thumbnail(picture) for picture in pictures])


@pytest.mark.parametrize("again", [saved_again, brighter, noisy], ids=lambda change: change.__name__)
def test_a_picture_taken_again_is_the_same_and_another_part_is_not(again: object) -> None:
    parts = vials(0, 12, pixels=96)
    both = thumbnails([*parts, *(again(part) for part in parts)])  # type: ignore[operator]
    assert both.shape == (24, SIDE**2) and both.dtype == np.float16
    assert near_duplicate_groups(both).tolist() == [*range(12), *range(12)]
    assert near_duplicates(both[12:15], both[:12]).tolist() == [0, 1, 2]
    assert near_duplicates(both[:6], both[6:12]).tolist() == []


def test_parts_whose_frames_complement_each_other_are_told_apart() -> None:
    frames = [part.mean(axis=2) for part in vials(0, 6, pixels=96)]
    stacks = [np.stack([one, 255 - one, np.full_like(one, 127.5)], axis=2) for one in frames]
    assert near_duplicate_groups(thumbnails(stacks)).tolist() == [*range(6)]


def test_nothing_is_near_nothing() -> None:
    none = np.empty((0, SIDE**2), np.float16)
    assert near_duplicate_groups(none).tolist() == []
    assert near_duplicates(none, thumbnails(vials(0, 2))).tolist() == []
    assert near_duplicates(thumbnails(vials(0, 2)), none).tolist() == []


def test_copies_count_once_in_the_threshold_and_are_not_compared_with_each_other() -> None:
    config, parts = Config(sizes=96, K=200), vials(0, 6, pixels=96)
    told: list[str] = []
    once = Detector.fit(parts, config)
    twice = Detector.fit([*parts, *map(noisy, parts)], config, execution=Execution(warn=told.append))
    assert once.calibration.n == twice.calibration.n == 6
    assert twice.threshold == pytest.approx(once.threshold, rel=0.3)  # and not next to nothing
    assert any("6 of 12 images are near-duplicates" in message for message in told)
