"""mhpatchcore, the preset fast: one view of 224 pixels, as the others have it. ResNet-18."""

from __future__ import annotations

from functools import partial

from benchmarks.peers import measuring, ours
from mhpatchcore import Detector

if __name__ == "__main__":
    fit = partial(ours.fit, preset="fast")
    measuring.main(fit, ours.score, Detector.load, lambda detector: detector.threshold)
