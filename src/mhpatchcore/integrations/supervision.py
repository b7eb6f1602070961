"""Regions as `Detections` of supervision, for its annotators, trackers and metrics.

import supervision as sv
from mhpatchcore.integrations.supervision import detections

annotated = sv.MaskAnnotator().annotate(image, detections(detector(image)))
"""

from __future__ import annotations

import numpy as np
import supervision as sv

from mhpatchcore.result import Result
from mhpatchcore.scoring.maps import ANOMALY


def detections(result: Result) -> sv.Detections:
    """The regions of a result, the highest peak first.

    `confidence` is peak / (peak + pixel threshold): a half at the threshold, and towards 1 above it. `data` has the
    class names, peaks and areas.
    """
    from scipy.ndimage import label

    regions = result.regions
    if not regions:
        return sv.Detections.empty()
    labels, _ = label(result.mask, structure=np.ones((3, 3)))
    peaks = np.array([region.peak for region in regions])
    limit = result.pixel_threshold if np.isfinite(result.pixel_threshold) else result.mask_limit
    names = [region.label for region in regions]
    known = (ANOMALY, *result.names)
    return sv.Detections(
        xyxy=np.array([region.box.xyxy for region in regions], np.float64),
        mask=np.stack([labels == labels[region.peak_at] for region in regions]),
        confidence=peaks / (peaks + limit),
        class_id=np.array([known.index(name) if name in known else 0 for name in names]),
        data={"class_name": np.array(names), "peak": peaks, "area": np.array([one.area for one in regions])},
    )
