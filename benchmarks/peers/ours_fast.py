"""mhpatchcore, the preset fast: one view of 224 pixels, as the others have it. ResNet-18."""

from __future__ import annotations

from functools import partial

from benchmarks.peers import measuring, ours
from mhpatchcore import Detector

if __name__ == "__main__":
    measuring.main(partial(ours.fit, preset="fast"), ours.score, Detector.load)
