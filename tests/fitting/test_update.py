"""Updates: exact where they can be, as good as a fit on everything elsewhere, and refused where they cannot be."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from same_model import assert_same_model
from small_detector import with_changes

from mhpatchcore import Config, Detector, Execution, UserError
from mhpatchcore.config import CHOICES
from mhpatchcore.demo.dataset import vial_image
from mhpatchcore.inputs.loading import load_views

SMALL = Config(augment="none", sizes=96, K=300, m_c=64)
OLD, N = 16, 24


@pytest.fixture(scope="module")
def pictures() -> list[np.ndarray]:
    return [vial_image(seed, pixels=96)[0] for seed in range(N)]


@pytest.fixture(scope="module")
def old(pictures: list[np.ndarray]) -> Detector:
    return Detector.fit(pictures[:OLD], SMALL)


@pytest.fixture(scope="module")
def new(pictures: list[np.ndarray], old: Detector) -> Detector:
    return old.updated(pictures[OLD:])


@pytest.fixture(scope="module")
def everything(pictures: list[np.ndarray]) -> Detector:
    return Detector.fit(pictures, SMALL)


def same(one: np.ndarray, other: np.ndarray) -> bool:
    return one.dtype == other.dtype and one.tobytes() == other.tobytes()


def test_moments_and_whitening_are_those_of_a_fit_on_everything(new: Detector, everything: Detector) -> None:
    # 16 old images are two whole chunks, so that even the order of rounding is the same
    (ours,), (theirs,) = new.scales, everything.scales
    assert ours.moments.n == theirs.moments.n
    assert same(ours.moments.mean, theirs.moments.mean) and same(ours.moments.M2, theirs.moments.M2)
    assert same(ours.whitening.A, theirs.whitening.A)
    assert same(ours.variances, theirs.variances)


@pytest.mark.parametrize("cut", [1, 5, 13])
def test_also_where_chunks_fall_differently(
    pictures: list[np.ndarray], everything: Detector, cut: int
) -> None:
    new = Detector.fit(pictures[:cut], SMALL).updated(pictures[cut : cut + 4]).updated(pictures[cut + 4 :])
    (ours,), (theirs,) = new.scales, everything.scales
    covariance = theirs.moments.covariance
    assert np.allclose(ours.moments.covariance, covariance, rtol=0, atol=1e-12 * np.abs(covariance).max())
    metrics = [one.whitening.A.T @ one.whitening.A for one in (ours, theirs)]
    assert np.allclose(*metrics, rtol=0, atol=1e-8 * np.abs(metrics[1]).max())
    assert [event.total for event in new.history] == [cut, cut + 4, N]


def test_the_order_of_a_list_of_new_files_does_not_matter(
    old: Detector, new: Detector, pictures: list[np.ndarray], tmp_path: Path
) -> None:
    files = [tmp_path / f"{i}.png" for i in range(OLD, N)]
    for file, picture in zip(files, pictures[OLD:], strict=True):
        Image.fromarray(picture).save(file)
    assert_same_model(old.updated(files[::-1]), new)


def test_the_bank_is_full_and_knows_old_and_new_images(new: Detector, old: Detector) -> None:
    (now,), (before,) = new.scales, old.scales
    assert len(now.raw) == SMALL.K and len(new.model.images) == N
    images = now.origin[:, 0]
    assert images.min() >= 0 and images.max() < N
    assert set(images.tolist()) & set(range(OLD)) and set(images.tolist()) & set(range(OLD, N))
    known = {row.tobytes(): tuple(origin) for row, origin in zip(before.raw, before.origin, strict=True)}
    for row, origin in zip(now.raw, now.origin, strict=True):
        if origin[0] < OLD:
            assert known[row.tobytes()] == tuple(origin)


def test_new_rows_are_patches_at_their_origin(new: Detector, pictures: list[np.ndarray]) -> None:
    (scale,) = new.scales
    views = [load_views(picture, new.config.views)[0][0] for picture in pictures]
    u = np.stack([scale.backbone.descriptors(view) for view in views]).astype(np.float16)
    image, _, row, column = scale.origin.T
    assert same(scale.raw, u[image, row, column])


def test_new_looks_are_learnt_and_old_ones_kept(old: Detector, pictures: list[np.ndarray]) -> None:
    def tinted(picture: np.ndarray) -> np.ndarray:
        return np.ascontiguousarray(picture[:, :, ::-1])

    returned = [tinted(vial_image(100 + i, pixels=96)[0]) for i in range(8)]
    new = old.updated(returned)
    strangers = [tinted(vial_image(200 + i, pixels=96)[0]) for i in range(4)]
    usual = [vial_image(300 + i, pixels=96)[0] for i in range(4)]
    fall = [b.score / a.score for a, b in zip(old.score(strangers), new.score(strangers), strict=True)]
    kept = [b.score / a.score for a, b in zip(old.score(usual), new.score(usual), strict=True)]
    assert max(fall) < 0.7 and max(kept) < 1.8


@pytest.mark.parametrize("constructor", [name for name in CHOICES["constructor"] if name != "kmeans"])
def test_every_bank_that_can_grow_does_so_the_same_on_any_threads(
    pictures: list[np.ndarray], constructor: str
) -> None:
    config = SMALL.with_changes(constructor=constructor, chunk_images=3)
    old = Detector.fit(pictures[:12], config)
    alone, together = (
        old.updated(pictures[12:], execution=Execution(workers=workers, batch=batch))
        for workers, batch in ((1, 1), (3, 2))
    )
    assert 64 <= alone.model.rows <= SMALL.K
    assert_same_model(alone, together)
    images = alone.scales[0].origin[:, 0]
    assert (images < 12).any() and (images >= 12).any()
    assert np.isfinite(alone.threshold)


def test_several_scales_grow_together(pictures: list[np.ndarray], tmp_path: Path) -> None:
    config = SMALL.with_changes(sizes="64,96", layers=("block4",))
    old = Detector.fit(pictures[:OLD], config)
    new, everything = old.updated(pictures[OLD:]), Detector.fit(pictures, config)
    for ours, theirs in zip(new.scales, everything.scales, strict=True):
        assert same(ours.moments.M2, theirs.moments.M2) and same(ours.whitening.A, theirs.whitening.A)
        assert (
            len(ours.raw) == SMALL.K and (ours.origin[:, 0] < OLD).any() and (ours.origin[:, 0] >= OLD).any()
        )
    assert new.calibration.n == N
    assert np.median(new.calibration.scores) == pytest.approx(
        np.median(everything.calibration.scores), rel=0.1
    )
    new.save(tmp_path / "part.mhpc")
    assert_same_model(Detector.load(tmp_path / "part.mhpc"), new)


def test_a_fraction_grows_with_the_patches(pictures: list[np.ndarray]) -> None:
    config = SMALL.with_changes(constructor="offline-greedy", fraction=0.05)
    old = Detector.fit(pictures[:10], config)
    assert (old.model.rows, old.updated(pictures[10:20]).model.rows) == (72, 144)


@pytest.mark.parametrize(("setting", "value"), [("constructor", "kmeans"), ("shrinkage", "ledoit-wolf")])
def test_what_needs_the_old_images_is_refused(pictures: list[np.ndarray], setting: str, value: str) -> None:
    detector = Detector.fit(pictures[:6], SMALL.with_changes(calibration="none", **{setting: value}))
    with pytest.raises(UserError, match="gone; fit all images again"):
        detector.updated(pictures[6:9])


def test_ipca_goes_on_from_the_exact_covariance(pictures: list[np.ndarray], everything: Detector) -> None:
    new = Detector.fit(pictures[:OLD], SMALL.with_changes(reduction="ipca")).updated(pictures[OLD:])
    assert same(new.scales[0].whitening.A, everything.scales[0].whitening.A)


def test_images_that_are_in_the_model_are_refused(pictures: list[np.ndarray], tmp_path: Path) -> None:
    for folder, seeds in (("good", range(6)), ("new", (40,))):
        (tmp_path / folder).mkdir()
        for seed in seeds:
            Image.fromarray(vial_image(seed, pixels=96)[0]).save(tmp_path / folder / f"{seed}.png")
    old, new = Detector.fit(tmp_path / "good", SMALL), tmp_path / "new"
    (new / "copy.png").write_bytes((tmp_path / "good" / "3.png").read_bytes())
    for grow in (old.updated, lambda images: old.calibrated(images=images)):
        with pytest.raises(UserError, match=r"learnt from .*copy\.png already"):
            grow(new)


def test_images_that_only_look_like_learnt_ones_are_told(old: Detector, tmp_path: Path) -> None:
    for seed in (40, 3):  # which the model has learnt from as an array
        Image.fromarray(vial_image(seed, pixels=96)[0]).save(tmp_path / f"{seed}.png")
    told: list[str] = []
    old.updated(tmp_path, execution=Execution(warn=told.append))
    assert any("1 of 2 images look as if" in message and "3.png" in message for message in told)


def test_images_of_the_same_name_are_told_apart(old: Detector, tmp_path: Path) -> None:
    grown = old
    for day, seed in (("day1", 40), ("day2", 41), ("day3", 42)):
        folder = tmp_path / day / "returned"
        folder.mkdir(parents=True)
        Image.fromarray(vial_image(seed, pixels=96)[0]).save(folder / "1.png")
        grown = grown.updated(folder)
    assert grown.model.images[OLD:] == ("1.png", "returned/1.png", "returned 2/1.png")


def test_an_update_keeps_to_a_budget_of_memory(old: Detector, pictures: list[np.ndarray]) -> None:
    with pytest.raises(UserError, match="cannot be done in"):
        old.updated(pictures[OLD:], execution=Execution(memory=1))


def test_broken_images_can_be_left_out(old: Detector, pictures: list[np.ndarray], tmp_path: Path) -> None:
    for i, picture in enumerate(pictures[OLD:]):
        Image.fromarray(picture).save(tmp_path / f"{i}.png")
    (tmp_path / "3.png").write_bytes(b"torn")
    with pytest.raises(UserError, match=r"3\.png"):
        old.updated(tmp_path)
    new = old.updated(tmp_path, execution=Execution(skip_broken=True))
    assert new.model.images[OLD:] == tuple(f"{i}.png" for i in range(8))  # a bank row's number stays valid
    assert new.history[-1].images == 7 and OLD + 3 not in new.scales[0].origin[:, 0]
    (tmp_path / "only").mkdir()
    (tmp_path / "only" / "a.png").write_bytes(b"torn")
    with pytest.raises(UserError, match="none of the images could be read"):
        old.updated(tmp_path / "only", execution=Execution(skip_broken=True))


def test_scores_of_old_images_are_taken_again(new: Detector, everything: Detector) -> None:
    # 16 + 8 images: all of them are calibration images, as in a fit on everything
    ours, theirs = new.calibration, everything.calibration
    assert ours.n == theirs.n == N and ours.method == "cross-image"
    assert sorted(one.image for one in ours.deciding) == list(range(N))
    assert np.median(ours.scores) == pytest.approx(np.median(theirs.scores), rel=0.1)
    assert ours.threshold == pytest.approx(theirs.threshold, rel=0.25)


def test_a_few_returned_parts_count_as_a_few(pictures: list[np.ndarray]) -> None:
    old = Detector.fit(pictures[:20], SMALL.with_changes(calibration_images=10))
    new = old.updated(pictures[20:])
    images = [one.image for one in new.calibration.deciding]
    assert sum(image < 20 for image in images) == 8 and sum(image >= 20 for image in images) == 2


def test_returned_parts_are_learnt_but_have_no_say_in_the_threshold(
    old: Detector, pictures: list[np.ndarray]
) -> None:
    strange = [np.ascontiguousarray(picture[:, :, ::-1]) for picture in pictures[OLD : OLD + 3]]
    usual, returned = old.updated(strange), old.updated(strange, returned=True)
    assert same(usual.scales[0].raw, returned.scales[0].raw)
    assert {one.image for one in returned.calibration.deciding} == set(range(OLD))
    assert returned.threshold < 1.2 * old.threshold and returned.threshold <= usual.threshold
    held_out = Detector.fit(pictures[:10], SMALL.with_changes(calibration="held-out"))
    assert held_out.updated(strange, returned=True).model.n_learnt == 8 + 3
    older = with_changes(old, calibration=replace(old.calibration, deciding=()))
    with pytest.raises(UserError, match="nothing to take its threshold from"):
        older.updated(strange, returned=True)


def test_held_out_images_are_held_out_of_an_update_too(pictures: list[np.ndarray]) -> None:
    old = Detector.fit(pictures[:10], SMALL.with_changes(calibration="held-out"))
    new = old.updated(pictures[10:20])
    assert (old.calibration.n, new.calibration.n, new.calibration.method) == (2, 4, "held-out")
    assert (old.model.n_learnt, new.model.n_learnt) == (8, 16)


def test_a_model_without_deciding_patches_is_calibrated_by_the_new_images(
    old: Detector, pictures: list[np.ndarray]
) -> None:
    older = with_changes(old, calibration=replace(old.calibration, deciding=()))
    new = older.updated(pictures[OLD:])
    assert sorted(one.image for one in new.calibration.deciding) == list(range(OLD, N))
    assert new.calibration.n == N - OLD


def test_a_grown_model_survives_its_file_and_grows_on(new: Detector, tmp_path: Path) -> None:
    new.save(tmp_path / "a.mhpc")
    loaded = Detector.load(tmp_path / "a.mhpc")
    assert loaded.history == new.history and loaded.model.images == new.model.images
    further = [vial_image(30 + i, pixels=96)[0] for i in range(2)]
    assert_same_model(loaded.updated(further), new.updated(further))
