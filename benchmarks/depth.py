"""Do deep images score like 8-bit ones? `python -m benchmarks.depth CATEGORY --train 80`

Copies of the images are made with 12 and 16 bits and in floating-point numbers, each with an exposure of its own: black
at some value, so many steps for each of the 256 grey levels, the steps between filled at random.
For each kind models are fitted and tested, with the window learnt from the normals. AUROC is the mean over a few seeds:
which patches a bank takes hangs on the smallest differences, and moves a single AUROC more than the depth does.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np

from benchmarks.commands import Row, parser_of, shown, write_json
from benchmarks.quality import scores_of
from mhpatchcore import Detector
from mhpatchcore.evaluation.metrics import auroc
from mhpatchcore.inputs.datasets import load_dataset
from mhpatchcore.inputs.loading import load_pixels
from mhpatchcore.runtime.arrays import Array

# name: value of black, steps for a grey level, type
EXPOSURES: dict[str, tuple[float, float, str]] = {
    "8 bits": (0, 1, "uint8"),
    "12 bits, full range": (0, 16, "uint16"),
    "12 bits, a third of the range": (180, 5, "uint16"),
    "16 bits, full range": (0, 256, "uint16"),
    "16 bits, a tenth of the range": (3000, 25, "uint16"),
    "floats from -0.1 to 0.9": (-0.1, 1 / 256, "float32"),
}


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("data", type=Path, help="a category with train/good and test/")
    parser.add_argument("--train", type=int, default=80, help="images to learn from")
    parser.add_argument("--preset", default="default")
    parser.add_argument("--seeds", type=int, default=3)
    options = parser.parse_args()
    columns = {
        "images": "{images}",
        "window": "{window}",
        "AUROC": "{auroc:.4f}",
        "over the seeds": "{least:.4f}–{most:.4f}",
        "difference": "{difference:+.4f}",
    }
    write_json(options.json, shown(depth_rows(options), columns))


def depth_rows(options: argparse.Namespace) -> Iterator[Row]:
    data = load_dataset(options.data).subset(options.train)
    labels = np.array([sample.is_anomalous for sample in data.test])
    first = None
    for name in EXPOSURES:
        test, each = exposed([sample.path for sample in data.test], name), []
        for seed in range(options.seeds):
            detector = Detector.fit(exposed(data.train, name), preset=options.preset, seed=seed)
            each.append(auroc(labels, scores_of(detector, test)))
        mean = float(np.mean(each))
        first = mean if first is None else first
        row = {
            "images": name,
            "window": str(detector.config.window),
            "auroc": mean,
            "difference": mean - first,
        }
        yield row | {"least": min(each), "most": max(each)}


def exposed(paths: Sequence[Path], name: str) -> Callable[[], Iterator[Array]]:
    """Something that gives the images in one exposure, again and again the same."""
    black, steps, kind = EXPOSURES[name]

    def run() -> Iterator[Array]:
        for number, path in enumerate(paths):
            pixels, rng = load_pixels(path), np.random.default_rng(number)
            if kind == "uint8":
                yield pixels
                continue
            values = black + steps * (pixels + rng.random(pixels.shape, np.float32))
            yield values.astype(kind)

    return run


if __name__ == "__main__":
    main()
