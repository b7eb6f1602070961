"""Fit, end to end on small vials: the same model however the work is done, and sound on awkward sets."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from process_executor import Processes
from same_model import assert_same_model
from sklearn.covariance import ledoit_wolf_shrinkage
from small_detector import vials
from threadpoolctl import threadpool_info

from mhpatchcore.config import CHOICES, Config
from mhpatchcore.demo.dataset import vial_image
from mhpatchcore.detector import Detector
from mhpatchcore.errors import ImageError, UserError
from mhpatchcore.fitting.execution import Execution, Threads
from mhpatchcore.inputs.loading import load_views
from mhpatchcore.metric import shrinkage
from mhpatchcore.metric.moments import Moments
from mhpatchcore.model.file import to_bytes

SMALL = Config(augment="none", sizes=96, K=300, m_c=64)
TWO_SCALES = Config(augment="none", sizes="96,128", K=200, m_c=64, layers=("block4",))
N, CELLS = 20, 144


@pytest.fixture(scope="module", autouse=True)
def fixed_time() -> Iterator[None]:
    """So that equal models are equal files."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SOURCE_DATE_EPOCH", "1800000000")
        yield


@pytest.fixture(scope="module")
def pictures() -> list[np.ndarray]:
    return vials(0, N, pixels=96)


@pytest.fixture(scope="module")
def folder(pictures: list[np.ndarray], tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("good")
    for i, picture in enumerate(pictures):
        Image.fromarray(picture).save(place / f"{i:02d}.png")
    return place


@pytest.fixture(scope="module")
def detector(folder: Path) -> Detector:
    return Detector.fit(folder, SMALL, execution=Execution(workers=1))


@pytest.fixture(scope="module")
def descriptors(pictures: list[np.ndarray], detector: Detector) -> np.ndarray:
    """All patches (N, h·w, d), layers aligned."""
    (scale,) = detector.scales
    views = [load_views(picture, detector.config.views)[0][0] for picture in pictures]
    return np.stack([scale.backbone.descriptors(view).reshape(CELLS, -1) for view in views])


def recipe(constructor: str, **changes: object) -> Config:
    """Centroids come from no single image, so a bank of them is calibrated by held-out ones."""
    calibration = "held-out" if constructor == "kmeans" else "cross-image"
    return SMALL.with_changes(constructor=constructor, calibration=calibration, **changes)


@pytest.mark.parametrize(
    "execution",
    [
        Execution(workers=1, batch=3),
        Execution(executor=Threads(2), batch=8),
        Execution(workers=4, batch=1),
        Execution(executor=Processes(2), batch=2),
    ],
    ids=["batches", "two threads", "four threads", "two processes"],
)
def test_how_the_work_is_done_changes_no_byte_of_the_file(
    folder: Path, detector: Detector, execution: Execution
) -> None:
    assert to_bytes(Detector.fit(folder, SMALL, execution=execution).model) == to_bytes(detector.model)


@pytest.mark.parametrize(
    "constructor", [name for name in CHOICES["constructor"] if name != SMALL.constructor]
)
def test_every_constructor_fits_the_same_on_any_number_of_threads(folder: Path, constructor: str) -> None:
    config = recipe(constructor, chunk_images=3)
    alone, together = (Detector.fit(folder, config, execution=Execution(workers=n)) for n in (1, 4))
    assert 64 <= alone.model.rows <= 300
    assert np.isfinite(alone.threshold) and alone.threshold > 0
    assert to_bytes(alone.model) == to_bytes(together.model)


def test_two_scales_are_fitted_the_same_on_any_number_of_threads(folder: Path) -> None:
    alone, together = (Detector.fit(folder, TWO_SCALES, execution=Execution(workers=n)) for n in (1, 3))
    assert [scale.size for scale in alone.scales] == [(96, 96), (128, 128)]
    assert to_bytes(alone.model) == to_bytes(together.model)


def blas_threads() -> list[int]:
    return [one["num_threads"] for one in threadpool_info() if one["user_api"] == "blas"]


def test_two_fits_at_the_same_time(folder: Path, detector: Detector) -> None:
    before, ready = blas_threads(), threading.Barrier(2)
    other = Detector.fit(folder, SMALL.with_changes(K=250), execution=Execution(workers=1))

    def fit(K: int) -> bytes:
        ready.wait()
        return to_bytes(Detector.fit(folder, SMALL.with_changes(K=K), execution=Execution(workers=2)).model)

    with ThreadPoolExecutor(2) as pool:  # whose threads outlive the fits
        ours, theirs = pool.map(fit, (300, 250))
        assert blas_threads() == before
    assert ours == to_bytes(detector.model) and theirs == to_bytes(other.model)


def test_blas_is_free_again_though_the_last_to_leave_was_not_the_first_to_come(folder: Path) -> None:
    before, entered, left = blas_threads(), threading.Event(), threading.Event()

    def first() -> None:
        Detector.fit(folder, SMALL, execution=Execution(progress=lambda *_: entered.set()))
        left.set()

    def second() -> None:
        def wait(phase: str, done: int, total: int) -> None:
            if phase == "calibrate":
                assert left.wait(60)

        assert entered.wait(60)
        Detector.fit(folder, SMALL, execution=Execution(progress=wait))

    with ThreadPoolExecutor(2) as pool:  # whose threads outlive the fits
        for future in [pool.submit(first), pool.submit(second)]:
            future.result()
        assert blas_threads() == before


def test_a_fit_beside_scoring(folder: Path, detector: Detector) -> None:
    before, images = blas_threads(), sorted(folder.iterdir())[:6]
    alone = [result.score for result in detector.score(images)]
    maps = [result.map for result in detector.score(images)]
    done, found = threading.Event(), []

    def score() -> None:
        while not done.is_set():
            fresh = Detector(detector.model)  # makes its graphs and sessions beside the fit
            found.append(fresh.score(images))

    with ThreadPoolExecutor(1) as pool:
        scoring = pool.submit(score)
        fitted = Detector.fit(folder, SMALL, execution=Execution(workers=2))
        done.set()
        scoring.result()
    assert to_bytes(fitted.model) == to_bytes(detector.model) and blas_threads() == before
    assert found
    for results in found:
        assert [result.score for result in results] == alone
        assert all(np.array_equal(result.map, heat) for result, heat in zip(results, maps, strict=True))


def test_blas_is_free_again_after_a_fit_that_failed(tmp_path: Path) -> None:
    before = blas_threads()
    (tmp_path / "a.png").write_bytes(b"torn")
    with pytest.raises(ImageError):
        Detector.fit(tmp_path, SMALL)
    assert blas_threads() == before


def test_arrays_and_files_give_the_same_model(pictures: list[np.ndarray], detector: Detector) -> None:
    assert_same_model(Detector.fit(pictures, SMALL), detector)


def test_the_order_of_a_list_of_files_does_not_matter(folder: Path, detector: Detector) -> None:
    files = [folder / f"{i:02d}.png" for i in np.random.default_rng(0).permutation(N)]
    anyhow = Detector.fit(files, SMALL)
    assert_same_model(anyhow, detector)
    assert [Path(name).name for name in anyhow.model.images] == list(detector.model.images)
    assert_same_model(Detector.fit([str(file) for file in files], SMALL), detector)


def test_unless_the_images_are_to_be_taken_as_they_come(folder: Path) -> None:
    files, config = sorted(folder.iterdir()), SMALL.with_changes(shuffle=False)
    forwards, backwards = (Detector.fit(some, config) for some in (files, files[::-1]))
    assert backwards.model.images == forwards.model.images[::-1]
    assert not np.array_equal(forwards.scales[0].raw, backwards.scales[0].raw)


def test_moments_are_those_of_all_patches(detector: Detector, descriptors: np.ndarray) -> None:
    whole, moments = Moments.of(descriptors.reshape(-1, descriptors.shape[2])), detector.scales[0].moments
    assert moments.n == whole.n == N * CELLS
    assert np.allclose(moments.mean, whole.mean, rtol=1e-6)
    assert np.allclose(moments.M2, whole.M2, rtol=1e-5, atol=1e-5 * np.abs(whole.M2).max())


def test_bank_rows_are_patches_at_their_origin(detector: Detector, descriptors: np.ndarray) -> None:
    (scale,) = detector.scales
    image, view, row, column = scale.origin.T
    assert len(scale.raw) == 300 and not view.any()
    assert np.array_equal(scale.raw, descriptors[image, row * 12 + column].astype(np.float16))


def test_a_fit_makes_its_bank_of_mixed_images(folder: Path, detector: Detector) -> None:
    in_order = Detector.fit(folder, SMALL.with_changes(shuffle=False))
    assert not np.array_equal(in_order.scales[0].origin, detector.scales[0].origin)
    assert np.array_equal(in_order.scales[0].moments.M2, detector.scales[0].moments.M2)


@pytest.mark.parametrize(("policy", "jitters"), [("none", True), (0.0, False)])
def test_without_shrinkage_jitter_acts_alone_and_without_a_policy_the_floor(
    policy: str | float, jitters: bool
) -> None:
    # fewer patches than dimensions: the covariance is singular
    config = SMALL.with_changes(sizes=32, shrinkage=policy, reduction="none", calibration="none")
    whitening = Detector.fit(vials(0, 2), config).scales[0].whitening
    assert (whitening.lam, whitening.jitter > 0) == (0.0, jitters)


@pytest.mark.parametrize("policy", ["oas", "rblw", "ledoit-wolf", "none", 0.0, 0.5])
def test_every_shrinkage_policy_fits(folder: Path, descriptors: np.ndarray, policy: str | float) -> None:
    detector = Detector.fit(folder, SMALL.with_changes(shrinkage=policy, reduction="none"))
    u = descriptors.reshape(-1, descriptors.shape[2]).astype(np.float64)
    eigenvalues = np.linalg.eigvalsh(np.cov(u.T))
    wanted = {
        "oas": shrinkage.oas(eigenvalues, len(u)),
        "rblw": shrinkage.rblw(eigenvalues, len(u)),
        "ledoit-wolf": ledoit_wolf_shrinkage(u),
        "none": 0.0,
    }.get(str(policy), policy)
    # scikit-learn's Ledoit–Wolf divides by n where the paper's covariance divides by n − 1
    tolerance = 2e-3 if policy == "ledoit-wolf" else 1e-5
    assert detector.scales[0].whitening.lam == pytest.approx(wanted, rel=tolerance)
    assert np.isfinite(detector.score(folder / "00.png").score)


@pytest.mark.parametrize("changes", [{"chunk_images": 8}, {"chunk_images": 1}])
def test_ipca_gives_the_distances_of_pca(folder: Path, detector: Detector, changes: dict[str, int]) -> None:
    ipca = Detector.fit(folder, SMALL.with_changes(reduction="ipca", **changes))
    z, other = (one.scales[0].whitening(detector.scales[0].raw[:50]) for one in (detector, ipca))
    assert z.shape == other.shape
    distances, others = (((rows[:, None] - rows[None]) ** 2).sum(axis=2) for rows in (z, other))
    assert np.allclose(distances, others, rtol=1e-3, atol=1e-3)


def test_ipca_finds_all_directions_also_from_chunks_smaller_than_their_number(folder: Path) -> None:
    config = SMALL.with_changes(reduction="ipca", variance=None, chunk_images=1)
    (scale,) = Detector.fit(folder, config).scales
    assert scale.backbone.info.patches < scale.whitening.k == scale.backbone.info.dim


@pytest.mark.parametrize("n", [1, 2, 5])
@pytest.mark.parametrize("constructor", ["always-full", "kmeans"])
def test_few_images(pictures: list[np.ndarray], n: int, constructor: str) -> None:
    detector = Detector.fit(pictures[:n], recipe(constructor))
    result = detector.score(pictures[-1])
    assert np.isfinite(result.score) and result.score > 0
    if n == 1:  # no image is left to compare it with
        assert detector.threshold == float("inf") and result.p_value == 1.0 and not result.is_rejected
        assert detector.calibration.expected_rate == 1.0
    else:  # an image compared with a bank that has learnt it would score next to nothing
        assert 1 < detector.threshold < float("inf")


def test_images_that_are_all_alike_and_constant() -> None:
    grey = [np.full((64, 64, 3), 128, np.uint8)] * 5
    detector = Detector.fit(grey, SMALL)
    assert 1 <= detector.model.rows <= CELLS
    assert np.isfinite(detector.score(vials(0, 1)[0]).score)


def test_defects_score_higher(detector: Detector) -> None:
    good = detector.score(vials(100, 6, pixels=96))
    bad = detector.score([vial_image(100 + i, "low_fill", pixels=96)[0] for i in range(6)])
    assert np.median([result.score for result in bad]) > max(result.score for result in good)


def test_progress_counts_up_to_the_total(pictures: list[np.ndarray]) -> None:
    heard: list[tuple[str, int, int]] = []
    Detector.fit(pictures, SMALL, execution=Execution(progress=lambda *told: heard.append(told)))
    n = len(pictures)
    for phase in ("extract", "bank", "calibrate"):
        counts = [(done, total) for told, done, total in heard if told == phase]
        assert counts[0] == (0, n) and counts[-1] == (n, n)
        assert counts == sorted(counts) and {total for _, total in counts} == {n}
    extracted = [done for told, done, _ in heard if told == "extract"]
    assert extracted == [0, 8, 16, 20]  # chunk by chunk


def test_no_images_are_an_error() -> None:
    with pytest.raises(UserError, match="no images"):
        Detector.fit([], SMALL)
