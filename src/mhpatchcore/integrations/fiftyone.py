"""Predictions on a FiftyOne data set: verdicts, heatmaps and detections, to browse, filter and evaluate there.

from mhpatchcore.integrations.fiftyone import add_predictions

add_predictions(dataset, detector)
dataset.match(F("mhpatchcore.label") == "rejected")
"""

from __future__ import annotations

from typing import Any

import fiftyone as fo

from mhpatchcore.detector import Detector
from mhpatchcore.result import Result


def add_predictions(samples: Any, detector: Detector, field: str = "mhpatchcore") -> None:
    """Score the samples of a data set or a view: verdicts become `field`, maps `field`_map, regions `field`_regions."""
    results = detector.score_many(samples.values("filepath"))
    for sample, result in zip(samples.iter_samples(autosave=True), results, strict=True):
        for name, label in labels(result).items():
            sample[f"{field}{name}"] = label


def labels(result: Result) -> dict[str, Any]:
    """What FiftyOne shows of a result, by how the names of the fields end."""
    height, width = result.size
    regions = []
    for region in result.regions:
        x, y, wide, tall = region.box.xywh
        box = [x / width, y / height, wide / width, tall / height]
        regions.append(fo.Detection(label=region.label, bounding_box=box, peak=region.peak))
    return {
        "": fo.Classification(label=result.verdict, confidence=1 - result.p_value, score=result.score),
        "_map": fo.Heatmap(map=result.map, range=[0, result.peak]),
        "_regions": fo.Detections(detections=regions),
    }
