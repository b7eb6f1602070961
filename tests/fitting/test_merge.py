"""Merging: one model of several, in any order; what does not fit together is named."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from small_detector import vials, with_changes

from mhpatchcore import Config, Detector, UserError
from mhpatchcore.demo.dataset import vial_image
from mhpatchcore.fitting.changing import merged
from mhpatchcore.model.file import to_bytes

SMALL = Config(augment="none", sizes=96, K=300, m_c=64)


@pytest.fixture(scope="module", autouse=True)
def fixed_time() -> Iterator[None]:
    """So that equal models are equal files."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SOURCE_DATE_EPOCH", "1800000000")
        yield


def pictures(first: int, n: int) -> list[np.ndarray]:
    return vials(first, n, pixels=96)


@pytest.fixture(scope="module")
def models() -> list[Detector]:
    return [Detector.fit(pictures(first, n), SMALL) for first, n in ((0, 10), (10, 10), (20, 6))]


@pytest.mark.parametrize("constructor", ["always-full", "tree", "geores", "offline-greedy"])
def test_order_does_not_matter(constructor: str) -> None:
    config = SMALL.with_changes(constructor=constructor, chunk_images=3)
    a, b = Detector.fit(pictures(0, 8), config), Detector.fit(pictures(8, 8), config)
    assert to_bytes(a.merged(b).model) == to_bytes(b.merged(a).model)


def test_a_merged_model_is_one_of_all_images(models: list[Detector]) -> None:
    a, b, c = models
    merged = a.merged(b, c)
    everything = Detector.fit(pictures(0, 26), SMALL)
    (ours,), (theirs,) = merged.scales, everything.scales
    assert ours.moments.n == theirs.moments.n
    covariance = theirs.moments.covariance
    assert np.allclose(ours.moments.covariance, covariance, rtol=0, atol=1e-12 * np.abs(covariance).max())
    assert len(merged.model.images) == 26 and len(ours.raw) == SMALL.K
    sources = [(ours.origin[:, 0] // 10 == i).sum() for i in range(3)]
    assert min(sources) > 30
    assert sorted(one.image for one in merged.calibration.deciding) == list(range(26))
    assert merged.threshold == pytest.approx(everything.threshold, rel=0.3)
    good = [result.score for result in merged.score(pictures(100, 5))]
    bad = [
        result.score for result in merged.score([vial_image(i, "low_fill", pixels=96)[0] for i in range(5)])
    ]
    assert np.median(bad) > max(good)


def test_rows_find_their_images_under_new_numbers(models: list[Detector]) -> None:
    merged = models[0].merged(*models[1:])
    number = {hash_: i for i, hash_ in enumerate(merged.model.hashes)}
    known = {
        row.tobytes(): (number[one.model.hashes[origin[0]]], *origin[1:])
        for one in models
        for row, origin in zip(one.scales[0].raw, one.scales[0].origin.tolist(), strict=True)
    }
    (scale,) = merged.scales
    for row, origin in zip(scale.raw, scale.origin.tolist(), strict=True):
        assert known[row.tobytes()] == tuple(origin)


def test_several_scales_are_merged(tmp_path: Path) -> None:
    config = SMALL.with_changes(sizes="64,96", layers=("block4",))
    a, b = Detector.fit(pictures(0, 6), config), Detector.fit(pictures(6, 4), config)
    merged = a.merged(b)
    assert to_bytes(merged.model) == to_bytes(b.merged(a).model)
    assert [scale.moments.n for scale in merged.scales] == [10 * 64, 10 * 144]
    assert merged.calibration.n == 10 and np.isfinite(merged.threshold)
    merged.save(tmp_path / "part.mhpc")
    picture = pictures(50, 1)[0]
    assert Detector.load(tmp_path / "part.mhpc").score(picture).score == merged.score(picture).score


def test_small_models_lose_no_patch() -> None:
    config = SMALL.with_changes(K=1000)
    a, b = Detector.fit(pictures(0, 2), config), Detector.fit(pictures(2, 2), config)
    patches = {row.tobytes() for one in (a, b) for row in one.scales[0].raw}
    assert {row.tobytes() for row in a.merged(b).scales[0].raw} == patches
    assert {row.tobytes() for row in a.updated(pictures(2, 2)).scales[0].raw} == patches


def test_image_names_stay_apart_and_the_history_names_all(models: list[Detector]) -> None:
    a, b, _ = models
    merged = a.merged(b)
    assert len(set(merged.model.images)) == 20
    assert [event.what for event in merged.history] == ["fit", "fit", "merge"]
    assert (merged.history[-1].total, merged.history[-1].source) == (20, "model 1, model 2")


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"K": 200}, "K is 300 in the one and 200 in the other"),
        ({"sizes": 64}, "backbone's height is 96 in the one and 64"),
        ({"sizes": "96,64"}, "sizes is 96 in the one and 96, 64 in the other"),
        ({"layers": ("block4",)}, "backbone's layers"),
        ({"metric": "euclidean"}, "metric is mahalanobis"),
        ({"local": 1}, "local is 9 in the one and 1"),
        ({"resize": 96}, "resize is None"),
        ({"false_alarm": 0.2}, "false_alarm.*calibrate one of them"),
        ({"constructor": "tree"}, "constructor is always-full"),
    ],
)
def test_what_does_not_fit_together_is_named(
    models: list[Detector], changes: dict[str, Any], words: str
) -> None:
    other = Detector.fit(pictures(30, 4), SMALL.with_changes(**changes))
    with pytest.raises(UserError, match=f"cannot be merged: .*{words}"):
        models[0].merged(other)


def test_another_graph_is_refused(models: list[Detector]) -> None:
    a, b, _ = models
    (scale,) = b.scales
    network = replace(scale.backbone, graph=scale.backbone.graph + b"\0")
    other = with_changes(b, scales=(replace(scale, backbone=network),))
    with pytest.raises(UserError, match="backbone's graph"):
        a.merged(other)


def test_models_with_common_images_are_refused(models: list[Detector]) -> None:
    a, b, _ = models
    with pytest.raises(UserError, match=r"the same images .*, which would count twice"):
        a.merged(b, a.updated(pictures(40, 2)))


def test_one_model_is_not_enough() -> None:
    with pytest.raises(UserError, match="at least two"):
        merged([])


def test_k_means_cannot_be_merged() -> None:
    config = SMALL.with_changes(constructor="kmeans", calibration="none")
    a, b = (Detector.fit(pictures(first, 4), config) for first in (0, 4))
    with pytest.raises(UserError, match="k-means"):
        a.merged(b)


def test_models_of_different_products_are_not_merged(models: list[Detector]) -> None:
    a, b, c = models
    bottle, plate = with_changes(a, product="bottle"), with_changes(b, product="plate")
    with pytest.raises(
        UserError, match=r"different products, (bottle and plate|plate and bottle).*name=NAME"
    ):
        bottle.merged(plate)
    assert (
        bottle.merged(c).model.product == c.merged(bottle).model.product == "bottle"
    )  # of c nobody has said it
