"""The folders of the story in docs/tutorial.md: `python -m benchmarks.returned_parts CATEGORY FOLDER`

The first 300 normal images become parts/good; noise is added to the 400 after them (parts/line), to 150 more
(parts/fresh) and to 100 test images of each kind (check/test). Prints how many images each folder has.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
from PIL import Image

from benchmarks.commands import Row, parser_of, shown, write_json
from mhpatchcore.inputs.datasets import load_dataset
from mhpatchcore.inputs.loading import load_pixels

GREY_LEVELS = 5.0
KINDS = 100  # test images of each kind
COLUMNS = {"folder": "{folder}", "images": "{images}", "noise, grey levels": "{noise:g}"}


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("data", type=Path, help="a category with many normal images")
    parser.add_argument("folder", type=Path, help="where parts/ and check/ are made")
    options = parser.parse_args()
    write_json(options.json, shown(made_folders(options.data, options.folder), COLUMNS))


def made_folders(data: Path, folder: Path) -> Iterator[Row]:
    dataset, rng = load_dataset(data), np.random.default_rng(0)
    parts = {
        "parts/good": dataset.train[:300],
        "parts/line": dataset.train[300:700],
        "parts/fresh": dataset.train[700:850],
    }
    for sample in sorted(dataset.test, key=lambda one: one.is_anomalous):
        name = f"check/test/{sample.kind}"
        parts[name] = (*parts.get(name, ()), sample.path)[:KINDS]
    for name, images in parts.items():
        noise = 0.0 if name == "parts/good" else GREY_LEVELS
        write(images, folder / name, noise, rng)
        yield {"folder": name, "images": len(images), "noise": noise}


def write(images: Sequence[Path], folder: Path, noise: float, rng: np.random.Generator) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for path in images:
        pixels = load_pixels(path).astype(np.float64)
        if noise:
            pixels += rng.normal(0, noise, pixels.shape[:2])[..., None]
        Image.fromarray(np.clip(pixels.round(), 0, 255).astype(np.uint8)).save(folder / f"{path.stem}.png")


if __name__ == "__main__":
    main()
