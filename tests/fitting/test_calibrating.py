"""Scores for the threshold: each image without its own rows, held-out ones, and images that are gone."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from plain_scoring import plain_combined, plain_scores
from small_detector import vials

from mhpatchcore import Config, Detector, Execution
from mhpatchcore.backbone.session import aligned_rows
from mhpatchcore.calibration.deciding_patches import NOT_LEARNT, PER_MAP
from mhpatchcore.fitting.calibrating import banked, calibration_shares, held_out_images, rescored_images
from mhpatchcore.inputs.loading import load_views
from mhpatchcore.model.value import Model

SMALL = Config(augment="none", sizes=96, K=300, m_c=64)
N = 12


@pytest.fixture(scope="module")
def pictures() -> list[np.ndarray]:
    return vials(0, N, pixels=96)


@pytest.fixture(scope="module")
def detector(pictures: list[np.ndarray]) -> Detector:
    return Detector.fit(pictures, SMALL)


def whitened(detector: Detector, picture: np.ndarray, scale: int = 0) -> np.ndarray:
    one = detector.scales[scale]
    view = load_views(picture, detector.config.views)[scale][0]
    rows = aligned_rows([layer[0] for layer in one.backbone(view[None])])
    return (rows - one.whitening.mean) @ one.whitening.A.T


@pytest.mark.parametrize(
    "changes", [{}, {"local": 1, "score": "reweighted", "neighbours": 3}, {"score": "max", "K": 40}], ids=str
)
def test_each_image_is_scored_without_its_own_rows(
    pictures: list[np.ndarray], changes: dict[str, object]
) -> None:
    detector = Detector.fit(pictures, SMALL.with_changes(**changes))
    (scale,) = detector.scales
    head = scale.head(detector.config)
    wanted = [
        plain_scores(head, whitened(detector, picture), scale.origin[:, 0] != i)
        for i, picture in enumerate(pictures)
    ]
    assert detector.calibration.method == "cross-image" and detector.calibration.n == N
    order = [one.image for one in detector.calibration.deciding]
    assert sorted(order) == list(range(N))
    assert np.allclose(detector.calibration.scores, [wanted[i].score for i in order], rtol=1e-3)
    assert np.allclose(detector.calibration.peaks, [wanted[i].peak for i in order], rtol=1e-3)


@pytest.mark.parametrize("score", ["map-max", "reweighted"])
def test_several_scales_are_scored_as_one(pictures: list[np.ndarray], score: str) -> None:
    config = SMALL.with_changes(sizes="64,96", layers=("block4",), score=score)
    detector = Detector.fit(pictures[:6], config)
    heads, expected = [scale.head(detector.config) for scale in detector.scales], []
    for i, picture in enumerate(pictures[:6]):
        scored = [
            plain_scores(head, whitened(detector, picture, s), scale.origin[:, 0] != i)
            for s, (head, scale) in enumerate(zip(heads, detector.scales, strict=True))
        ]
        expected.append(plain_combined(scored, heads))
    assert detector.calibration.scores == pytest.approx(sorted(expected, reverse=True), rel=1e-3)


def test_no_more_images_than_asked_for(pictures: list[np.ndarray]) -> None:
    detector = Detector.fit(pictures, SMALL.with_changes(calibration_images=5))
    assert detector.calibration.n == 5
    assert sorted(one.image for one in detector.calibration.deciding) == [1, 3, 6, 8, 10]  # evenly spread


def test_without_calibration_there_is_no_threshold(pictures: list[np.ndarray]) -> None:
    detector = Detector.fit(pictures, SMALL.with_changes(calibration="none"))
    assert (detector.calibration.n, detector.threshold) == (0, float("inf"))
    assert detector.model.n_learnt == N and detector.calibration.deciding == ()


def test_held_out_images_are_not_learnt_from(pictures: list[np.ndarray]) -> None:
    detector = Detector.fit(pictures, SMALL.with_changes(calibration="held-out"))
    assert (detector.calibration.method, detector.calibration.n) == ("held-out", 2)
    assert detector.model.n_learnt == N - 2 and len(detector.model.images) == N
    assert all(one.image == NOT_LEARNT for one in detector.calibration.deciding)
    held_out = sorted(set(range(N)) - set(detector.scales[0].origin[:, 0].tolist()))
    assert len(held_out) == 2
    scores = [result.score for result in detector.score([pictures[i] for i in held_out])]
    assert np.allclose(detector.calibration.scores, sorted(scores, reverse=True), rtol=1e-4)


def test_broken_held_out_images_leave_no_threshold(pictures: list[np.ndarray], tmp_path: Path) -> None:
    paths = [tmp_path / f"{i:02d}.png" for i in range(10)]
    for i, path in enumerate(paths):
        Image.fromarray(pictures[i]).save(path)
        if i in (2, 7):  # the two that are held out of ten, being evenly spread
            path.write_bytes(b"torn")
    config = SMALL.with_changes(calibration="held-out")
    detector = Detector.fit(paths, config, execution=Execution(skip_broken=True))
    assert (detector.calibration.n, detector.threshold) == (0, float("inf"))
    assert detector.model.n_learnt == 8


def test_as_many_deciding_patches_for_every_image(detector: Detector) -> None:
    info = detector.scales[0].backbone.info
    for one in detector.calibration.deciding:
        (cells,), (rows,) = one.cells, one.rows
        assert rows.shape == (2 * PER_MAP, info.dim) and rows.dtype == np.float16
        assert len(set(cells.tolist())) == 2 * PER_MAP and 0 <= cells.min() <= cells.max() < info.patches


@pytest.mark.parametrize(
    ("changes", "off"),
    [
        ({"local": 1}, 0.02),
        ({"local": 1, "score": "max"}, 1e-3),
        # of other patches, other ones are compared with what rows span; that is much on so small a grid
        ({}, 0.1),
        ({"sizes": "64,96", "layers": ("block4",), "local": 1}, 0.02),
    ],
    ids=str,
)
def test_deciding_patches_repeat_the_scores_under_the_same_bank(
    pictures: list[np.ndarray], changes: dict[str, object], off: float
) -> None:
    detector = Detector.fit(pictures, SMALL.with_changes(**changes))
    banks = [banked(scale, detector.config) for scale in detector.scales]
    found = rescored_images(detector.calibration, N, banks, np.arange(N), detector.config, workers=2)
    assert np.allclose([one.score for one in found], detector.calibration.scores, rtol=off)
    assert np.allclose([one.peak for one in found], detector.calibration.peaks, rtol=0.02)


def test_images_below_the_tail_change_as_those_of_the_tail_do(pictures: list[np.ndarray]) -> None:
    detector = Detector.fit(pictures, SMALL.with_changes(local=1))
    banks = [banked(scale, detector.config) for scale in detector.scales]
    few = replace(detector.calibration, deciding=detector.calibration.deciding[:4])
    found = rescored_images(few, N, banks, np.arange(N), detector.config, workers=2)
    assert [one.deciding is None for one in found] == [False] * 4 + [True] * (N - 4)
    assert np.allclose([one.score for one in found], few.scores, rtol=0.03)


def test_an_image_that_has_all_rows_of_the_bank_cannot_be_scored_again(detector: Detector) -> None:
    (scale,) = detector.scales
    alone = replace(scale, origin=np.where([True, False, False, False], 3, scale.origin))
    banks = [banked(alone, detector.config)]
    found = rescored_images(detector.calibration, N, banks, np.arange(N), detector.config, workers=1)
    assert len(found) == N - 1


def previous(learnt: int, n: int, deciding: bool = True) -> Model:
    """A model that has learnt from so many images and was calibrated by n."""
    one = Detector.fit(vials(0, 2), Config(sizes=64, K=20, layers=("block2",))).model
    kept = one.calibration.deciding if deciding else ()
    calibration = replace(one.calibration, scores=np.arange(n, dtype=np.float32), deciding=kept)
    return replace(one, calibration=calibration, n_learnt=learnt)


def test_images_count_in_proportion_to_what_was_learnt() -> None:
    config = Config(calibration_images=100)
    assert calibration_shares(config, [], 500) == [100]
    assert calibration_shares(config, [previous(900, 900)], 100) == [810, 90]
    assert calibration_shares(config, [previous(900, 10)], 100) == [10, 1]  # not more than there are
    assert calibration_shares(config, [previous(900, 300)], 100) == [270, 30]  # as many as there were
    assert calibration_shares(config, [previous(900, 10, deciding=False)], 100) == [0, 100]
    assert calibration_shares(config, [previous(300, 75), previous(100, 30)], 0) == [75, 25, 0]


def test_held_out_images_are_evenly_spread() -> None:
    config = Config(calibration="held-out", calibration_images=4)
    assert held_out_images(range(10), config, []) == (2, 7)
    assert held_out_images(range(40, 140), config, []) == (52, 77, 102, 127)
    assert held_out_images(range(1), config, []) == ()
    assert held_out_images(range(10), config.with_changes(calibration="none"), []) == ()
