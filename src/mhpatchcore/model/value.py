"""A fitted model, as a value: what a model file holds. Everything that changes a model makes a new one."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from mhpatchcore.backbone.session import Backbone
from mhpatchcore.calibration.deciding_patches import NOT_LEARNT
from mhpatchcore.calibration.threshold import LIKENESS_SHARE, Calibration
from mhpatchcore.config import Config
from mhpatchcore.metric.moments import Moments
from mhpatchcore.metric.whitening import Whitening
from mhpatchcore.model.history import Event
from mhpatchcore.runtime.arrays import Array, Doubles, Floats, Indices
from mhpatchcore.runtime.parallel import one_blas_thread
from mhpatchcore.scoring.graph import Head
from mhpatchcore.scoring.known_defects import NO_DEFECTS, KnownDefects


@dataclass(frozen=True, eq=False)
class Scale:
    """One size at which images are seen, and what was learnt there.

    `variances` (d,) are those of all principal directions. The bank's rows have raw descriptors (K, d), origins (K, 4)
    = image, view, row, column, and weights (K,) (`scoring/local.py`).
    """

    backbone: Backbone
    moments: Moments
    variances: Doubles
    whitening: Whitening
    raw: Array
    origin: Indices
    weights: Floats

    @property
    def size(self) -> tuple[int, int]:
        """Height and width of the view, in pixels."""
        return self.backbone.info.height, self.backbone.info.width

    def head(self, config: Config) -> Head:
        """What scores views of this scale."""
        with one_blas_thread():
            bank = self.whitening(self.raw)
        rule = (config.score, config.local, config.neighbours, config.sigma)
        return Head(self.backbone, self.whitening, bank, self.weights, *rule)


@dataclass(frozen=True, eq=False)
class Model:
    """Backbone, metric and bank of every scale, the calibration, and where all of it comes from.

    `images` names the training images; `hashes` and `thumbnails` (n, 64) tell them from others, and `measures` (n, m)
    say how the camera saw them. A bank row's origin (image, view, row, column) points into them. `n_learnt` of them
    were learnt from: all but the broken and the held-out ones. `history` says what was done when; `excluded` are images
    that were left out of a fit because they stood too far from the others. `product` is the name of what it inspects,
    empty where nobody has said so: models of different products do not take each other's place. `defects`
    are those it was taught.
    """

    config: Config
    scales: tuple[Scale, ...]
    calibration: Calibration
    images: tuple[str, ...]
    hashes: tuple[str, ...]
    thumbnails: Floats
    measures: Floats
    n_learnt: int
    history: tuple[Event, ...] = ()
    excluded: tuple[str, ...] = ()
    product: str = ""
    defects: KnownDefects = NO_DEFECTS

    def __post_init__(self) -> None:
        """Known defects take their share of the stated rate, however they and the calibration came here."""
        share = LIKENESS_SHARE if self.defects.names else 0.0
        object.__setattr__(self, "calibration", replace(self.calibration, for_likeness=share))

    @property
    def rows(self) -> int:
        """Rows of the bank, of all scales."""
        return sum(len(scale.raw) for scale in self.scales)

    @property
    def no_threshold(self) -> str:
        """Why it has no threshold; empty if it has one."""
        if self.calibration.judges:
            return ""
        if self.n_learnt == 1:
            return "it has learnt from a single image"
        if self.config.calibration == "none":
            return "it was not calibrated"
        return "its images are near-duplicates of each other, and say no more than one of them"

    @property
    def odd_images(self) -> dict[str, float]:
        """The scores of calibration images that lie far beyond all others, by name; "" for one that was not learnt."""
        deciding, found = self.calibration.deciding, {}
        for place in self.calibration.odd.tolist():
            image = deciding[place].image if place < len(deciding) else NOT_LEARNT
            found["" if image == NOT_LEARNT else self.images[image]] = float(self.calibration.scores[place])
        return found

    @property
    def patches(self) -> int:
        """How many patches it has learnt from, at all scales together."""
        return sum(scale.moments.n for scale in self.scales)

    def numbered_from(self, first: int) -> Model:
        """The same model, whose images are the images `first` … of a larger one."""
        deciding = tuple(
            one if one.image == NOT_LEARNT else replace(one, image=one.image + first)
            for one in self.calibration.deciding
        )
        moved = np.array([first, 0, 0, 0], np.int32)
        scales = tuple(replace(one, origin=one.origin + moved) for one in self.scales)
        return replace(self, scales=scales, calibration=replace(self.calibration, deciding=deciding))
