"""What the detector says about one image."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

from mhpatchcore.config import Config
from mhpatchcore.inputs.images import Geometry
from mhpatchcore.runtime.arrays import Floats, Mask
from mhpatchcore.scoring.maps import Region, original_map, regions_of
from mhpatchcore.scoring.rules import PatchScores

PEAK_SHARE = 0.8


@dataclass(frozen=True, eq=False)
class Result:
    """What the detector says about one image.

    `map` and `mask` have the size of the original image and are made when first asked for.
    """

    path: str | None
    score: float
    threshold: float
    p_value: float
    pixel_threshold: float
    patches: PatchScores
    geometry: Geometry
    config: Config

    @property
    def is_anomalous(self) -> bool:
        return not self.score <= self.threshold  # so that a score that is no number does not pass

    @cached_property
    def map(self) -> Floats:
        """Smoothed anomaly map (H, W) over the original image, in squared distances."""
        size = self.config.size
        return original_map(self.patches.a, size, size, self.config.sigma, self.geometry)

    @cached_property
    def mask(self) -> Mask:
        """Predicted segmentation (H, W): where the map exceeds the pixel threshold.

        An anomalous image always shows where it is most so, even if no pixel exceeds the threshold by itself.
        """
        limit = self.pixel_threshold
        if self.is_anomalous:
            limit = min(limit, PEAK_SHARE * float(self.map.max()))
        return self.map > limit

    @cached_property
    def regions(self) -> tuple[Region, ...]:
        """Connected regions of the mask, highest peak first."""
        return regions_of(self.mask, self.map)

    def to_json(self) -> dict[str, Any]:
        return {
            "image": self.path,
            "score": self.score,
            "threshold": self.threshold,
            "is_anomalous": self.is_anomalous,
            "p_value": self.p_value,
            "regions": [asdict(region) for region in self.regions],
        }

    def __repr__(self) -> str:
        verdict = "anomalous" if self.is_anomalous else "normal"
        return (
            f"Result({verdict}, score={self.score:.4g}, threshold={self.threshold:.4g}, p={self.p_value:.3g})"
        )
