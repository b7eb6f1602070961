"""Does a score depend on what lies outside of the region of interest? `python -m benchmarks.outside DATA/bottle`

A polygon is drawn over the images. Some are learnt from, and test images are scored as they are and with everything
outside of the polygon replaced by noise.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from benchmarks.commands import Row, parser_of, shown, write_json
from mhpatchcore import Config, Detector
from mhpatchcore.inputs.datasets import load_dataset
from mhpatchcore.inputs.loading import load_pixels
from mhpatchcore.inputs.regions import Polygons
from mhpatchcore.inputs.sources import spread
from mhpatchcore.runtime.arrays import Array

POLYGON = (((0.5, 0.05), (0.93, 0.3), (0.9, 0.75), (0.5, 0.95), (0.1, 0.72), (0.08, 0.3)),)


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("data", type=Path, help="a category with train/good and test/")
    parser.add_argument("--train", type=int, default=40, help="images to learn from")
    parser.add_argument("--test", type=int, default=20, help="images to score")
    parser.add_argument("--sizes", default="224,448/2")
    options = parser.parse_args()
    columns = {"test images": "{images}", "equal scores": "{equal}", "equal maps": "{maps}"}
    rows = outside_rows(options.data, options.train, options.test, options.sizes)
    write_json(options.json, shown(rows, columns))


def outside_rows(data: Path, train: int, test: int, sizes: str) -> Iterator[Row]:
    dataset, region = load_dataset(data).subset(train), Polygons(POLYGON)
    detector = Detector.fit(list(dataset.train), Config(sizes=sizes, roi=region))
    images = [load_pixels(dataset.test[i].path) for i in spread(len(dataset.test), test)]
    pairs = [(detector.score(pixels), detector.score(noisy(pixels, region))) for pixels in images]
    yield {
        "images": len(pairs),
        "equal": sum(one.score == other.score for one, other in pairs),
        "maps": sum(np.array_equal(one.map, other.map) for one, other in pairs),
    }


def noisy(pixels: Array, region: Polygons) -> Array:
    """(H, W, 3) with noise in the place of all that lies outside."""
    height, width = size = (pixels.shape[0], pixels.shape[1])
    outside = ~region.over((0, 0, height, width), height, width, size)
    changed = pixels.copy()
    changed[outside] = np.random.default_rng(0).integers(0, 256, (int(outside.sum()), 3))
    return changed


if __name__ == "__main__":
    main()
