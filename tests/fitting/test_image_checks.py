"""Suspicious training images: odd ones come first, twins do not vouch for each other, and leaving out is clean."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from same_model import assert_same_model

from mhpatchcore import Config, Detector, Execution, UserError
from mhpatchcore.demo.dataset import vial_image
from mhpatchcore.fitting.checks import LEVELS, ImageChecks, parse_exclusion, second_image
from mhpatchcore.scoring.graph import EXCLUDED
from mhpatchcore.scoring.score import combined_peak

SMALL = Config(augment="none", sizes=96, K=300, m_c=64, chunk_images=4)
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
    study = Detector.study(folder, SMALL, ImageChecks(rank=True, coverage=True))
    assert len(study.suspects) == N
    assert {suspect.name for suspect in study.suspects[:2]} == {"05.png", "12.png"}
    scores = [suspect.score for suspect in study.suspects]
    assert scores == sorted(scores, reverse=True)
    assert study.suspects[0].times_typical > 1 > study.suspects[-1].times_typical
    assert study.suspects[0].views is not None
    (first,) = study.suspects[0].views
    assert first.distances.shape == study.detector.scales[0].backbone.info.grid
    assert not any(suspect.excluded for suspect in study.suspects) and study.detector.model.excluded == ()
    assert_same_model(study.detector, Detector.fit(folder, SMALL))
    assert study.coverage is not None and study.coverage.images == (4, 4, 4, 4, 2)
    assert study.coverage.quantiles.shape == (5, len(LEVELS))
    assert (np.diff(study.coverage.quantiles, axis=1) >= 0).all()


def test_the_map_of_a_suspect_peaks_at_its_score(folder: Path) -> None:
    """A map of one scale alone, coloured by scores of both, showed nothing."""
    study = Detector.study(folder, SMALL.with_changes(sizes="64,96"), ImageChecks(rank=True))
    for suspect in study.suspects:
        assert suspect.views is not None and combined_peak(suspect.views) == suspect.score


@pytest.mark.parametrize("sizes", [96, "64,96"])
def test_a_fit_without_suspects_is_a_fit_without_those_files(
    folder: Path, sizes: object, tmp_path: Path
) -> None:
    config = SMALL.with_changes(sizes=sizes)
    trimmed = Detector.fit(folder, config, exclude_suspicious=2, execution=Execution(workers=2))
    assert trimmed.model.excluded == ("05.png", "12.png")
    clean = [path for path in sorted(folder.iterdir()) if path.name not in trimmed.model.excluded]
    assert_same_model(trimmed, Detector.fit(clean, config))
    assert [Path(name).name for name in trimmed.model.images] == [path.name for path in clean]
    trimmed.save(tmp_path / "part.mhpc")
    assert Detector.load(tmp_path / "part.mhpc").model.excluded == trimmed.model.excluded
    assert trimmed.updated([vial_image(50, pixels=96)[0]]).model.excluded == trimmed.model.excluded


def test_broken_images_do_not_shift_the_others(folder: Path, tmp_path: Path) -> None:
    torn = tmp_path / "torn.png"
    torn.write_bytes(b"torn")
    paths = sorted(folder.iterdir())
    paths.insert(3, torn)
    careful = Execution(skip_broken=True)
    trimmed = Detector.fit(paths, SMALL, exclude_suspicious=2, execution=careful)
    left_out = {Path(name).name for name in trimmed.model.excluded}
    assert left_out == {"05.png", "12.png"}
    rest = Detector.fit([path for path in paths if path.name not in left_out], SMALL, execution=careful)
    assert_same_model(trimmed, rest)
    assert trimmed.model.hashes == rest.model.hashes
    assert [Path(name).name for name in trimmed.model.images] == [
        Path(name).name for name in rest.model.images
    ]


@pytest.mark.parametrize("constructor", ["kmeans", "tree"])
def test_every_kind_of_bank_can_be_trimmed(folder: Path, constructor: str) -> None:
    config = SMALL.with_changes(constructor=constructor, calibration="held-out")
    study = Detector.study(folder, config, ImageChecks(exclude=0.12))
    assert len(study.detector.model.excluded) == 2
    assert np.isfinite(study.detector.threshold)


def test_a_copy_does_not_vouch(pictures: list[np.ndarray]) -> None:
    good = [picture for i, picture in enumerate(pictures) if i not in ODD]
    study = Detector.study([*good, pictures[5], pictures[5]], SMALL, ImageChecks(rank=True))
    assert {suspect.name for suspect in study.suspects[:2]} == {
        f"array {len(good)}",
        f"array {len(good) + 1}",
    }


def test_second_image_is_found_patch_by_patch() -> None:
    bank, z = np.array([0.0, 1.0, 1.5, 4.0]), np.array([0.0, 3.9])
    distances = ((bank[:, None] - z[None]) ** 2).astype(np.float32)
    # own rows do not count; image 1 is nearest to the first patch, image 2 to the second
    distances[0] = EXCLUDED
    assert np.allclose(second_image(distances, np.array([7, 1, 1, 2])), [16.0, 2.4**2], atol=1e-4)
    # with one other image there is no second one to ask
    distances[:3] = EXCLUDED
    assert np.allclose(second_image(distances, np.array([7, 7, 7, 2])), [16.0, 0.01], atol=1e-4)


def test_rounding_makes_no_suspicion_negative() -> None:
    assert second_image(np.array([[-1e-3], [-2e-3]], np.float32), np.array([1, 2])).tolist() == [0.0]


@pytest.mark.parametrize("exclude", [-1, 2.5])
def test_nonsense_is_refused(exclude: float) -> None:
    with pytest.raises(UserError, match="number of images or a share"):
        ImageChecks(exclude=exclude)


def test_more_than_half_are_not_suspicious(pictures: list[np.ndarray]) -> None:
    with pytest.raises(UserError, match="at most half"):
        Detector.fit(pictures[:4], SMALL, exclude_suspicious=3)
    with pytest.raises(UserError, match="at most half"):
        Detector.fit(pictures[:4], SMALL, exclude_suspicious=parse_exclusion("100%"))
    with pytest.raises(UserError, match="10 or 5%"):
        parse_exclusion("many")


def test_one_image_has_nothing_to_stand_apart_from(pictures: list[np.ndarray]) -> None:
    assert Detector.study(pictures[:1], SMALL, ImageChecks(rank=True)).suspects == ()
