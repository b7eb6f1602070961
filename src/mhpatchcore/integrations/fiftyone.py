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
from mhpatchcore.scoring.maps import Region


def add_predictions(samples: Any, detector: Detector, field: str = "mhpatchcore") -> None:
    """Score every sample: its verdict becomes `field`, its map `field`_map and its regions `field`_regions.

    Parameters
    ----------
    samples
        A data set or a view of one.
    detector
        A fitted detector.
    field
        What the fields are called.
    """
    results = detector.score_many(samples.values("filepath"))
    for sample, result in zip(samples.iter_samples(autosave=True), results, strict=True):
        for name, label in labels(result).items():
            sample[f"{field}{name}"] = label


def labels(result: Result) -> dict[str, Any]:
    """What FiftyOne shows of a result, by how the names of the fields end.

    Parameters
    ----------
    result
        What the detector says of an image.
    """
    regions = [_detection(region, *result.size) for region in result.regions]
    return {
        "": fo.Classification(label=result.verdict, confidence=1 - result.p_value, score=result.score),
        "_map": fo.Heatmap(map=result.map, range=[0, result.peak]),
        "_regions": fo.Detections(detections=regions),
    }


def _detection(region: Region, height: int, width: int) -> Any:
    x, y, wide, tall = region.box.xywh
    box = [x / width, y / height, wide / width, tall / height]
    return fo.Detection(label=region.name or "anomaly", bounding_box=box, peak=region.peak)
