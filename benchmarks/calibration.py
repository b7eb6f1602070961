"""Does the threshold keep its promise? `python -m benchmarks.calibration DATA [DATA …] --out FOLDER`

DATA are folders of normal images (train/good of a category), or the word vials for the demo's made-up ones. Each of
many random splits fits on some images and counts how many others exceed the threshold, for both ways of calibrating.

With n honest calibration scores and rank r = ⌈(n+1)(1−α)⌉, the share of further normals above the threshold varies
from split to split as Beta(n+1−r, r), and their number among m test images as BetaBinomial(m, n+1−r, r): its mean is
the rate to expect, its variance over the number of splits bounds the mean of the splits.
"""

from __future__ import annotations

import argparse
import csv
import json
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from math import ceil, sqrt
from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import betabinom

from benchmarks.cached import CachedExtraction, cached_descriptors, network
from mhpatchcore.backbone.session import Backbone
from mhpatchcore.calibration.cross_image import HELD_OUT_SHARE
from mhpatchcore.config import Config
from mhpatchcore.demo.dataset import vial_image
from mhpatchcore.fitting.passes import Fitted, learn
from mhpatchcore.inputs.images import ImageLike, images_below, spread
from mhpatchcore.presets import preset
from mhpatchcore.runtime.arrays import Array, Floats
from mhpatchcore.runtime.parallel import available_cores, one_blas_thread, ordered_map
from mhpatchcore.scoring.rules import Scorer

VIALS = "vials"


@dataclass(frozen=True)
class Count:
    """How many of `tested` normal images exceeded a threshold in one split."""

    data: str
    method: str
    kind: str
    split: int
    stated: float
    calibration_images: int
    tested: int
    exceeded: int

    @property
    def rank(self) -> int:
        return min(ceil((self.calibration_images + 1) * (1 - self.stated) - 1e-9), self.calibration_images)

    @property
    def law(self) -> Any:
        """How many would exceed it if the calibration scores were honest."""
        return betabinom(self.tested, self.calibration_images + 1 - self.rank, self.rank)


def main() -> None:
    options = _options()
    config = preset(options.preset).config.with_changes(calibration_images=options.calibration_images)
    if options.rows:
        config = config.with_changes(K=options.rows)
    rates = [float(rate) for rate in options.rates.split(",")]
    backbone = network(config)
    counts: list[Count] = []
    for data in options.data:
        images = _images(data, options.pool)
        descriptors = cached_descriptors(images, data, backbone, config, Path(options.cache))
        counts += study(_name(data), descriptors, backbone, config, rates, options)
        print(table(counts), flush=True)
    out = Path(options.out)
    out.mkdir(parents=True, exist_ok=True)
    rows = summaries(counts)
    (out / "calibration.json").write_text(json.dumps(rows, indent=1) + "\n")
    with (out / "calibration.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, list(asdict(counts[0])), lineterminator="\n")
        writer.writeheader()
        writer.writerows(asdict(count) for count in counts)


def study(
    name: str, descriptors: Array, backbone: Backbone, config: Config, rates: Sequence[float], options: Any
) -> Iterator[Count]:
    for split in range(options.splits):
        print(f"{name}: split {split + 1} of {options.splits}", file=sys.stderr, flush=True)
        order = np.random.default_rng([options.seed, split]).permutation(len(descriptors))
        fit, test = order[: options.fit].tolist(), order[options.fit :][: options.test]
        for method, fitted in fits(descriptors, fit, backbone, config).items():
            scores, peaks = scored(descriptors, test, fitted, backbone, config)
            for rate in rates:
                calibration = fitted.calibration.at_rate(rate)
                limits = {
                    "image": (scores, calibration.threshold),
                    "pixel": (peaks, calibration.pixel_threshold),
                }
                for kind, (values, limit) in limits.items():
                    above = int((values > limit).sum())
                    yield Count(name, method, kind, split, rate, calibration.n, len(values), above)


def fits(descriptors: Array, images: Sequence[int], backbone: Backbone, config: Config) -> dict[str, Fitted]:
    """The model of these images with a cross-image threshold, and of four fifths of them with a held-out one."""
    apart = {images[i] for i in spread(len(images), round(HELD_OUT_SHARE * len(images)))}
    held_out = config.with_changes(calibration="held-out")

    def extraction(taken: Iterable[int], settings: Config) -> CachedExtraction:
        return CachedExtraction(descriptors, list(taken), backbone, settings)

    with one_blas_thread():
        rest = extraction((i for i in images if i not in apart), held_out)
        return {
            "cross-image": learn(extraction(images, config)),
            "held-out": learn(rest, extraction(apart, held_out)),
        }


def scored(
    descriptors: Array, test: Array, fitted: Fitted, backbone: Backbone, config: Config
) -> tuple[Floats, Floats]:
    """Scores and map peaks of images that the model has not seen."""
    scorer = Scorer(fitted.bank.z, backbone.info.grid, config)
    with one_blas_thread():
        results = list(
            ordered_map(lambda i: scorer(fitted.whitening(descriptors[i])), test, available_cores())
        )
    return np.array([one.score for one in results]), np.array([one.peak for one in results])


def summaries(counts: Sequence[Count]) -> list[dict[str, Any]]:
    """Per data set, method, kind and rate: what was expected and what came."""
    groups: dict[tuple[Any, ...], list[Count]] = {}
    for count in counts:
        groups.setdefault((count.data, count.kind, count.method, count.stated), []).append(count)
    rows = []
    for (data, kind, method, stated), group in groups.items():
        one = group[0]
        realised = np.array([count.exceeded / count.tested for count in group])
        expected, margin = one.law.mean() / one.tested, 1.96 * one.law.std() / one.tested / sqrt(len(group))
        low, high = one.law.ppf(0.025) / one.tested, one.law.ppf(0.975) / one.tested
        rows.append(
            {
                "data": data,
                "kind": kind,
                "method": method,
                "stated": stated,
                "calibration_images": one.calibration_images,
                "tested": one.tested,
                "splits": len(group),
                "expected": expected,
                "expected_low": expected - margin,
                "expected_high": expected + margin,
                "realised": float(realised.mean()),
                "splits_within_95": float(((realised >= low) & (realised <= high)).mean()),
                "worst_split": float(realised.max()),
            }
        )
    return rows


def table(counts: Sequence[Count]) -> str:
    """Markdown: the mean over splits beside the 95 % range of that mean for honest scores."""
    lines = [
        "| normals | threshold | calibration | images | stated | to expect (95 % range) | realised | splits in 95 % |",
        "|---" * 8 + "|",
    ]
    for row in summaries(counts):
        promise = f"{row['expected']:.2%} ({max(row['expected_low'], 0):.2%} – {row['expected_high']:.2%})"
        lines.append(
            f"| {row['data']} | {row['kind']} | {row['method']} | {row['calibration_images']} | {row['stated']:.0%} "
            f"| {promise} | {row['realised']:.2%} | {row['splits_within_95']:.0%} of {row['splits']} |"
        )
    return "\n".join(lines)


def _images(data: str, most: int) -> list[ImageLike]:
    if data == VIALS:
        return [vial_image(seed)[0] for seed in range(most)]
    images = images_below(Path(data))
    order = np.random.default_rng(0).permutation(len(images))[:most]
    return [images[i] for i in sorted(order)]


def _name(data: str) -> str:
    """The category: casting for …/casting/train/good."""
    parts = [part for part in Path(data).parts if part not in ("train", "good")]
    return parts[-1] if parts else data


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("data", nargs="+", help="folders of normal images, or vials")
    parser.add_argument("--out", required=True, help="folder for calibration.json and calibration.csv")
    parser.add_argument("--rates", default="0.01,0.05,0.1", help="stated rates, separated by commas")
    parser.add_argument("--splits", type=int, default=25)
    parser.add_argument("--fit", type=int, default=120, help="images per fit")
    parser.add_argument("--test", type=int, default=200, help="further images per split")
    parser.add_argument("--pool", type=int, default=600, help="at most so many images of a folder")
    parser.add_argument("--preset", default="default")
    parser.add_argument("--rows", type=int, default=None, help="rows of the bank, if not the preset's")
    parser.add_argument("--calibration-images", type=int, default=100)
    parser.add_argument("--cache", default=".cache/descriptors", help="folder for descriptors")
    parser.add_argument("--seed", type=int, default=0)
    return parser.parse_args()


if __name__ == "__main__":
    main()
