"""mhpatchcore, default settings (two scales), ResNet-18."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from benchmarks.peers import measuring
from mhpatchcore import Detector


def fit(images: Sequence[Path], weights: str, model: str, preset: str = "default") -> Detector:
    Detector.fit(images, preset=preset, backbone="resnet18", weights=weights).save(model)
    return Detector.load(model)


def score(detector: Detector, image: Path) -> float:
    result = detector.score(image)
    _ = result.map  # the others make one too
    return result.score


if __name__ == "__main__":
    measuring.main(fit, score, Detector.load, lambda detector: detector.threshold)
