"""What does it gain to turn parts to one direction? `python -m benchmarks.pose DATA/pill DATA/bracket_white --turned`

Models are fitted without and with `--pose moments` and judged as in `benchmarks.accuracy`: at most 150 images to learn
from and 120 to test. With --turned each image, with its mask, is first turned by an angle of its own, as parts lie on
a belt.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from PIL import Image

from benchmarks.accuracy.cells import limited
from benchmarks.commands import Row, integers, parser_of, shown, write_json
from mhpatchcore import Config, Detector, Execution
from mhpatchcore.evaluation.evaluate import evaluate
from mhpatchcore.inputs.datasets import Dataset, load_dataset
from mhpatchcore.inputs.window import load_pixels

COLUMNS = {
    "parts": "{category}",
    "`--pose`": "{pose}",
    "image AUROC": "{image:.3f}",
    "pixel AUROC": "{pixel:.3f}",
    "AUPRO": "{aupro:.3f}",
    "seeds": "{seeds}",
}


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument(
        "data", type=Path, nargs="+", help="categories with train/good, test/ and ground_truth/"
    )
    parser.add_argument("--turned", action="store_true", help="turn every image by an angle of its own")
    parser.add_argument("--seeds", type=integers, default=[0, 1, 2])
    parser.add_argument("--train", type=int, default=150)
    parser.add_argument("--test", type=int, default=120)
    options = parser.parse_args()
    found: list[Row] = []
    for folder in options.data:
        dataset = limited(load_dataset(folder), options.train, options.test)
        found += shown(pose_rows(dataset, options.turned, options.seeds), COLUMNS)
    write_json(options.json, found)


def pose_rows(dataset: Dataset, turned: bool, seeds: list[int]) -> Iterator[Row]:
    with TemporaryDirectory() as temporary:
        given = turned_copies(dataset, Path(temporary)) if turned else dataset
        for pose in ("none", "moments"):
            figures = []
            for seed in seeds:
                config = Config(seed=seed, calibration="none", pose=pose)
                execution = Execution(store=Path(temporary) / "store")
                evaluation = evaluate(Detector.fit(list(given.train), config, execution=execution), given)
                assert evaluation.pixel is not None
                figures.append((evaluation.image.auroc, evaluation.pixel.auroc, evaluation.pixel.aupro))
            image, pixel, aupro = np.mean(figures, axis=0)
            name = f"{dataset.name}, turned" if turned else dataset.name
            row = {"category": name, "pose": pose, "image": image, "pixel": pixel, "aupro": aupro}
            yield row | {"seeds": len(seeds), "each": figures}


def turned_copies(dataset: Dataset, folder: Path) -> Dataset:
    """The data set with every image, and its mask, turned by an angle of its own."""
    rng = np.random.default_rng(0)
    train = []
    for number, path in enumerate(dataset.train):
        train.append(folder / f"train{number}.png")
        _write_turned(path, train[-1], rng.uniform(0, 360))
    test = []
    for number, sample in enumerate(dataset.test):
        angle, image, mask = rng.uniform(0, 360), folder / f"test{number}.png", None
        _write_turned(sample.path, image, angle)
        if sample.mask is not None:
            mask = folder / f"mask{number}.png"
            with Image.open(sample.mask) as drawn:
                drawn.convert("L").rotate(angle).save(mask)
        test.append(replace(sample, path=image, mask=mask))
    return replace(dataset, train=tuple(train), test=tuple(test))


def _write_turned(path: Path, target: Path, angle: float) -> None:
    """What comes from beyond the edges has the colour of the border."""
    pixels = load_pixels(path)
    border = np.concatenate([pixels[0], pixels[-1], pixels[:, 0], pixels[:, -1]])
    colour = tuple(int(value) for value in np.median(border, axis=0))
    Image.fromarray(pixels).rotate(angle, Image.Resampling.BICUBIC, fillcolor=colour).save(target)


if __name__ == "__main__":
    main()
