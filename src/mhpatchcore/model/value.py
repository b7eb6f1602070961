"""A fitted model, as a value: what a model file holds. Everything that changes a model makes a new one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import nan

import numpy as np

from mhpatchcore.calibration.deciding_patches import NOT_LEARNT
from mhpatchcore.calibration.threshold import Calibration
from mhpatchcore.config import Config
from mhpatchcore.fitting.duplicates import SIDE
from mhpatchcore.fitting.passes import Fitted
from mhpatchcore.fitting.previous import Previous, PreviousScale
from mhpatchcore.fitting.scale import Scale
from mhpatchcore.inputs.camera import MEASURES
from mhpatchcore.model.history import Event
from mhpatchcore.runtime.arrays import Floats
from mhpatchcore.scoring.known_defects import NO_DEFECTS, KnownDefects


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

    @staticmethod
    def of(
        config: Config,
        fitted: Fitted,
        images: tuple[str, ...],
        earlier: Sequence[Previous],
        history: tuple[Event, ...],
        excluded: tuple[str, ...] = (),
        product: str = "",
        defects: KnownDefects = NO_DEFECTS,
    ) -> Model:
        """What a fit has found out; the first images are those of models that have grown."""
        old = tuple(hash_ for one in earlier for hash_ in one.hashes)
        new = range(len(old), len(images))
        hashes = (*old, *(fitted.hashes.get(i, "") for i in new))
        no_thumbnail, no_measures = np.zeros(SIDE**2, np.float16), np.full(len(MEASURES), nan, np.float32)
        thumbnails = _rows([one.thumbnails for one in earlier], fitted.thumbnails, new, no_thumbnail)
        measures = _rows([one.measures for one in earlier], fitted.measures, new, no_measures)
        learnt = sum(one.learnt for one in earlier) + len(fitted.images)
        told = (images, hashes, thumbnails, measures, learnt, history, excluded, product, defects)
        return Model(config, fitted.scales, fitted.calibration, *told)

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
        return {
            self._calibrating(place): float(self.calibration.scores[place]) for place in self.calibration.odd
        }

    def _calibrating(self, place: int) -> str:
        """The name of a calibration image, by its place among the scores."""
        deciding = self.calibration.deciding
        image = deciding[place].image if place < len(deciding) else NOT_LEARNT
        return "" if image == NOT_LEARNT else self.images[image]

    @property
    def patches(self) -> int:
        """How many patches it has learnt from, at all scales together."""
        return sum(scale.moments.n for scale in self.scales)

    @property
    def previous(self) -> Previous:
        """What a larger model can go on from."""
        scales = tuple(PreviousScale(scale.moments, scale.raw, scale.origin) for scale in self.scales)
        return Previous(scales, self.calibration, self.hashes, self.thumbnails, self.measures, self.n_learnt)


def _rows(known: Sequence[Floats], fresh: Mapping[int, Floats], new: range, unread: Floats) -> Floats:
    """What is known of all images, a row for each; `unread` is that of one that could not be read."""
    rows = [fresh.get(i, unread) for i in new]
    return np.concatenate([*known, np.array(rows, unread.dtype).reshape(-1, len(unread))])
