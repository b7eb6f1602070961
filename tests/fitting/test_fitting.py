"""Fit, end to end on small vials: the same model however the work is done, and sound on awkward sets."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from sklearn.covariance import ledoit_wolf_shrinkage

from mhpatchcore.bank import CONSTRUCTORS
from mhpatchcore.config import Config
from mhpatchcore.demo.dataset import vial_image
from mhpatchcore.detector import Detector
from mhpatchcore.errors import ImageError, UserError
from mhpatchcore.fitting.extraction import Execution, mixed_chunks, stored_descriptors
from mhpatchcore.inputs.images import load_view
from mhpatchcore.metric import shrinkage
from mhpatchcore.metric.moments import Moments
from mhpatchcore.runtime.parallel import one_blas_thread
from mhpatchcore.scoring.rules import Scorer

SMALL = Config(size=96, K=300, m_c=64)
N = 20


@pytest.fixture(scope="module")
def pictures() -> list[np.ndarray]:
    return [vial_image(seed, pixels=96)[0] for seed in range(N)]


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
    """All patches (N, h·w, d) as the fit sees them."""
    views = [load_view(picture, SMALL.preprocessing)[0] for picture in pictures]
    return stored_descriptors(views, detector.backbone, SMALL).reshape(N, -1, detector.backbone.info.columns)


def model(detector: Detector) -> dict[str, np.ndarray]:
    return {
        "n": np.array(detector.moments.n),
        "mean": detector.moments.mean,
        "M2": detector.moments.M2,
        "A": detector.whitening.A,
        "centre": detector.whitening.mean,
        "raw": detector.bank_raw,
        "origin": detector.bank_origin,
        "scores": detector.calibration.scores,
        "peaks": detector.calibration.peaks,
    }


def assert_same_model(ours: Detector, theirs: Detector) -> None:
    """Bit for bit."""
    for (name, one), other in zip(model(ours).items(), model(theirs).values(), strict=True):
        assert one.dtype == other.dtype and one.tobytes() == other.tobytes(), name


@pytest.mark.parametrize(
    "execution",
    [
        Execution(workers=1, batch=3),
        Execution(workers=2, batch=8),
        Execution(workers=4, batch=1),
        Execution(workers=1, spool="none"),
        Execution(workers=4, batch=3, spool="none"),
    ],
    ids=lambda e: f"workers {e.workers}, batch {e.batch}, spool {e.spool}",
)
def test_how_the_work_is_done_changes_no_bit(folder: Path, detector: Detector, execution: Execution) -> None:
    assert_same_model(Detector.fit(folder, SMALL, execution=execution), detector)


@pytest.mark.parametrize("constructor", [name for name in CONSTRUCTORS if name != SMALL.constructor])
def test_every_constructor_fits_the_same_on_any_number_of_threads(folder: Path, constructor: str) -> None:
    config = SMALL.with_changes(constructor=constructor, chunk_images=3)
    alone, together = (Detector.fit(folder, config, execution=Execution(workers=n)) for n in (1, 4))
    assert 64 <= len(alone.bank_raw) <= 300
    assert np.isfinite(alone.threshold) and alone.threshold > 0
    assert_same_model(alone, together)


def test_arrays_and_files_give_the_same_model(pictures: list[np.ndarray], detector: Detector) -> None:
    assert_same_model(Detector.fit(pictures, SMALL), detector)


def test_the_order_of_a_list_of_files_does_not_matter(folder: Path, detector: Detector) -> None:
    files = [folder / f"{i:02d}.png" for i in np.random.default_rng(0).permutation(N)]
    anyhow = Detector.fit(files, SMALL)
    assert_same_model(anyhow, detector)
    assert [Path(name).name for name in anyhow.images] == list(detector.images)
    assert_same_model(Detector.fit([str(file) for file in files], SMALL), detector)


def test_unless_the_images_are_to_be_taken_as_they_come(folder: Path) -> None:
    files = sorted(folder.iterdir())
    forwards, backwards = (Detector.fit(some, SMALL, shuffle=False) for some in (files, files[::-1]))
    assert backwards.images == forwards.images[::-1]
    assert not np.array_equal(forwards.bank_raw, backwards.bank_raw)


def test_moments_are_those_of_all_patches(detector: Detector, descriptors: np.ndarray) -> None:
    whole = Moments.of(descriptors.reshape(-1, descriptors.shape[2]))
    assert detector.moments.n == whole.n == N * 144
    assert np.allclose(detector.moments.mean, whole.mean, rtol=1e-12)
    assert np.allclose(detector.moments.M2, whole.M2, rtol=1e-9, atol=1e-9 * np.abs(whole.M2).max())


def test_bank_rows_are_patches_at_their_origin(detector: Detector, descriptors: np.ndarray) -> None:
    image, row, column = detector.bank_origin.T
    assert len(detector.bank_raw) == 300
    assert np.array_equal(detector.bank_raw, descriptors[image, row * 12 + column])


def test_each_image_is_calibrated_without_its_own_rows(detector: Detector, descriptors: np.ndarray) -> None:
    with one_blas_thread():
        scorer = Scorer(detector.whitening(detector.bank_raw), (12, 12), SMALL)
        scored = [
            scorer(detector.whitening(rows), among=detector.bank_origin[:, 0] != i)
            for i, rows in enumerate(descriptors)
        ]
    assert detector.calibration.method == "cross-image"
    assert np.allclose(detector.calibration.scores, sorted(one.score for one in scored), rtol=1e-3)
    assert np.allclose(detector.calibration.peaks, sorted(one.peak for one in scored), rtol=1e-3)


def test_the_bank_is_made_from_mixed_images() -> None:
    chunks = [tuple(range(start, min(start + 8, 43))) for start in range(0, 43, 8)]
    mixed = mixed_chunks(chunks, Config(chunk_images=8))
    assert [len(chunk) for chunk in mixed] == [8, 8, 8, 8, 8, 3]
    assert sorted(image for chunk in mixed for image in chunk) == list(range(43))
    assert all(max(chunk) - min(chunk) > 8 for chunk in mixed[:5])
    assert mixed == mixed_chunks([(image,) for image in range(43)], Config(chunk_images=8))
    assert mixed != mixed_chunks(chunks, Config(chunk_images=8, seed=1))
    assert mixed_chunks(chunks, Config(shuffle=False)) == chunks


def test_a_fit_reads_its_bank_from_them(folder: Path, detector: Detector) -> None:
    in_order = Detector.fit(folder, SMALL, shuffle=False)
    assert not np.array_equal(in_order.bank_origin, detector.bank_origin)
    assert np.array_equal(in_order.moments.M2, detector.moments.M2)


def test_held_out_images_are_not_learnt_from(folder: Path, descriptors: np.ndarray) -> None:
    detector = Detector.fit(folder, SMALL.with_changes(calibration="held-out"))
    assert detector.calibration.method == "held-out"
    assert detector.calibration.n == 4
    assert detector.moments.n == (N - 4) * 144
    used = set(detector.bank_origin[:, 0].tolist())
    image, row, column = detector.bank_origin.T
    assert np.array_equal(detector.bank_raw, descriptors[image, row * 12 + column])
    unused = [folder / f"{i:02d}.png" for i in range(N) if i not in used]
    scores = np.array([result.score for result in detector.score(unused)])
    for score in detector.calibration.scores:
        assert np.abs(scores / score - 1).min() < 0.02  # the calibration scores are those of images left out


@pytest.mark.parametrize("policy", ["oas", "rblw", "ledoit-wolf", "none", 0.0, 0.5])
def test_every_shrinkage_policy_fits(folder: Path, descriptors: np.ndarray, policy: str | float) -> None:
    detector = Detector.fit(folder, SMALL.with_changes(shrinkage=policy, reduction="none"))
    looks = descriptors[..., : detector.backbone.info.dim]
    u = looks.reshape(-1, looks.shape[2]).astype(np.float64)
    eigenvalues = np.linalg.eigvalsh(np.cov(u.T))
    wanted = {
        "oas": shrinkage.oas(eigenvalues, len(u)),
        "rblw": shrinkage.rblw(eigenvalues, len(u)),
        "ledoit-wolf": ledoit_wolf_shrinkage(u),
        "none": 0.0,
    }.get(str(policy), policy)
    # scikit-learn's Ledoit–Wolf divides by n where the paper's covariance divides by n − 1
    tolerance = 2e-3 if policy == "ledoit-wolf" else 1e-6
    assert detector.whitening.lam == pytest.approx(wanted, rel=tolerance)
    assert np.isfinite(detector.score(folder / "00.png").score)


@pytest.mark.parametrize("changes", [{"chunk_images": 8}, {"chunk_images": 1}])
def test_ipca_gives_the_distances_of_pca(folder: Path, detector: Detector, changes: dict[str, int]) -> None:
    ipca = Detector.fit(folder, SMALL.with_changes(reduction="ipca", **changes))
    z, other = (one.whitening(detector.bank_raw[:50]) for one in (detector, ipca))
    assert z.shape == other.shape
    distances, others = (((rows[:, None] - rows[None]) ** 2).sum(axis=2) for rows in (z, other))
    assert np.allclose(distances, others, rtol=1e-3, atol=1e-3)


def test_ipca_finds_all_directions_also_from_chunks_smaller_than_their_number(folder: Path) -> None:
    config = SMALL.with_changes(reduction="ipca", variance=None, chunk_images=1)
    detector = Detector.fit(folder, config)
    assert detector.backbone.patches_per_image < detector.whitening.k == detector.backbone.info.dim


@pytest.mark.parametrize("n", [1, 2, 5])
@pytest.mark.parametrize("constructor", ["always-full", "kmeans"])
def test_few_images(pictures: list[np.ndarray], n: int, constructor: str) -> None:
    detector = Detector.fit(pictures[:n], SMALL.with_changes(constructor=constructor))
    result = detector.score(pictures[-1])
    assert np.isfinite(result.score) and result.score > 0
    if n == 1:  # no image is left to compare it with
        assert detector.threshold == float("inf") and result.p_value == 1.0 and not result.is_anomalous
        assert detector.calibration.supported_rate == 1.0
    else:  # an image compared with a bank that has learnt it would score next to nothing
        assert 1 < detector.threshold < float("inf")


def test_defects_score_higher(detector: Detector) -> None:
    good = detector.score([vial_image(100 + i, pixels=96)[0] for i in range(6)])
    bad = detector.score([vial_image(100 + i, "low_fill", pixels=96)[0] for i in range(6)])
    assert np.median([result.score for result in bad]) > max(result.score for result in good)


def test_a_broken_image_is_named(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "torn.png").write_bytes((folder / "00.png").read_bytes()[:500])
    with pytest.raises(ImageError, match=r"torn\.png"):
        Detector.fit([folder / "01.png", tmp_path / "torn.png"], SMALL)


def copied(folder: Path, place: Path, torn: tuple[int, ...]) -> list[Path]:
    """The first ten images at another place, some of them torn."""
    paths = [place / f"{i:02d}.png" for i in range(10)]
    for i, path in enumerate(paths):
        path.write_bytes(b"torn" if i in torn else (folder / path.name).read_bytes())
    return paths


@pytest.mark.parametrize(
    ("constructor", "spool"), [*((name, "disk") for name in CONSTRUCTORS), ("always-full", "none")]
)
def test_broken_images_can_be_left_out(folder: Path, tmp_path: Path, constructor: str, spool: str) -> None:
    # two in a row and one alone, so that one chunk has no image left and one has a single one
    paths = copied(folder, tmp_path, torn=(4, 5, 7))
    warnings: list[str] = []
    execution = Execution(skip_broken=True, warn=warnings.append, spool=spool)
    config = SMALL.with_changes(constructor=constructor, chunk_images=2)
    detector = Detector.fit(paths, config, execution=execution)
    assert sorted(warning.partition(f"{tmp_path.name}/")[2][:6] for warning in warnings) == [
        "04.png",
        "05.png",
        "07.png",
    ]
    assert not {4, 5, 7} & set(detector.bank_origin[:, 0].tolist())
    assert np.isfinite(detector.threshold)


def test_broken_held_out_images_leave_no_threshold(folder: Path, tmp_path: Path) -> None:
    # the two that are held out of ten, being evenly spread
    paths = copied(folder, tmp_path, torn=(2, 7))
    config = SMALL.with_changes(calibration="held-out")
    detector = Detector.fit(paths, config, execution=Execution(skip_broken=True))
    assert (detector.calibration.n, detector.threshold) == (0, float("inf"))
    assert detector.moments.n == 8 * 144


def test_nothing_readable_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "a.png").write_bytes(b"torn")
    with pytest.raises(UserError, match="none of the images could be read"):
        Detector.fit(tmp_path, SMALL, execution=Execution(skip_broken=True))
    with pytest.raises(UserError, match="no images"):
        Detector.fit([], SMALL)


def test_progress_counts_up_to_the_total(pictures: list[np.ndarray]) -> None:
    heard: list[tuple[str, int, int]] = []
    Detector.fit(pictures, SMALL, execution=Execution(progress=lambda *told: heard.append(told)))
    for phase in {"extract", "calibrate"}:
        counts = [(done, total) for told, done, total in heard if told == phase]
        n = len(pictures)
        assert counts == [(min(done * SMALL.chunk_images, n), n) for done in range(len(counts))]
        assert counts[-1] == (n, n)
