"""Merging: one model of several, in any order; what does not fit together is named."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mhpatchcore import Config, Detector, UserError
from mhpatchcore.demo.dataset import vial_image

SMALL = Config(size=96, K=300, m_c=64)


@pytest.fixture(scope="module", autouse=True)
def cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MHPATCHCORE_CACHE", str(tmp_path_factory.mktemp("cache")))
        patch.setenv("SOURCE_DATE_EPOCH", "1800000000")
        yield


def vials(first: int, n: int) -> list[np.ndarray]:
    return [vial_image(seed, pixels=96)[0] for seed in range(first, first + n)]


@pytest.fixture(scope="module")
def models() -> list[Detector]:
    return [Detector.fit(vials(first, n), SMALL) for first, n in ((0, 10), (10, 10), (20, 6))]


@pytest.mark.parametrize("constructor", ["always-full", "tree", "geores", "random", "offline-greedy"])
@pytest.mark.parametrize("dense", [0.0, 0.1])
def test_order_does_not_matter(tmp_path: Path, constructor: str, dense: float) -> None:
    config = SMALL.with_changes(constructor=constructor, dense=dense, chunk_images=3)
    a, b = Detector.fit(vials(0, 8), config), Detector.fit(vials(8, 8), config)
    a.merged(b).save(tmp_path / "ab.mhpc")
    b.merged(a).save(tmp_path / "ba.mhpc")
    assert (tmp_path / "ab.mhpc").read_bytes() == (tmp_path / "ba.mhpc").read_bytes()


def test_a_merged_model_is_one_of_all_images(models: list[Detector]) -> None:
    a, b, c = models
    merged = a.merged(b, c)
    everything = Detector.fit(vials(0, 26), SMALL)
    assert merged.moments.n == everything.moments.n
    ours, theirs = merged.moments.covariance, everything.moments.covariance
    assert np.allclose(ours, theirs, rtol=0, atol=1e-12 * np.abs(theirs).max())
    assert len(merged.images) == 26 and len(merged.bank_raw) == SMALL.K
    sources = [(merged.bank_origin[:, 0] // 10 == i).sum() for i in range(3)]
    assert min(sources) > 30
    assert sorted(witness.image for witness in merged.calibration.witnesses) == list(range(26))
    assert merged.threshold == pytest.approx(everything.threshold, rel=0.3)
    good = [result.score for result in merged.score(vials(100, 5))]
    bad = [
        result.score for result in merged.score([vial_image(i, "low_fill", pixels=96)[0] for i in range(5)])
    ]
    assert np.median(bad) > max(good)


@pytest.mark.parametrize("dense", [0.0, 0.5])
def test_small_models_lose_no_patch(dense: float) -> None:
    config = SMALL.with_changes(K=1000, dense=dense)
    a, b = Detector.fit(vials(0, 2), config), Detector.fit(vials(2, 2), config)
    patches = {row.tobytes() for one in (a, b) for row in one.bank_raw}
    assert {row.tobytes() for row in a.merged(b).bank_raw} == patches
    assert {row.tobytes() for row in a.updated(vials(2, 2)).bank_raw} == patches


def test_image_names_stay_apart_and_the_history_names_all(models: list[Detector]) -> None:
    a, b, _ = models
    merged = a.merged(b)
    assert len(set(merged.images)) == 20
    assert [event.what for event in merged.history] == ["fit", "fit", "merge"]
    assert (merged.history[-1].total, merged.history[-1].source) == (20, "model 1, model 2")


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"K": 200}, "K is 300 in the one and 200 in the other"),
        ({"size": 64}, "backbone's height is 96 in the one and 64"),
        ({"layers": ("block4",)}, "backbone's layers"),
        ({"metric": "euclidean"}, "metric is mahalanobis"),
        ({"place": 0.0}, "place is 0.6 in the one and 0.0"),
        ({"resize": 96}, "resize is None"),
        ({"false_alarm": 0.2}, "false_alarm.*calibrate one of them"),
        ({"constructor": "tree"}, "constructor is always-full"),
    ],
)
def test_what_does_not_fit_together_is_named(
    models: list[Detector], changes: dict[str, Any], words: str
) -> None:
    other = Detector.fit(vials(30, 4), SMALL.with_changes(**changes))
    with pytest.raises(UserError, match=f"cannot be merged: .*{words}"):
        models[0].merged(other)


def test_another_graph_is_refused(models: list[Detector]) -> None:
    a, b, _ = models
    other = replace(b, backbone=replace(b.backbone, graph=b.backbone.graph + b"\0"))
    with pytest.raises(UserError, match="backbone's graph"):
        a.merged(other)


def test_models_with_common_images_are_refused(models: list[Detector]) -> None:
    a, b, _ = models
    with pytest.raises(UserError, match="the same images, which would count twice"):
        a.merged(b, a.updated(vials(40, 2)))


def test_one_model_is_not_enough() -> None:
    from mhpatchcore.model.merge import merged

    with pytest.raises(UserError, match="at least two"):
        merged([])


def test_k_means_cannot_be_merged() -> None:
    a, b = (Detector.fit(vials(first, 4), SMALL.with_changes(constructor="kmeans")) for first in (0, 4))
    with pytest.raises(UserError, match="k-means"):
        a.merged(b)
