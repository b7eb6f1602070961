"""Suspicious training images: odd ones come first, twins do not vouch for each other, and leaving out is clean."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from test_fitting import assert_same_model

from mhpatchcore import Config, Detector, Execution, UserError
from mhpatchcore import backbone as backbones
from mhpatchcore.demo.dataset import vial_image
from mhpatchcore.fitting.extraction import Extraction
from mhpatchcore.fitting.passes import learn
from mhpatchcore.inspection.coverage import LEVELS
from mhpatchcore.inspection.suspicion import Scrutiny, parse_exclusion, rank_images, suspicious_patches
from mhpatchcore.metric.distances import bank_parts
from mhpatchcore.scoring.rules import Scorer

SMALL = Config(size=96, K=300, m_c=64, chunk_images=4)
ODD = (5, 12)
N = 18


@pytest.fixture(scope="module")
def pictures() -> list[np.ndarray]:
    made = [vial_image(seed, pixels=96)[0] for seed in range(N)]
    for i in ODD:  # a label that does not belong there, on each at another place
        made[i][3 * i : 3 * i + 24, 20:60] = np.random.default_rng(i).integers(0, 256, (24, 40, 1))
    return made


@pytest.fixture(scope="module")
def folder(pictures: list[np.ndarray], tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("normals")
    for i, picture in enumerate(pictures):
        Image.fromarray(picture).save(place / f"{i:02d}.png")
    return place


def test_defects_among_the_normals_come_first(folder: Path) -> None:
    study = Detector.study(folder, SMALL, Scrutiny(rank=True, coverage=True))
    assert len(study.suspects) == N
    assert {suspect.name for suspect in study.suspects[:2]} == {"05.png", "12.png"}
    scores = [suspect.score for suspect in study.suspects]
    assert scores == sorted(scores, reverse=True)
    assert study.suspects[0].times_typical > 1 > study.suspects[-1].times_typical
    first = study.suspects[0].patches
    assert first is not None and first.shape == study.detector.backbone.info.grid
    assert not any(suspect.excluded for suspect in study.suspects) and study.detector.excluded == ()
    assert_same_model(study.detector, Detector.fit(folder, SMALL))
    assert study.coverage is not None and study.coverage.images == (4, 4, 4, 4, 2)
    assert study.coverage.quantiles.shape == (5, len(LEVELS))
    assert (np.diff(study.coverage.quantiles, axis=1) >= 0).all()


@pytest.mark.parametrize("spool", ["disk", "none"])
def test_a_fit_without_suspects_is_a_fit_without_those_files(
    folder: Path, spool: str, tmp_path: Path
) -> None:
    trimmed = Detector.fit(folder, SMALL, exclude_suspicious=2, execution=Execution(spool=spool, workers=2))
    assert trimmed.excluded == ("05.png", "12.png")
    clean = [path for path in sorted(folder.iterdir()) if path.name not in trimmed.excluded]
    assert_same_model(trimmed, Detector.fit(clean, SMALL))
    assert [Path(name).name for name in trimmed.images] == [path.name for path in clean]
    trimmed.save(tmp_path / "part.mhpc")
    assert Detector.load(tmp_path / "part.mhpc").excluded == trimmed.excluded
    assert trimmed.updated([vial_image(50, pixels=96)[0]]).excluded == trimmed.excluded


def test_broken_images_do_not_shift_the_others(folder: Path, tmp_path: Path) -> None:
    torn = tmp_path / "torn.png"
    torn.write_bytes(b"torn")
    paths = sorted(folder.iterdir())
    paths.insert(3, torn)
    careful = Execution(skip_broken=True)
    trimmed = Detector.fit(paths, SMALL, exclude_suspicious=2, execution=careful)
    assert {Path(name).name for name in trimmed.excluded} == {"05.png", "12.png"}
    rest = [path for path in paths if str(path) not in trimmed.excluded]
    assert_same_model(trimmed, Detector.fit(rest, SMALL, execution=careful))


@pytest.mark.parametrize("constructor", ["kmeans", "random", "tree"])
def test_every_kind_of_bank_can_be_trimmed(folder: Path, constructor: str) -> None:
    study = Detector.study(folder, SMALL.with_changes(constructor=constructor), Scrutiny(exclude=0.12))
    assert len(study.detector.excluded) == 2
    assert np.isfinite(study.detector.threshold)


def test_a_copy_does_not_vouch(pictures: list[np.ndarray]) -> None:
    good = [picture for i, picture in enumerate(pictures) if i not in ODD]
    study = Detector.study([*good, pictures[5], pictures[5]], SMALL, Scrutiny(rank=True))
    assert {suspect.name for suspect in study.suspects[:2]} == {
        f"array {len(good)}",
        f"array {len(good) + 1}",
    }


def test_second_image_is_found_patch_by_patch() -> None:
    bank = np.array([[0.0], [1.0], [1.5], [4.0]], np.float32)
    scorer = Scorer(bank, (1, 2), Config(reach=0.0, parts=1))
    assert len(bank_parts(bank, scorer.weights, 1)) == 1
    z = np.array([[0.0], [3.9]], np.float32)
    origin = np.array([7, 1, 1, 2])
    # own rows (7) do not count; image 1 is nearest to the first patch, image 2 to the second
    found = suspicious_patches(z, scorer, origin, image=7)
    assert found is not None and np.allclose(found, [[16.0, 2.4**2]], atol=1e-4)
    # with one other image there is no second one to ask
    found = suspicious_patches(z, scorer, np.array([7, 7, 7, 2]), image=7)
    assert found is not None and np.allclose(found, [[16.0, 0.01]], atol=1e-4)
    assert suspicious_patches(z, scorer, np.full(4, 7), image=7) is None


def test_only_looks_make_an_image_suspicious(pictures: list[np.ndarray]) -> None:
    network = backbones.load(SMALL.backbone, height=96, width=96, place=True, threads=1)
    with closing(Extraction(pictures, range(N), network, SMALL, Execution())) as extraction:
        fitted = learn(extraction)
        by_place = fitted.whitening.A.copy()
        by_place[-2:] *= 100
        whitening = replace(fitted.whitening, A=by_place)
        bank = replace(fitted.bank, z=whitening(fitted.bank.raw))
        assert np.abs(bank.z - fitted.bank.z).max() > 10
        ours, theirs = (
            rank_images(extraction, *one) for one in ((fitted.whitening, fitted.bank), (whitening, bank))
        )
    assert ours.images == theirs.images and np.allclose(ours.scores, theirs.scores, rtol=1e-4)


@pytest.mark.parametrize("exclude", [-1, 2.5])
def test_nonsense_is_refused(exclude: float) -> None:
    with pytest.raises(UserError, match="number of images or a share"):
        Scrutiny(exclude=exclude)


def test_more_than_half_are_not_suspicious(pictures: list[np.ndarray]) -> None:
    with pytest.raises(UserError, match="at most half"):
        Detector.fit(pictures[:4], SMALL, exclude_suspicious=3)
    with pytest.raises(UserError, match="at most half"):
        Detector.fit(pictures[:4], SMALL, exclude_suspicious=parse_exclusion("100%"))
    with pytest.raises(UserError, match="10 or 5%"):
        parse_exclusion("many")


def test_one_image_has_nothing_to_stand_apart_from(pictures: list[np.ndarray]) -> None:
    assert Detector.study(pictures[:1], SMALL, Scrutiny(rank=True)).suspects == ()
