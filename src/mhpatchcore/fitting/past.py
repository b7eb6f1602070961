"""What a model still knows of images that are gone: where a fit goes on when the model grows."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from mhpatchcore.bank.patches import Patches, Summary
from mhpatchcore.calibration.conformal import Calibration
from mhpatchcore.calibration.deciding_patches import NOT_LEARNT
from mhpatchcore.errors import UserError
from mhpatchcore.metric.moments import Moments
from mhpatchcore.metric.whitening import Whitening
from mhpatchcore.runtime.arrays import Array, Indices

if TYPE_CHECKING:
    from mhpatchcore.config import Config
    from mhpatchcore.detector import Detector

ROWS_TO_KNOW_AN_IMAGE = 3


@dataclass(frozen=True, eq=False)
class Past:
    """Moments of all patches, the bank's raw rows (K, d) and origins (K, 3), the calibration, and the image names."""

    moments: Moments
    raw: Array
    origin: Indices
    calibration: Calibration
    images: tuple[str, ...]

    @staticmethod
    def of(detector: Detector, first: int = 0) -> Past:
        """A detector's past, its images numbered from `first`."""
        calibration = detector.calibration
        witnesses = tuple(
            witness if witness.image == NOT_LEARNT else replace(witness, image=witness.image + first)
            for witness in calibration.witnesses
        )
        return Past(
            detector.moments,
            detector.bank_raw,
            detector.bank_origin + np.array([first, 0, 0], detector.bank_origin.dtype),
            replace(calibration, witnesses=witnesses),
            detector.images,
        )

    def summary(self, whitening: Whitening) -> Summary:
        """The bank, whitened anew, as what stands for all patches."""
        return Summary(Patches(whitening(self.raw), self.raw, self.origin), self.moments.n)

    def knows(self, rows: Array, grid: tuple[int, int]) -> bool:
        """Whether the bank has learnt from the image with these descriptors (h·w, d).

        Then all bank rows of some image stand in it, bit for bit and at their places. An image that gave the bank
        only a row or two is not recognised, nor is any by centroids.
        """
        single = self.origin[:, 0] >= 0
        image, row, column = self.origin[single].T
        found = (self.raw[single] == rows[row * grid[1] + column]).all(axis=1)
        given = np.bincount(image, minlength=1)
        matched = np.bincount(image[found], minlength=len(given))
        return bool(((matched == given) & (given >= ROWS_TO_KNOW_AN_IMAGE)).any())


def check_can_grow(config: Config) -> None:
    """Refuse settings under which the old images would be needed again."""
    if config.constructor == "kmeans":
        raise UserError(
            "a k-means bank cannot grow: its centroids are averages over images that are gone; "
            "fit all images again, or use --constructor always-full"
        )
    if config.shrinkage == "ledoit-wolf" and config.metric == "mahalanobis":
        raise UserError(
            "Ledoit–Wolf shrinkage needs every patch again, and the old images are gone; "
            "fit all images again, or use --shrinkage oas or a number"
        )
