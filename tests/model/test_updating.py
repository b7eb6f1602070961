"""Updates: exact where they can be, as good as a fit on everything elsewhere, and refused where they cannot be."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from mhpatchcore import Config, Detector, Execution, UserError
from mhpatchcore.bank import CONSTRUCTORS
from mhpatchcore.bank.patches import Patches, Stream, Summary
from mhpatchcore.bank.sample import random_sample
from mhpatchcore.demo.dataset import vial_image

SMALL = Config(size=96, K=300, m_c=64)
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
    assert new.moments.n == everything.moments.n
    assert same(new.moments.mean, everything.moments.mean) and same(new.moments.M2, everything.moments.M2)
    assert same(new.whitening.A, everything.whitening.A)
    assert same(new.variances, everything.variances)


@pytest.mark.parametrize("cut", [1, 5, 13])
def test_also_where_chunks_fall_differently(
    pictures: list[np.ndarray], everything: Detector, cut: int
) -> None:
    new = Detector.fit(pictures[:cut], SMALL).updated(pictures[cut : cut + 4]).updated(pictures[cut + 4 :])
    ours, theirs = new.moments.covariance, everything.moments.covariance
    assert np.allclose(ours, theirs, rtol=0, atol=1e-12 * np.abs(theirs).max())
    metrics = [one.whitening.A.T @ one.whitening.A for one in (new, everything)]
    assert np.allclose(*metrics, rtol=0, atol=1e-8 * np.abs(metrics[1]).max())
    assert [event.total for event in new.history] == [cut, cut + 4, N]


def test_the_order_of_a_list_of_new_files_does_not_matter(
    old: Detector, new: Detector, pictures: list[np.ndarray], tmp_path: Path
) -> None:
    files = [tmp_path / f"{i}.png" for i in range(OLD, N)]
    for file, picture in zip(files, pictures[OLD:], strict=True):
        Image.fromarray(picture).save(file)
    anyhow = old.updated(files[::-1])
    assert same(anyhow.bank_raw, new.bank_raw) and same(anyhow.calibration.scores, new.calibration.scores)


def test_the_bank_is_full_and_knows_old_and_new_images(
    new: Detector, old: Detector, pictures: list[np.ndarray]
) -> None:
    assert len(new.bank_raw) == SMALL.K and len(new.images) == N
    images = new.bank_origin[:, 0]
    assert images.min() >= 0 and images.max() < N
    assert set(images.tolist()) & set(range(OLD)) and set(images.tolist()) & set(range(OLD, N))
    known = {row.tobytes(): tuple(origin) for row, origin in zip(old.bank_raw, old.bank_origin, strict=True)}
    for row, origin in zip(new.bank_raw, new.bank_origin, strict=True):
        if origin[0] < OLD:
            assert known[row.tobytes()] == tuple(origin)


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


@pytest.mark.parametrize("constructor", [name for name in CONSTRUCTORS if name != "kmeans"])
def test_every_bank_that_can_grow_does_so_the_same_on_any_threads(
    pictures: list[np.ndarray], constructor: str
) -> None:
    config = SMALL.with_changes(constructor=constructor, chunk_images=3)
    old = Detector.fit(pictures[:12], config)
    alone, together = (
        old.updated(pictures[12:], execution=Execution(workers=workers, batch=batch, spool=spool))
        for workers, batch, spool in ((1, 1, "disk"), (3, 2, "none"))
    )
    assert 64 <= len(alone.bank_raw) <= SMALL.K
    assert same(alone.bank_raw, together.bank_raw) and same(alone.bank_origin, together.bank_origin)
    assert same(alone.calibration.scores, together.calibration.scores)
    assert (alone.bank_origin[:, 0] < 12).any() and (alone.bank_origin[:, 0] >= 12).any()
    assert np.isfinite(alone.threshold)


def test_a_fraction_grows_with_the_patches(pictures: list[np.ndarray]) -> None:
    config = SMALL.with_changes(constructor="offline-greedy", fraction=0.05)
    old = Detector.fit(pictures[:10], config)
    assert (len(old.bank_raw), len(old.updated(pictures[10:20]).bank_raw)) == (72, 144)


@pytest.mark.parametrize(("setting", "value"), [("constructor", "kmeans"), ("shrinkage", "ledoit-wolf")])
def test_what_needs_the_old_images_is_refused(pictures: list[np.ndarray], setting: str, value: str) -> None:
    detector = Detector.fit(pictures[:6], SMALL.with_changes(**{setting: value}))
    with pytest.raises(UserError, match="gone; fit all images again"):
        detector.updated(pictures[6:9])


def test_ipca_goes_on_from_the_exact_covariance(pictures: list[np.ndarray], everything: Detector) -> None:
    new = Detector.fit(pictures[:OLD], SMALL.with_changes(reduction="ipca")).updated(pictures[OLD:])
    assert same(new.whitening.A, everything.whitening.A)


def test_images_that_are_in_the_model_are_refused(old: Detector, tmp_path: Path) -> None:
    for seed in (40, 3):
        Image.fromarray(vial_image(seed, pixels=96)[0]).save(tmp_path / f"{seed}.png")
    with pytest.raises(UserError, match=r"learnt from .*3\.png already"):
        old.updated(tmp_path)
    with pytest.raises(UserError, match=r"learnt from .*3\.png already"):
        old.calibrated(images=tmp_path)


def test_images_of_the_same_name_are_told_apart(old: Detector, tmp_path: Path) -> None:
    grown = old
    for day, seed in (("day1", 40), ("day2", 41), ("day3", 42)):
        folder = tmp_path / day / "returned"
        folder.mkdir(parents=True)
        Image.fromarray(vial_image(seed, pixels=96)[0]).save(folder / "1.png")
        grown = grown.updated(folder)
    assert grown.images[OLD:] == ("1.png", "returned/1.png", "returned 2/1.png")


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
    assert new.images[OLD:] == tuple(f"{i}.png" for i in range(8))  # a bank row's number stays valid
    assert new.history[-1].images == 7 and OLD + 3 not in new.bank_origin[:, 0]
    (tmp_path / "only").mkdir()
    (tmp_path / "only" / "a.png").write_bytes(b"torn")
    with pytest.raises(UserError, match="none of the images could be read"):
        old.updated(tmp_path / "only", execution=Execution(skip_broken=True))


def test_scores_of_old_images_are_taken_again(new: Detector, everything: Detector) -> None:
    # 16 + 8 images: all of them are calibration images, as in a fit on everything
    ours, theirs = new.calibration, everything.calibration
    assert ours.n == theirs.n == N and ours.method == "cross-image"
    assert sorted(witness.image for witness in ours.witnesses) == list(range(N))
    assert np.median(ours.scores) == pytest.approx(np.median(theirs.scores), rel=0.1)
    assert ours.threshold == pytest.approx(theirs.threshold, rel=0.25)


def test_a_few_returned_parts_count_as_a_few(pictures: list[np.ndarray]) -> None:
    old = Detector.fit(pictures[:20], SMALL.with_changes(calibration_images=10))
    new = old.updated(pictures[20:])
    images = [witness.image for witness in new.calibration.witnesses]
    assert sum(image < 20 for image in images) == 8 and sum(image >= 20 for image in images) == 2


def test_returned_parts_are_learnt_but_have_no_say_in_the_threshold(
    old: Detector, pictures: list[np.ndarray]
) -> None:
    strange = [np.ascontiguousarray(picture[:, :, ::-1]) for picture in pictures[OLD : OLD + 3]]
    fair, returned = old.updated(strange), old.updated(strange, returned=True)
    assert same(fair.bank_raw, returned.bank_raw)
    assert {witness.image for witness in returned.calibration.witnesses} == set(range(OLD))
    assert returned.threshold < 1.2 * old.threshold and returned.threshold <= fair.threshold
    held_out = Detector.fit(pictures[:10], SMALL.with_changes(calibration="held-out"))
    assert held_out.updated(strange, returned=True).moments.n == (8 + 3) * 144
    older = replace(old, calibration=replace(old.calibration, witnesses=()))
    with pytest.raises(UserError, match="nothing to take its threshold from"):
        older.updated(strange, returned=True)


def test_held_out_images_are_held_out_of_an_update_too(pictures: list[np.ndarray]) -> None:
    old = Detector.fit(pictures[:10], SMALL.with_changes(calibration="held-out"))
    new = old.updated(pictures[10:20])
    assert (old.calibration.n, new.calibration.n, new.calibration.method) == (2, 4, "held-out")
    assert (old.moments.n, new.moments.n) == (8 * 144, 16 * 144)


def test_a_model_without_witnesses_is_calibrated_by_the_new_images(
    old: Detector, pictures: list[np.ndarray]
) -> None:
    older = replace(old, calibration=replace(old.calibration, witnesses=()))
    new = older.updated(pictures[OLD:])
    assert sorted(witness.image for witness in new.calibration.witnesses) == list(range(OLD, N))
    assert new.calibration.n == N - OLD


def test_a_random_bank_stands_for_old_and_new_patches_alike() -> None:
    def patches(n: int, image: int) -> Patches:
        origin = np.column_stack([np.full(n, image), np.arange(n), np.zeros(n, int)]).astype(np.int32)
        return Patches(np.arange(n, dtype=np.float32)[:, None], np.zeros((n, 1), np.float16), origin)

    kept = []
    for seed in range(200):
        past = Summary(patches(40, 0), 3000)
        bank = random_sample(Stream.of([patches(1000, 1)], past=(past,)), 40, seed)
        kept.append(int((bank.origin[:, 0] == 0).sum()))
    # hypergeometric: 40 of 4000, of which 3000 are old
    assert abs(np.mean(kept) - 30) < 4 * np.sqrt(40 * 0.75 * 0.25 / len(kept))
