"""What a test says of a detector: how well scores separate, and what the threshold makes of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from mhpatchcore import Detector
from mhpatchcore.evaluation.metrics import auroc
from mhpatchcore.inputs.datasets import Sample
from mhpatchcore.inputs.sources import Images
from mhpatchcore.runtime.arrays import Doubles


@dataclass(frozen=True)
class Quality:
    """Image AUROC, and the shares of defects found and of good parts rejected at the threshold."""

    auroc: float
    found: float
    rejected: float


def quality_of(detector: Detector, test: Sequence[Sample]) -> Quality:
    labels = np.array([sample.is_anomalous for sample in test])
    scores = scores_of(detector, [sample.path for sample in test])
    flagged = scores > detector.threshold
    return Quality(auroc(labels, scores), float(flagged[labels].mean()), float(flagged[~labels].mean()))


def scores_of(detector: Detector, images: Images) -> Doubles:
    """Scores (n,) of images."""
    return np.array([result.score for result in detector.score_many(images) if result is not None])
