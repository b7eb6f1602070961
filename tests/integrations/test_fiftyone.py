"""Predictions on a data set of FiftyOne; it is large, so it is tested only where it is installed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from small_detector import PIXELS, small_detector

fo = pytest.importorskip("fiftyone")


class Samples(list[Any]):
    """As much of a data set as is needed: a real one takes a running MongoDB."""

    def values(self, name: str) -> list[Any]:
        return [sample[name] for sample in self]

    def iter_samples(self, autosave: bool) -> Iterator[Any]:
        assert autosave
        return iter(self)


def test_verdict_map_and_regions_are_fields(tmp_path: Path) -> None:
    from mhpatchcore.integrations.fiftyone import add_predictions

    noise = np.random.default_rng(0).integers(0, 256, (PIXELS, PIXELS, 3)).astype(np.uint8)
    Image.fromarray(noise).save(tmp_path / "noise.png")
    sample, result = fo.Sample(filepath=str(tmp_path / "noise.png")), small_detector()(tmp_path / "noise.png")
    add_predictions(Samples([sample]), small_detector(), "anomaly")
    assert sample["anomaly"].label == result.verdict == "rejected"
    np.testing.assert_array_equal(sample["anomaly_map"].map, result.map)
    boxes = [one.bounding_box for one in sample["anomaly_regions"].detections]
    expected = [[side / PIXELS for side in region.box.xywh] for region in result.regions]
    np.testing.assert_allclose(boxes, expected)
