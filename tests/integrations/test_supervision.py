"""Regions as detections of supervision."""

from __future__ import annotations

import numpy as np
import pytest
from small_detector import PIXELS, small_detector, vials, with_threshold

sv = pytest.importorskip("supervision")

from mhpatchcore.integrations.supervision import detections  # noqa: E402


def test_detections_are_the_regions() -> None:
    image = np.random.default_rng(0).integers(0, 256, (PIXELS, PIXELS, 3)).astype(np.uint8)
    result = small_detector()(image)
    found = detections(result)
    assert len(found) == len(result.regions) > 0
    for i, region in enumerate(result.regions):
        top, left, bottom, right = region.box
        assert found.xyxy[i].tolist() == [left, top, right, bottom]
        assert found.mask[i].sum() == region.area and found.mask[i][region.peak_at]
        assert found.mask[i][top:bottom, left:right].sum() == region.area
    assert ((found.confidence > 0) & (found.confidence < 1)).all()
    assert set(found.data["class_name"]) == {"anomaly"}
    drawn = sv.BoxAnnotator().annotate(image.copy(), found)
    assert (drawn != image).any()


def test_a_part_that_passes_has_none() -> None:
    result = with_threshold(small_detector(), 1e9)(vials(50, 1)[0])
    assert len(detections(result)) == 0
