"""The gate on photographs: all test images of two categories, in every runtime (`MHPATCHCORE_DATA`)."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from consumers import CONSUMERS

from mhpatchcore import Config, Detector
from mhpatchcore.deploy.export import export_onnx
from mhpatchcore.inputs.places import images_below

DATA = os.environ.get("MHPATCHCORE_DATA")
CATEGORIES = ("bottle", "pill")
LEARNT = 80
pytestmark = [pytest.mark.slow, pytest.mark.skipif(not DATA, reason="MHPATCHCORE_DATA names no images")]


@pytest.fixture(scope="module", params=CATEGORIES)
def judged(request: Any, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[Path], list[Any]]:
    """An exported file, the test images, and what the detector says of them."""
    folder = Path(DATA or "") / request.param
    if not folder.is_dir():
        pytest.skip(f"there is no {folder}")
    model = tmp_path_factory.mktemp(request.param) / "part.onnx"
    detector = Detector.fit(images_below(folder / "train" / "good")[:LEARNT], Config())
    export_onnx(detector.model, model)
    images = images_below(folder / "test")
    return model, images, [*detector.score_many(images)]


@pytest.mark.parametrize("consumer", CONSUMERS.values(), ids=CONSUMERS)
def test_verdicts_are_the_same_and_scores_within_a_ten_thousandth(judged: Any, consumer: Any) -> None:
    model, images, results = judged
    found = consumer(model, images)
    apart = np.array([one.score / result.score - 1 for one, result in zip(found, results, strict=True)])
    same = [one.verdict == result.is_rejected for one, result in zip(found, results, strict=True)]
    print(f"\n{len(images)} images, {model.stat().st_size / 1e6:.1f} MB: ", end="")
    print(f"{np.mean(same):.1%} equal verdicts, scores differ by at most {np.abs(apart).max():.1e}")
    assert all(same)
    assert np.abs(apart).max() < 1e-4
    assert all(
        one.p_value == pytest.approx(result.p_value, rel=1e-6)
        for one, result in zip(found, results, strict=True)
    )
