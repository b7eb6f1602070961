"""Predictions on a data set of FiftyOne; it brings a database of its own, so it is tested only where it is."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from small_detector import PIXELS, small_detector

fo = pytest.importorskip("fiftyone")


def test_verdict_map_and_regions_are_fields(tmp_path: Path) -> None:
    from mhpatchcore.integrations.fiftyone import add_predictions

    noise = np.random.default_rng(0).integers(0, 256, (PIXELS, PIXELS, 3)).astype(np.uint8)
    Image.fromarray(noise).save(tmp_path / "noise.png")
    dataset = fo.Dataset()
    dataset.add_sample(fo.Sample(filepath=str(tmp_path / "noise.png")))
    add_predictions(dataset, small_detector(), "anomaly")
    sample, result = dataset.first(), small_detector()(tmp_path / "noise.png")
    assert sample["anomaly"].label == result.verdict == "rejected"
    np.testing.assert_array_equal(sample["anomaly_map"].map, result.map)
    boxes = [one.bounding_box for one in sample["anomaly_regions"].detections]
    expected = [[side / PIXELS for side in region.box.xywh] for region in result.regions]
    np.testing.assert_allclose(boxes, expected)
