"""Does `monitor` see what changes and keep quiet otherwise? `python -m benchmarks.drift CATEGORY`

Fits on some normal images and scores others, as they are, with changed brightness, contrast, focus, noise and place,
and mixed with defects. For random draws of a few sizes it prints how often each group is called a drift: by scores
against the model's own calibration scores ("own") and against those of 100 other fresh normal images ("fresh"),
and by what the images say about the camera ("camera"), with the words for all images of the group.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from PIL import Image, ImageEnhance, ImageFilter

from benchmarks.commands import Row, integers, parser_of, shown, write_json
from mhpatchcore import Config, Detector
from mhpatchcore.inputs.datasets import load_dataset
from mhpatchcore.inputs.loading import load_pixels
from mhpatchcore.inputs.sources import Images
from mhpatchcore.inspection.drift import camera_drift, compare
from mhpatchcore.runtime.arrays import Array, Doubles

CHANGES: dict[str, Callable[[Image.Image], Image.Image]] = {
    "brightness × 0.85": lambda image: ImageEnhance.Brightness(image).enhance(0.85),
    "10 px aside": lambda image: image.transform(
        image.size, Image.Transform.AFFINE, (1, 0, 10, 0, 1, 0), fillcolor=image.getpixel((0, 0))
    ),
    "brightness × 1.05": lambda image: ImageEnhance.Brightness(image).enhance(1.05),
    "brightness × 1.2": lambda image: ImageEnhance.Brightness(image).enhance(1.2),
    "contrast × 0.8": lambda image: ImageEnhance.Contrast(image).enhance(0.8),
    "contrast × 0.5": lambda image: ImageEnhance.Contrast(image).enhance(0.5),
    "blur of 1 px": lambda image: image.filter(ImageFilter.GaussianBlur(1)),
    "blur of 2 px": lambda image: image.filter(ImageFilter.GaussianBlur(2)),
    "noise of 3 grey levels": lambda image: Image.fromarray(_noisy(np.asarray(image), 3)),
}
DEFECT_SHARES = (0.02, 0.1)
REFERENCE = 100


def main() -> None:
    options = _options()
    columns = {"recent images": "{recent}", "median": "{median:.1f}", "rejected": "{rejected:.1%}"}
    columns |= {
        f"{against}, {n}": f"{{{against}_{n}:.1%}}"
        for against in ("own", "fresh", "camera")
        for n in options.sizes
    }
    columns["what has changed"] = "{words}"
    write_json(options.json, shown(drift_rows(options), columns))


def drift_rows(options: argparse.Namespace) -> Iterator[Row]:
    data = load_dataset(options.data)
    order = np.random.default_rng(0).permutation(len(data.train))
    good = [sample.path for sample in data.test if not sample.is_anomalous]
    fresh = [*[data.train[i] for i in order[options.fit :]], *good][: options.fresh]
    defects = [sample.path for sample in data.test if sample.is_anomalous][: options.changed]
    detector = Detector.fit(
        [data.train[i] for i in order[: options.fit]], Config(calibration=options.calibration)
    )
    plain, bad = scored(detector, fresh), scored(detector, defects)

    def row(recent: str, group: Scored, share: float = 0.0) -> Row:
        called = {
            f"{against}_{n}": called_drift(
                detector, group, bad, share, n, plain.scores if against == "fresh" else None, options.draws
            )
            for against in ("own", "fresh")
            for n in options.sizes
        }
        camera = {
            f"camera_{n}": called_camera(detector, group, bad, share, n, options.draws) for n in options.sizes
        }
        changes = camera_drift(group.measures, detector.model.measures).changes
        return {
            "recent": recent,
            "median": float(np.median(group.scores)),
            "rejected": float((group.scores > detector.threshold).mean()),
            **called,
            **camera,
            "words": ", ".join(change.words for change in changes),
        }

    yield row("unchanged", plain)
    for name, change in CHANGES.items():
        images = (changed(path, change) for path in fresh[: options.changed])
        yield row(name, scored(detector, images))
    for share in DEFECT_SHARES:
        yield row(f"unchanged, {share:.0%} defects", plain, share)


def changed(path: Path, change: Callable[[Image.Image], Image.Image]) -> Array:
    return np.asarray(change(Image.fromarray(load_pixels(path))))


@dataclass(frozen=True, eq=False)
class Scored:
    """Scores (n,) of images, and what they say about the camera (n, m)."""

    scores: Doubles
    measures: Doubles


def scored(detector: Detector, images: Images) -> Scored:
    results = [
        (result.score, result.measures) for result in detector.score_many(images) if result is not None
    ]
    scores, measures = zip(*results, strict=True)
    return Scored(np.array(scores), np.array(measures))


def called_camera(
    detector: Detector, group: Scored, defects: Scored, share: float, n: int, draws: int
) -> float:
    """The share of random draws of n images, some of them defects, in which the camera is said to have changed."""
    rng = np.random.default_rng(n)
    called = 0
    for _ in range(draws):
        bad = rng.binomial(n, share)
        recent = [rng.permutation(group.measures)[: n - bad], rng.choice(defects.measures, bad)]
        called += camera_drift(np.concatenate(recent), detector.model.measures).is_drift
    return called / draws


def called_drift(
    detector: Detector,
    group: Scored,
    defects: Scored,
    share: float,
    n: int,
    fresh: Doubles | None,
    draws: int,
) -> float:
    """The share of random draws of n images, some of them defects, that are called a drift.

    Each is compared with the model's own calibration or, where there are `fresh` scores, with a draw of those.
    """
    rng = np.random.default_rng(n)
    called = 0
    for _ in range(draws):
        bad = rng.binomial(n, share)
        order = rng.permutation(len(group.scores))
        recent = np.concatenate([group.scores[order[: n - bad]], rng.choice(defects.scores, bad)])
        reference = None
        if fresh is not None:  # no image on both sides: the groups hold the same images in the same order
            unused = np.setdiff1d(np.arange(len(fresh)), order[: n - bad])
            reference = fresh[rng.permutation(unused)[:REFERENCE]]
        called += compare(recent, detector.calibration, reference).is_drift
    return called / draws


def _noisy(pixels: Array, sigma: float) -> Array:
    noise = np.random.default_rng(0).normal(scale=sigma, size=pixels.shape)
    noisy: Array = np.clip(pixels + noise, 0, 255).astype(np.uint8)
    return noisy


def _options() -> argparse.Namespace:
    parser = parser_of(__doc__)
    parser.add_argument("data", type=Path, help="a category with many normal images")
    parser.add_argument("--fit", type=int, default=250, help="normal images to learn from")
    parser.add_argument("--fresh", type=int, default=500, help="at most so many other normal images")
    parser.add_argument("--changed", type=int, default=150, help="so many of them are changed")
    parser.add_argument("--sizes", type=integers, default=[20, 50, 100], help="images in a draw, by commas")
    parser.add_argument("--draws", type=int, default=300, help="random draws")
    parser.add_argument("--calibration", default="cross-image", help="cross-image or held-out")
    return parser.parse_args()


if __name__ == "__main__":
    main()
