"""What is learnt at one scale."""

from __future__ import annotations

from dataclasses import dataclass

from mhpatchcore.backbone.session import Backbone
from mhpatchcore.config import Config
from mhpatchcore.metric.moments import Moments
from mhpatchcore.metric.whitening import Whitening
from mhpatchcore.runtime.arrays import Array, Doubles, Floats, Indices
from mhpatchcore.runtime.parallel import one_blas_thread
from mhpatchcore.scoring.graph import Head


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
