"""A region of interest and tiles from the fit to the result: what lies outside takes part in nothing."""

from __future__ import annotations

import pickle
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from process_executor import Processes
from same_model import assert_same_model
from small_detector import vials

from mhpatchcore import Config, Detector, Execution
from mhpatchcore.errors import ImageError, UserError
from mhpatchcore.fitting.calibrating import banked, calibrated_by, rescored_images
from mhpatchcore.fitting.checks import ImageChecks
from mhpatchcore.inputs.loading import load_views
from mhpatchcore.inputs.regions import Polygons
from mhpatchcore.metric.moments import Moments

N, SIDE = 8, 128
CORNERS = [[0.2, 0.05], [0.85, 0.2], [0.7, 0.95], [0.1, 0.8]]
SMALL = Config(augment="none", sizes=64, K=150, m_c=60, layers=("block2", "block4"), chunk_images=4)
SIZES = ["64", "64,96", "tile:64", "64,tile:64/2"]
RULES = ["map-max", "max", "reweighted"]


@pytest.fixture(scope="module")
def pictures() -> list[np.ndarray]:
    return vials(0, N, pixels=SIDE)


def inside(roi: object = CORNERS, side: int = SIDE) -> np.ndarray:
    area = Config(roi=roi).roi  # type: ignore[arg-type]
    assert isinstance(area, Polygons)
    return area.over((0, 0, side, side), side, side, (side, side))


def with_noise_outside(picture: np.ndarray, seed: int = 0) -> np.ndarray:
    noise = np.random.default_rng(seed).integers(0, 256, picture.shape).astype(np.uint8)
    return np.where(inside()[:, :, None], picture, noise)


@pytest.mark.parametrize("score", RULES)
@pytest.mark.parametrize("sizes", SIZES)
def test_what_lies_outside_changes_no_bit(pictures: list[np.ndarray], sizes: str, score: str) -> None:
    config = SMALL.with_changes(sizes=sizes, roi=CORNERS, score=score)
    detector = Detector.fit(pictures, config)
    other = Detector.fit([with_noise_outside(one, i) for i, one in enumerate(pictures)], config)
    assert_same_model(detector, other)
    bad = pictures[0].copy()
    bad[60:72, 50:66] = 255 - bad[60:72, 50:66]
    ours, theirs = detector.score(bad), detector.score(with_noise_outside(bad, 77))
    assert ours.score == theirs.score > detector.score(pictures[0]).score
    assert np.array_equal(ours.map, theirs.map) and ours.regions == theirs.regions
    assert not ours.map[~inside()].any() and ours.map[inside()].any()
    assert detector.explain(bad).places[0].box == detector.explain(with_noise_outside(bad, 78)).places[0].box


@pytest.mark.parametrize("reduction", ["pca", "ipca"])
@pytest.mark.parametrize("sizes", ["64", "tile:64"])
def test_moments_and_bank_are_of_patches_inside(
    pictures: list[np.ndarray], sizes: str, reduction: str
) -> None:
    config = SMALL.with_changes(sizes=sizes, roi=CORNERS, reduction=reduction, shrinkage="ledoit-wolf")
    detector = Detector.fit(pictures, config)
    (scale,), (view,) = detector.scales, detector.config.views
    grid, rows = scale.backbone.info.grid, []
    for picture in pictures:
        for seen, where in load_views(picture, [view], detector.config.roi):
            counts = detector.config.roi.over(where.box, *grid, (SIDE, SIDE))  # type: ignore[union-attr]
            rows.append(scale.backbone.descriptors(seen)[counts])
    expected = Moments.of(np.concatenate(rows))
    assert scale.moments.n == expected.n < N * view.count(SIDE, SIDE) * grid[0] * grid[1]
    assert np.allclose(scale.moments.mean, expected.mean, rtol=1e-4)
    assert np.allclose(scale.moments.covariance, expected.covariance, rtol=1e-3, atol=1e-6)
    every = view.geometries(SIDE, SIDE)
    for _, number, row, column in scale.origin:
        assert detector.config.roi.over(every[number].box, *grid, (SIDE, SIDE))[row, column]  # type: ignore[union-attr]


@pytest.mark.parametrize("sizes", SIZES)
def test_bank_rows_are_the_patches_they_come_from(pictures: list[np.ndarray], sizes: str) -> None:
    detector = Detector.fit(pictures, SMALL.with_changes(sizes=sizes))
    for scale, view in zip(detector.scales, detector.config.views, strict=True):
        described = {}
        for raw, (image, number, row, column) in zip(scale.raw, scale.origin.tolist(), strict=True):
            if (image, number) not in described:
                seen, _ = load_views(pictures[image], [view])[number]
                described[image, number] = scale.backbone.descriptors(seen)
            assert np.array_equal(raw, described[image, number][row, column].astype(np.float16))
        assert (scale.origin[:, 1].max() > 0) == bool(view.zoom)
        assert scale.moments.n == N * view.count(SIDE, SIDE) * scale.backbone.info.patches


@pytest.mark.parametrize("sizes", ["tile:64", "64,tile:64/2"])
@pytest.mark.parametrize("roi", [None, CORNERS])
def test_calibration_leaves_all_tiles_of_an_image_out(
    pictures: list[np.ndarray], sizes: str, roi: object
) -> None:
    detector = Detector.fit(pictures, SMALL.with_changes(sizes=sizes, roi=roi, local=1))
    assert detector.calibration.n == N
    place = {one.image: place for place, one in enumerate(detector.calibration.deciding)}
    for i in (0, 5):
        scales = []
        for scale in detector.scales:
            others = scale.origin[:, 0] != i
            kept = {
                "raw": scale.raw[others],
                "origin": scale.origin[others],
                "weights": scale.weights[others],
            }
            scales.append(replace(scale, **kept))
        alone = Detector(replace(detector.model, scales=tuple(scales))).score(pictures[i])
        assert detector.calibration.scores[place[i]] == pytest.approx(alone.score, rel=1e-4)
        assert detector.calibration.peaks[place[i]] == pytest.approx(alone.score, rel=1e-4)
        assert detector.score(pictures[i]).score < 0.95 * alone.score


@pytest.mark.parametrize("roi", [None, CORNERS])
@pytest.mark.parametrize("sizes", ["64", "tile:64", "64,tile:64/2"])
def test_deciding_patches_repeat_the_scores(pictures: list[np.ndarray], sizes: str, roi: object) -> None:
    detector = Detector.fit(pictures, SMALL.with_changes(sizes=sizes, roi=roi, local=1))
    banks = [banked(scale, detector.config) for scale in detector.scales]
    found = rescored_images(detector.calibration, N, banks, np.arange(N), detector.config, workers=1)
    again = calibrated_by(found, detector.config, ["cross-image"])
    assert np.allclose(again.scores, detector.calibration.scores, rtol=0.1)
    assert np.median(again.scores / detector.calibration.scores) > 0.97


@pytest.mark.parametrize("sizes", ["64", "64,tile:64/2"])
def test_a_model_lives_on_with_them(pictures: list[np.ndarray], sizes: str, tmp_path: Path) -> None:
    config = SMALL.with_changes(sizes=sizes, roi=CORNERS)
    detector = Detector.fit(pictures, config)
    detector.save(tmp_path / "part.mhpc")
    loaded = Detector.load(tmp_path / "part.mhpc")
    assert loaded.config == detector.config and loaded.config.roi is not None
    assert loaded.score(pictures[1]).score == detector.score(pictures[1]).score
    new = vials(50, 5, pixels=SIDE)
    for change in (
        lambda one, images: one.updated(images),
        lambda one, images: one.calibrated(images=images),
        lambda one, images: one.merged(Detector.fit(images, config)),
    ):
        ours, theirs = change(loaded, new), change(loaded, [with_noise_outside(one) for one in new])
        assert [ours.score(one).score for one in new] == [theirs.score(one).score for one in new]
        assert ours.threshold == theirs.threshold
        assert ours.model.n_learnt in (N, N + 5) and ours.config == loaded.config


def test_workers_batches_and_processes_change_no_bit(pictures: list[np.ndarray], tmp_path: Path) -> None:
    paths = [tmp_path / f"{i}.png" for i in range(N)]
    for path, picture in zip(paths, pictures, strict=True):
        Image.fromarray(picture).save(path)
    config = SMALL.with_changes(sizes="64,tile:64/2", roi=CORNERS)
    ways = [Execution(workers=1, batch=3), Execution(workers=2, executor=Processes(2))]
    alone = Detector.fit(paths, config)
    for way in ways:
        assert_same_model(Detector.fit(paths, config, execution=way), alone)


def test_the_store_tells_regions_apart(pictures: list[np.ndarray], tmp_path: Path) -> None:
    store = Execution(store=tmp_path / "store")
    config = SMALL.with_changes(sizes="tile:64")
    for roi in (None, CORNERS, [0, 0, 100, 100], None, CORNERS):
        kept = Detector.fit(pictures, config.with_changes(roi=roi), execution=store)
        assert_same_model(kept, Detector.fit(pictures, config.with_changes(roi=roi)))


def test_one_image_is_learnt_from_but_gives_no_threshold(pictures: list[np.ndarray]) -> None:
    detector = Detector.fit(pictures[:1], SMALL.with_changes(sizes="tile:64"))
    assert (detector.model.n_learnt, detector.calibration.n, detector.threshold) == (1, 0, float("inf"))
    assert len(set(detector.scales[0].origin[:, 1].tolist())) == 9
    result = detector.score(pictures[1])
    assert result.verdict == "no threshold" and result.regions == () and result.map.shape == (SIDE, SIDE)
    assert detector.calibrated(images=pictures[1:]).calibration.n == N - 1


def test_a_small_defect_is_found_by_tiles_where_it_is() -> None:
    parts = vials(0, 10, pixels=512)
    detector = Detector.fit(parts, SMALL.with_changes(sizes="tile:96", K=1000))
    bad = vials(60, 1, pixels=512)[0]
    calm = detector.score(bad)
    bad[300:310, 250:262] = (200, 30, 200)
    result = detector.score(bad)
    assert not calm.is_rejected and result.is_rejected
    top, left, bottom, right = result.regions[0].box
    assert top <= 305 <= bottom and left <= 256 <= right
    place = detector.explain(bad).places[0]
    assert abs((place.box[0] + place.box[2]) / 2 - 305) < 20


def test_images_of_many_sizes_go_together() -> None:
    pictures = [vials(i, 1, pixels=side)[0] for i, side in enumerate((64, 80, 100, 130, 200, 130))]
    detector = Detector.fit(pictures, SMALL.with_changes(sizes="tile:96"))
    for picture in pictures:
        result = detector.score(picture)
        assert result.map.shape == picture.shape[:2] and np.isfinite(result.score)


def test_suspects_and_coverage_are_of_patches_inside(pictures: list[np.ndarray]) -> None:
    odd = [one.copy() for one in pictures]
    odd[3][60:80, 50:76] = 255 - odd[3][60:80, 50:76]
    noisy = [with_noise_outside(one, i) for i, one in enumerate(odd)]
    config = SMALL.with_changes(sizes="64,tile:64/2", roi=CORNERS)
    one, other = (
        Detector.study(images, config, ImageChecks(exclude=1, coverage=True)) for images in (odd, noisy)
    )
    assert one.suspects[0].name == other.suspects[0].name == "array 3"
    assert [suspect.score for suspect in one.suspects] == [suspect.score for suspect in other.suspects]
    assert one.coverage is not None and other.coverage is not None
    assert np.array_equal(one.coverage.quantiles, other.coverage.quantiles)
    assert_same_model(one.detector, Detector.fit([*odd[:3], *odd[4:]], config))


def test_each_image_may_have_its_own_region(pictures: list[np.ndarray], tmp_path: Path) -> None:
    masks, parts = tmp_path / "masks", tmp_path / "parts"
    masks.mkdir()
    parts.mkdir()
    for i, picture in enumerate(pictures):
        drawn = np.roll(inside(), 3 * i, axis=1)
        noise = np.random.default_rng(i).integers(0, 256, picture.shape).astype(np.uint8)
        Image.fromarray(np.where(drawn[:, :, None], picture, noise)).save(parts / f"{i}.png")
        Image.fromarray(drawn).save(masks / f"{i}.png")
    config = SMALL.with_changes(sizes="64,tile:64/2", roi=masks)
    detector = Detector.fit(parts, config)
    quiet = [np.where(np.roll(inside(), 3 * i, axis=1)[:, :, None], one, 0) for i, one in enumerate(pictures)]
    for i, picture in enumerate(quiet):
        Image.fromarray(picture.astype(np.uint8)).save(parts / f"{i}.png")
    assert_same_model(
        replace_hashes(Detector.fit(parts, config), detector), detector
    )  # what lies outside of its own region changes nothing
    first = detector.score(parts / "2.png")
    assert not first.map[~np.roll(inside(), 6, axis=1)].any()
    assert (
        detector.with_roi(np.roll(inside(), 6, axis=1)).score(quiet[2].astype(np.uint8)).score == first.score
    )
    assert pickle.loads(pickle.dumps(detector)).score(parts / "2.png").score == first.score
    with pytest.raises(ImageError, match="an array has no name"):
        detector.score(pictures[0])
    (masks / "5.png").unlink()
    with pytest.raises(UserError, match=r"no region of interest for .*5.png"):
        Detector.fit(parts, config)
    skipping = Detector.fit(parts, config, execution=Execution(skip_broken=True))
    assert skipping.model.n_learnt == N - 1


def replace_hashes(detector: Detector, other: Detector) -> Detector:
    return Detector(replace(detector.model, hashes=other.model.hashes))


def test_another_region_can_be_looked_at(pictures: list[np.ndarray]) -> None:
    detector = Detector.fit(pictures, SMALL)
    some = detector.with_roi([0, 0, 64, SIDE])
    assert some.runtime is detector.runtime
    assert not some.score(pictures[0]).map[64:].any() and detector.score(pictures[0]).map[64:].any()
    assert some.with_roi(None).score(pictures[0]).score == detector.score(pictures[0]).score
