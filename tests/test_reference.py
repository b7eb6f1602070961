"""The product computes what the reference does, the paper's method in plain numpy: on random and on real descriptors.

$MHPATCHCORE_DATA names a folder of categories, for the latter.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from small_detector import vials

from mhpatchcore import Config, Detector, reference
from mhpatchcore.inputs.datasets import find_categories, load_dataset
from mhpatchcore.inputs.loading import load_views
from mhpatchcore.metric import shrinkage
from mhpatchcore.metric.moments import Moments
from mhpatchcore.metric.reduction import reduce_by
from mhpatchcore.metric.whitening import fit_whitening, jittered_cholesky, regularised
from mhpatchcore.presets import preset
from mhpatchcore.scoring.maps import view_map

RNG = np.random.default_rng(0)
U = RNG.normal(size=(300, 12)) @ RNG.normal(size=(12, 12)) + 7
BATCHES = np.array_split(U, 4)
COVARIANCE = np.cov(U.T)


def test_moments() -> None:
    n, mean, M2 = reference.moments(BATCHES)
    ours = Moments.of(U)
    assert n == ours.n == 300
    assert np.allclose(mean, ours.mean, rtol=1e-12) and np.allclose(M2, ours.M2, rtol=1e-10)


@pytest.mark.parametrize("rho", [0.5, 0.9, 0.99])
@pytest.mark.parametrize("lam", [0.0, 0.07, 1.0])
def test_whitening(rho: float, lam: float) -> None:
    moments = Moments.of(U)
    ours = fit_whitening(moments, reduce_by(moments, rho), lam)
    model = reference.fit(BATCHES, rho, lam, K=5, m_c=5)
    z = (U - ours.mean) @ ours.A.T
    # directions have a free sign; distances have none
    assert model.W.shape[1] == ours.k
    assert np.allclose(reference.delta(z, z), reference.delta(model.whiten(U), model.whiten(U)), atol=1e-8)


def test_shrinkage_floor_and_jitter() -> None:
    eigenvalues = np.linalg.eigvalsh(COVARIANCE)
    assert shrinkage.oas(eigenvalues, 300) == pytest.approx(reference.oas(COVARIANCE, 300), rel=1e-9)
    assert shrinkage.rblw(eigenvalues, 300) == pytest.approx(reference.rblw(COVARIANCE, 300), rel=1e-9)
    for lam, floor in ((0.0, 0.5), (0.07, 1e-8), (1.0, 2.0)):
        wanted = reference.floored(reference.shrunk(COVARIANCE, lam), floor)
        assert np.allclose(regularised(COVARIANCE, lam, floor), wanted, rtol=1e-9)
    singular = np.diag([4.0, 0.0, 1.0])
    assert np.allclose(jittered_cholesky(singular)[0], reference.cholesky(singular))


@pytest.mark.parametrize(("grid", "size"), [((7, 5), (56, 41)), ((3, 3), (3, 3))])
@pytest.mark.parametrize("sigma", [0.0, 1.5, 4.0])
def test_maps(grid: tuple[int, int], size: tuple[int, int], sigma: float) -> None:
    a = RNG.uniform(size=grid)
    ours = view_map(a.astype(np.float32), *size, sigma)
    assert np.allclose(ours, reference.score_map(a, *size, sigma), atol=1e-5)


def assert_same_as_the_reference(normals: Sequence[Any], others: Sequence[Any], config: Config) -> None:
    """A whole fit and its scores, from the descriptors on."""
    detector = Detector.fit(normals, config)
    (scale,) = detector.scales

    def descriptors(image: Any) -> np.ndarray:
        ((seen, _),) = load_views(image, detector.config.views[:1])
        return scale.backbone.descriptors(seen).reshape(-1, scale.backbone.info.dim).astype(float)

    everything = [descriptors(image) for image in normals]
    batches = [
        np.concatenate(everything[i : i + config.chunk_images])
        for i in range(0, len(everything), config.chunk_images)
    ]
    lam = config.shrinkage
    assert isinstance(lam, float)
    model = reference.fit(batches, config.variance or 1.0, lam, config.K, config.m_c)
    assert np.allclose(scale.moments.mean, model.mean, rtol=1e-5, atol=1e-6)
    chunks = [model.whiten(batch) for batch in batches]
    bank = model.bank
    if config.constructor == "geores":
        bank = reference.geores(chunks, config.K, config.m_c, config.alpha, config.q or config.K)
    rows, columns = scale.backbone.info.grid
    image, _, row, column = scale.origin.T
    chosen = np.concatenate(chunks)[(image * rows + row) * columns + column]
    wanted = {one.tobytes() for one in bank}
    # what float32 cannot tell apart may be decided otherwise
    assert len(chosen) == len(bank) and sum(one.tobytes() in wanted for one in chosen) >= 0.98 * len(bank)
    ours = model.whiten(scale.raw.astype(float))  # the bank's rows are kept as halves
    score = reference.largest if config.score == "max" else reference.reweighted
    for image in [*normals[:2], *others]:
        z, result = model.whiten(descriptors(image)), detector.score(image)
        assert result.score == pytest.approx(score(z, ours), rel=1e-3, abs=1e-3)
        a = reference.patch_scores(z, ours).reshape(scale.backbone.info.grid)
        heat = reference.score_map(a, *scale.size, config.sigma)
        assert float(result.map.max()) <= heat.max() * 1.01 + 1e-3


@pytest.mark.parametrize("name", ["mh", "geores-k1000"])
@pytest.mark.parametrize("score", ["reweighted", "max"])
def test_a_fit_on_made_up_parts(name: str, score: str) -> None:
    config = preset(name).config.with_changes(
        sizes=96, resize=None, K=60, m_c=40, q="none", chunk_images=2, score=score
    )
    assert_same_as_the_reference(vials(0, 7), vials(20, 2), config)


def photographs() -> list[Path]:
    folder = os.environ.get("MHPATCHCORE_DATA")
    return find_categories(folder)[:1] if folder else []


@pytest.mark.skipif(not photographs(), reason="set MHPATCHCORE_DATA to a folder of categories")
@pytest.mark.parametrize("name", ["mh", "geores-k1000"])
@pytest.mark.parametrize("category", photographs(), ids=lambda path: path.name)
def test_a_fit_on_photographs(category: Path, name: str) -> None:
    dataset = load_dataset(category)
    config = preset(name).config.with_changes(K=200, m_c=100, q=200)
    assert_same_as_the_reference(dataset.train[:40], [sample.path for sample in dataset.test[:4]], config)
