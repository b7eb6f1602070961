"""The scoring graph against its plain twin."""

from __future__ import annotations

import numpy as np
import pytest

from mhpatchcore import Config, Detector
from mhpatchcore.demo.dataset import vial_image
from mhpatchcore.inputs.images import load_view


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"K": 40, "m_c": 40},
        {"reach": 0.0, "score": "reweighted"},
        {"reduction": "none", "metric": "euclidean", "score": "max"},
        {"layers": ("block4",), "resize": 110},
        {"place": 0.0},
        {"span": 1},
        {"span": 4, "reach": 0.0},
        {"layers": ("block2", "block4", "block10")},
        {"layers": tuple(f"block{i}" for i in range(11))},  # names with two digits keep their order
    ],
)
def test_the_graph_scores_like_its_twin(changes: dict[str, object]) -> None:
    pictures = [vial_image(seed, pixels=96)[0] for seed in range(4)]
    detector = Detector.fit(pictures, Config(size=96, K=200, m_c=64).with_changes(**changes))
    assert all((part.relief is not None) == (detector.config.reach > 0) for part in detector.scorer.parts)
    assert (detector.scorer.around > 1) == (detector.config.span > 1)
    for picture in (pictures[0], vial_image(9, "scratch", pixels=96)[0]):
        view, _ = load_view(picture, detector.config.preprocessing)
        rows = detector.backbone(view[None]).reshape(-1, detector.backbone.info.columns)
        plain = detector.scorer(detector.whitening(rows))
        result = detector.score(picture)
        scale = float(plain.a.max())
        assert np.abs(result.patches.a - plain.a).max() < 1e-4 * max(scale, detector.threshold)
        assert np.abs(result.patches.nearest - plain.nearest).max() < 1e-3 * max(scale, detector.threshold)
        assert result.score == pytest.approx(plain.score, abs=1e-3 * max(scale, detector.threshold))
        assert next(detector.score_many([picture])).score == pytest.approx(result.score, rel=1e-4)
