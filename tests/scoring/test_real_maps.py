"""Streamed pixel metrics equal plain ones on maps of a real detector: on made-up vials, and on photographs if given.

$MHPATCHCORE_DATA names a folder of categories with masks (bottle and pill of MVTec AD, say).
"""

from __future__ import annotations

import os
from itertools import chain, zip_longest
from pathlib import Path

import numpy as np
import pytest
from plain_pixel_metrics import exact_scores
from small_detector import PIXELS, small_detector

from mhpatchcore import Config, Detector
from mhpatchcore.demo.dataset import write_demo_dataset
from mhpatchcore.evaluation.metrics import PixelMetrics
from mhpatchcore.inputs.datasets import Dataset, Sample, find_categories, load_dataset, read_mask
from mhpatchcore.runtime.arrays import Floats, Mask

MAPS, ROUNDING = 24, 1e-11


def photographs() -> list[Path]:
    folder = os.environ.get("MHPATCHCORE_DATA")
    return [path for path in find_categories(folder) if (path / "ground_truth").is_dir()] if folder else []


def mixed(dataset: Dataset) -> list[Sample]:
    """Some images of every kind in turn, as many as there are to be maps."""
    kinds = sorted({sample.kind for sample in dataset.test})
    members = [
        [s for s in dataset.test if s.kind == kind and (s.mask or not s.is_anomalous)] for kind in kinds
    ]
    return [sample for sample in chain(*zip_longest(*members)) if sample is not None][:MAPS]


def maps_of(detector: Detector, samples: list[Sample]) -> tuple[list[Floats], list[Mask]]:
    maps = [detector.score(sample.path).map for sample in samples]
    masks = [
        np.zeros(heat.shape, bool) if sample.mask is None else read_mask(sample.mask, *heat.shape)
        for heat, sample in zip(maps, samples, strict=True)
    ]
    return maps, masks


def assert_equal_to_plain(maps: list[Floats], masks: list[Mask]) -> None:
    assert len(maps) >= 20 and sum(mask.any() for mask in masks) >= 10
    metrics = PixelMetrics()
    for heat, mask in zip(maps, masks, strict=True):
        metrics.update(heat, mask)
    streamed = metrics.result()
    for name, plain in exact_scores(maps, masks).items():
        difference = abs(getattr(streamed, name) - plain)
        print(f"{name} {plain:.6f}: off by {difference:.1e}")
        assert difference < 1e-5


def test_maps_of_vials(tmp_path: Path) -> None:
    vials = load_dataset(
        write_demo_dataset(tmp_path / "vials", train=1, good=6, per_defect=6, pixels=2 * PIXELS)
    )
    assert_equal_to_plain(*maps_of(small_detector(), mixed(vials)))


@pytest.mark.skipif(not photographs(), reason="set MHPATCHCORE_DATA to a folder of categories with masks")
@pytest.mark.parametrize("category", photographs(), ids=lambda path: path.name)
def test_maps_of_photographs(category: Path) -> None:
    dataset = load_dataset(category)
    detector = Detector.fit(dataset.train[:30], Config(K=1000, m_c=256))
    assert_equal_to_plain(*maps_of(detector, mixed(dataset)))
