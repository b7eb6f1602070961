"""Streamed pixel metrics against plain ones that keep every pixel, threshold and region."""

from __future__ import annotations

import math
import tracemalloc
from dataclasses import asdict

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from plain_pixel_metrics import exact_scores
from scipy.ndimage import gaussian_filter

from mhpatchcore.evaluation.metrics import FPR_LIMIT, PixelMetrics


def count(maps, masks):
    metrics = PixelMetrics()
    for anomaly_map, mask in zip(maps, masks, strict=True):
        metrics.update(anomaly_map, mask)
    return metrics


def assert_near_exact(maps, masks, tolerance=2e-5):
    result = count(maps, masks).result()
    for name, exact in exact_scores(maps, masks).items():
        assert abs(getattr(result, name) - exact) <= tolerance, name
    return result


def smooth_field(rng, shape, sigma):
    field = gaussian_filter(rng.standard_normal(shape), sigma, mode="wrap")
    return field / field.std()


def blobs(rng, shape, n_blobs):
    rows, columns = np.indices(shape)
    mask = np.zeros(shape, dtype=bool)
    for _ in range(n_blobs):
        radius = rng.uniform(1, 0.1 * min(shape))
        centre = rng.uniform(0, shape[0]), rng.uniform(0, shape[1])
        mask |= (rows - centre[0]) ** 2 + (columns - centre[1]) ** 2 < radius**2
    return mask


def realistic_set(seed, shape, n_images, transform=np.exp):
    """Smooth maps (H, W), raised and blurred around 0 to 4 defects; half of the images are normal."""
    rng = np.random.default_rng(seed)
    masks = [blobs(rng, shape, rng.integers(1, 5) if i % 2 else 0) for i in range(n_images)]
    fields = [smooth_field(rng, shape, 3) + gaussian_filter(3.0 * mask, 2) for mask in masks]
    return [transform(field).astype(np.float32) for field in fields], masks


REALISTIC = {
    "64x64": ((64, 64), 40, np.exp),
    "96x128": ((96, 128), 30, np.exp),
    "256x256": ((256, 256), 24, np.exp),
    "distances": ((128, 128), 24, lambda field: np.sqrt(20 + 3 * field.clip(-6))),
}


@pytest.mark.parametrize("case", REALISTIC)
def test_realistic_maps_agree_with_the_exact_values(case):
    shape, n_images, transform = REALISTIC[case]
    result = assert_near_exact(*realistic_set(1, shape, n_images, transform))
    assert 0.6 < result.aupro < 1  # the data are neither hopeless nor perfect
    assert result.n_images == n_images


ADVERSARIAL = {
    "signed": lambda field: field,
    "few distinct values": lambda field: np.round(field),
    "constant": lambda field: np.full_like(field, 3.7),
    "constant zero of both signs": lambda field: np.where(field > 0, 0.0, -0.0),
    "mostly zero": lambda field: field.clip(2) - 2,
    "tiny range": lambda field: 1000 + 0.1 / (1 + np.exp(-field)),
    "tiny numbers": lambda field: 1e-41 * np.exp(field),
    "huge range": lambda field: np.sign(field) * np.exp(12 * np.abs(field).clip(0, 7)),
    "infinite": lambda field: np.where(field > 3, np.inf, np.where(field < -3, -np.inf, field)),
}


@pytest.mark.parametrize("case", ADVERSARIAL)
def test_adversarial_scores_agree_with_the_exact_values(case):
    maps, masks = realistic_set(2, (96, 96), 20, ADVERSARIAL[case])
    assert_near_exact(maps, masks, tolerance=2e-4)


def test_tiny_ranges_and_ties_are_exact():
    for case in ("few distinct values", "constant", "tiny range"):
        assert_near_exact(*realistic_set(3, (64, 64), 6, ADVERSARIAL[case]), tolerance=1e-12)


def assert_equal_figures(a, b):
    assert asdict(a.result()) == pytest.approx(asdict(b.result()), abs=1e-11, nan_ok=True)


any_float32 = st.floats(width=32, allow_nan=False, allow_infinity=False)
few_values = st.sampled_from([-1.0, -0.0, 0.0, 1.0, 1.5])


@st.composite
def small_images(draw):
    """Up to 6 images of at most 6 x 6 pixels."""
    images = []
    for _ in range(draw(st.integers(1, 6))):
        height, width = draw(st.integers(1, 6)), draw(st.integers(1, 6))
        size = height * width
        values = draw(
            st.lists(draw(st.sampled_from([few_values, any_float32])), min_size=size, max_size=size)
        )
        defects = draw(st.lists(st.booleans(), min_size=size, max_size=size))
        images.append(
            (
                np.array(values, dtype=np.float32).reshape(height, width),
                np.array(defects).reshape(height, width),
            )
        )
    return images


@settings(deadline=None)
@given(small_images())
def test_small_images_agree_with_the_exact_values(images):
    maps, masks = zip(*images, strict=True)
    # scores that share their upper bits count as equal
    maps = [(m.view(np.int32) & ~0x1FFF).view(np.float32) for m in maps]
    if len(np.unique(np.concatenate([m.ravel() for m in masks]))) == 2:
        assert_near_exact(maps, masks, tolerance=1e-11)


@settings(deadline=None)
@given(small_images(), st.randoms(use_true_random=False))
def test_the_order_of_the_images_does_not_matter(images, random):
    shuffled = random.sample(images, len(images))
    assert_equal_figures(count(*zip(*images, strict=True)), count(*zip(*shuffled, strict=True)))


def test_every_region_weighs_the_same_whatever_its_size():
    mask = np.zeros((20, 20), dtype=bool)
    mask[:8, :8] = True
    mask[15, 15] = True
    mask[16, 16] = True  # touches only by its corner: the same region
    found_large = np.zeros(mask.shape, dtype=np.float32)
    found_large[:8, :8] = 1
    result = PixelMetrics().update(found_large, mask).result()
    assert result.n_regions == 2
    # Half of the regions at FPR 0; from there a straight line to (1, 1), the only other point.
    assert result.aupro == pytest.approx((0.5 + 0.5 + 0.5 * FPR_LIMIT) / 2)


@pytest.mark.parametrize("n_images", [0, 2])
@pytest.mark.parametrize("is_anomalous", [False, True])
def test_one_class_gives_nan(n_images, is_anomalous):
    maps = [np.arange(12, dtype=np.float32).reshape(3, 4)] * n_images
    result = count(maps, [np.full((3, 4), is_anomalous)] * n_images).result()
    assert all(math.isnan(figure) for figure in (result.auroc, result.average_precision, result.aupro))
    assert result.n_images == n_images


def test_unusable_maps_are_refused():
    with pytest.raises(ValueError, match="one size"):
        PixelMetrics().update(np.zeros((3, 4)), np.zeros((4, 3)))
    with pytest.raises(ValueError, match="one size"):
        PixelMetrics().update(np.zeros(3), np.zeros(3))
    with pytest.raises(ValueError, match="NaN"):
        PixelMetrics().update(np.full((3, 4), np.nan), np.zeros((3, 4)))


def test_memory_does_not_grow_with_the_images():
    maps, masks = realistic_set(9, (128, 128), 4)
    tracemalloc.start()
    try:
        metrics = count(maps, masks)
        after_few = tracemalloc.get_traced_memory()[0]
        for _ in range(50):
            for anomaly_map, mask in zip(maps, masks, strict=True):
                metrics.update(anomaly_map, mask)
        metrics.result()
        after_many, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert after_many - after_few < 100_000
    assert peak < 80e6
