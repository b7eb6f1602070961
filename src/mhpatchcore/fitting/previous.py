"""What a model still knows of images that are gone: where a fit goes on when the model grows."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from mhpatchcore.bank.patches import Patches
from mhpatchcore.calibration.deciding_patches import NOT_LEARNT
from mhpatchcore.calibration.threshold import Calibration
from mhpatchcore.config import Config
from mhpatchcore.errors import UserError
from mhpatchcore.metric.moments import Moments
from mhpatchcore.metric.whitening import Whitening
from mhpatchcore.runtime.arrays import Array, Floats, Indices


@dataclass(frozen=True, eq=False)
class PreviousScale:
    """Moments of all patches of one scale, the bank's raw rows (K, d) and origins (K, 4)."""

    moments: Moments
    raw: Array
    origin: Indices

    def patches(self, whitening: Whitening) -> Patches:
        """The bank, whitened anew."""
        return Patches(whitening(self.raw), self.origin)


@dataclass(frozen=True, eq=False)
class Previous:
    """A model that is to grow: its scales and calibration; hashes, thumbnails (n, 64) and measures (n, m) of its
    images.

    It has learnt from `learnt` of them. Its images are numbered from `first`.
    """

    scales: tuple[PreviousScale, ...]
    calibration: Calibration
    hashes: tuple[str, ...]
    thumbnails: Floats
    measures: Floats
    learnt: int
    first: int = 0

    def numbered_from(self, first: int) -> Previous:
        """The same, as the images `first` … of a larger model."""
        moved = first - self.first
        deciding = tuple(
            one if one.image == NOT_LEARNT else replace(one, image=one.image + moved)
            for one in self.calibration.deciding
        )
        scales = tuple(
            replace(one, origin=one.origin + np.array([moved, 0, 0, 0], one.origin.dtype))
            for one in self.scales
        )
        calibration = replace(self.calibration, deciding=deciding)
        return replace(self, scales=scales, calibration=calibration, first=first)


def check_can_grow(config: Config) -> None:
    """Refuse settings under which the old images would be needed again."""
    if config.constructor == "kmeans":
        raise UserError(
            "a k-means bank cannot grow: its centroids are averages over images that are gone; "
            "fit all images again, or use `constructor=always-full`"
        )
    if config.shrinkage == "ledoit-wolf" and config.metric == "mahalanobis":
        raise UserError(
            "Ledoit–Wolf shrinkage needs every patch again, and the old images are gone; "
            "fit all images again, or use `shrinkage=oas` or a number"
        )
