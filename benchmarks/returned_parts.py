"""The folders of the story in docs/living.md: `python -m benchmarks.returned_parts DATA/casting FOLDER`.

The first 300 normal images become parts/good; noise is added to the 400 after them (parts/line), to 150 more
(parts/fresh) and to 100 good and 100 defective test images (check).
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from PIL import Image

from mhpatchcore.inputs.datasets import load_dataset
from mhpatchcore.inputs.images import load_pixels

GREY_LEVELS = 5.0
KINDS = 100  # test images of each kind


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("data", type=Path, help="a category with many normal images")
    parser.add_argument("folder", type=Path, help="where parts/ and check/ are made")
    options = parser.parse_args()
    dataset, rng = load_dataset(options.data), np.random.default_rng(0)
    parts, check = options.folder / "parts", options.folder / "check" / "test"
    write(dataset.train[:300], parts / "good")
    write(dataset.train[300:700], parts / "line", rng)
    write(dataset.train[700:850], parts / "fresh", rng)
    for kind in dict.fromkeys(
        sample.kind for sample in sorted(dataset.test, key=lambda one: one.is_anomalous)
    ):
        write([sample.path for sample in dataset.test if sample.kind == kind][:KINDS], check / kind, rng)


def write(images: Sequence[Path], folder: Path, noise: np.random.Generator | None = None) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for path in images:
        pixels = load_pixels(path).astype(np.float64)
        if noise is not None:
            pixels += noise.normal(0, GREY_LEVELS, pixels.shape[:2])[..., None]
        Image.fromarray(np.clip(pixels.round(), 0, 255).astype(np.uint8)).save(folder / f"{path.stem}.png")


if __name__ == "__main__":
    main()
