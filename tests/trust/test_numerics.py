"""Any data, any settings, any split: a fit gives finite numbers or a line that says why not; what is promised holds.

The network is that of two convolutions in `benchmarks/stress/tiny.py`, so that a fit takes a moment.
"""

from __future__ import annotations

import itertools
import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from benchmarks.stress import tiny
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from PIL import Image
from same_model import assert_same_model

from mhpatchcore import Config, Detector, Execution, UserError

SIDE = 64
PIXELS: dict[str, Callable[[int], np.ndarray]] = {
    "black": lambda seed: np.zeros((SIDE, SIDE, 3), np.uint8),
    "white": lambda seed: np.full((SIDE, SIDE, 3), 255, np.uint8),
    "one colour": lambda seed: np.full((SIDE, SIDE, 3), (seed % 250, 7, 9), np.uint8),
    "one bright pixel": lambda seed: np.eye(SIDE, dtype=np.uint8)[:, :, None].repeat(3, 2) * np.uint8(200),
    "two halves": lambda seed: (
        np.repeat(np.uint8([0, 255]), SIDE // 2)[:, None, None].repeat(SIDE, 1).repeat(3, 2)
    ),
    "noise": lambda seed: np.random.default_rng(seed).integers(0, 256, (SIDE, SIDE, 3)).astype(np.uint8),
    "waves": lambda seed: tiny.pictures(seed, 1, SIDE)[0],
    "a single pixel": lambda seed: np.full((1, 1, 3), seed % 256, np.uint8),
    "gray": lambda seed: tiny.pictures(seed, 1, SIDE)[0][:, :, 0],
    "long": lambda seed: tiny.pictures(seed, 1, 200)[0][:20],
}
IMAGES = st.builds(lambda kind, seed: PIXELS[kind](seed), st.sampled_from(sorted(PIXELS)), st.integers(0, 3))
SETTINGS = st.fixed_dictionaries(
    {},
    optional={
        "constructor": st.sampled_from(["always-full", "tree", "offline-greedy", "kmeans", "geores"]),
        "metric": st.sampled_from(["mahalanobis", "euclidean"]),
        "reduction": st.sampled_from(["pca", "ipca", "none"]),
        "components": st.sampled_from([1, 3, 100]),
        "variance": st.sampled_from([0.5, 1.0]),
        "shrinkage": st.sampled_from([0.0, 0.07, 1.0, "oas", "rblw", "ledoit-wolf", "none"]),
        "floor": st.sampled_from([0.0, 1e-3]),
        "score": st.sampled_from(["max", "reweighted", "map-max"]),
        "local": st.sampled_from([1, 2, 9]),
        "neighbours": st.sampled_from([2, 100]),
        "calibration": st.sampled_from(["cross-image", "held-out", "none"]),
        "K": st.sampled_from([2, 3, 1000]),
        "m_c": st.sampled_from([1, 7]),
        "chunk_images": st.sampled_from([1, 2]),
        "sigma": st.sampled_from([0.0, 1000.0]),
        "sizes": st.sampled_from(["32", "64, 32", "64/2", "32x96"]),
        "seed": st.integers(0, 2),
    },
)


def examples(n: int) -> settings:
    return settings(
        max_examples=n, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
    )


@cache
def network() -> Path:
    return tiny.write_network(Path(tempfile.mkdtemp(prefix="mhpatchcore-test-")))


def small(**changes: Any) -> Config:
    return Config(backbone=str(network()), sizes=SIDE, K=50, m_c=16, augment="none").with_changes(**changes)  # type: ignore[arg-type]


def check_sound(detector: Detector) -> None:
    """All numbers are finite, results lawful, and a saved model gives the same ones."""
    for scale in detector.scales:
        for array in (scale.moments.M2, scale.whitening.A, scale.raw, scale.weights, scale.variances):
            assert np.isfinite(array).all()
    with tempfile.TemporaryDirectory() as folder:
        detector.save(Path(folder) / "part.mhpc")
        loaded = Detector.load(Path(folder) / "part.mhpc")
    for kind in ("black", "waves", "noise", "long"):
        result = detector.score(PIXELS[kind](9))
        assert np.isfinite(result.score) and result.score >= 0 and 0 < result.p_value <= 1
        assert np.isfinite(result.map).all() and not np.isnan(result.threshold)
        assert loaded.score(PIXELS[kind](9)).score == result.score


@examples(60)
@given(images=st.lists(IMAGES, min_size=1, max_size=5), changes=SETTINGS)
def test_any_images_and_settings_give_a_sound_model_or_one_line(
    images: list[np.ndarray], changes: dict[str, Any]
) -> None:
    try:
        detector = Detector.fit(images, small(**changes))
    except UserError as error:
        assert "\n" not in str(error)
        return
    check_sound(detector)


DEGENERATE: dict[str, list[np.ndarray]] = {
    "constant images": [PIXELS["one colour"](seed) for seed in range(4)],
    "one image": [PIXELS["waves"](0)],
    "two identical images": [PIXELS["waves"](0)] * 2,
    "one black image": [PIXELS["black"](0)],
    "nothing but copies of a constant": [PIXELS["white"](0)] * 5,
    "single pixels": [PIXELS["a single pixel"](seed) for seed in range(3)],
}


@pytest.mark.parametrize("images", DEGENERATE.values(), ids=DEGENERATE)
@pytest.mark.parametrize(
    "changes", [{}, {"K": 1000}, {"sizes": 32, "K": 1000, "reduction": "none", "shrinkage": 0.0}]
)
def test_degenerate_data_is_learnt(images: list[np.ndarray], changes: dict[str, Any]) -> None:
    """Also with fewer patches than rows (K), and with fewer patches than dimensions would take."""
    detector = Detector.fit(images, small(**changes))
    check_sound(detector)
    assert detector.score(images[0]).verdict != "rejected"


def test_degenerate_data_with_the_embedded_network() -> None:
    """It has 192 dimensions, and one view of 64 × 64 pixels has 64 patches."""
    for images in DEGENERATE.values():
        check_sound(Detector.fit(images, sizes=64, K=50))


@examples(8)
@given(order=st.permutations(range(5)))
def test_files_in_any_order_give_the_same_model(order: list[int]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        paths = [Path(folder) / f"{i}.png" for i in range(5)]
        for i, path in enumerate(paths):
            Image.fromarray(PIXELS["waves"](i)).save(path)
        config = small(chunk_images=2)
        assert_same_model(Detector.fit([paths[i] for i in order], config), Detector.fit(folder, config))


@examples(10)
@given(workers=st.integers(1, 4), batch=st.integers(1, 5), n=st.integers(1, 7), changes=SETTINGS)
def test_any_number_of_workers_and_any_batch_gives_the_same_model(
    workers: int, batch: int, n: int, changes: dict[str, Any]
) -> None:
    images = [PIXELS["waves"](seed) for seed in range(n)]
    execution = Execution(workers=workers, batch=batch)
    try:
        alone = Detector.fit(images, small(**changes), execution=Execution(workers=1))
    except UserError:
        with pytest.raises(UserError):
            Detector.fit(images, small(**changes), execution=execution)
        return
    assert_same_model(Detector.fit(images, small(**changes), execution=execution), alone)


@examples(10)
@given(n=st.integers(2, 8), data=st.data())
def test_any_split_into_a_fit_and_updates_has_the_moments_of_one_fit(n: int, data: st.DataObject) -> None:
    images = [PIXELS["waves"](seed) for seed in range(n)]
    cuts = sorted(data.draw(st.sets(st.integers(1, n - 1), min_size=1, max_size=3)))
    pieces = [images[a:b] for a, b in itertools.pairwise([0, *cuts, n])]
    grown = Detector.fit(pieces[0], small())
    for piece in pieces[1:]:
        grown = grown.updated(piece)
    whole = Detector.fit(images, small())
    ours, theirs = grown.scales[0].moments, whole.scales[0].moments
    assert ours.n == theirs.n
    assert np.allclose(ours.mean, theirs.mean, rtol=1e-12) and np.allclose(
        ours.M2, theirs.M2, rtol=1e-9, atol=1e-9
    )
    check_sound(grown)


@examples(6)
@given(order=st.permutations(range(3)))
def test_models_merge_to_the_same_in_any_order(order: list[int]) -> None:
    models = [Detector.fit([PIXELS["noise"](9 * i + j) for j in range(3)], small()) for i in range(3)]
    in_order = models[0].merged(*models[1:])
    first, *others = (models[i] for i in order)
    assert_same_model(first.merged(*others), in_order)
