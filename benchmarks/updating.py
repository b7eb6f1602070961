"""Is a model that grew as good as one fitted anew? `python -m benchmarks.updating CATEGORY --first 200 --add 67`

Normal images arrive in a random order: `--first` for the fit, then the numbers in `--add` one update after the other.
At the end the model is compared with a fit on all images: moments and whitening, AUROC on the test images, the
threshold, and how many good test images exceed it. A fit itself varies with the order of the images and with the seed:
`--orders` repeats everything, and each time a second fit with another seed shows how far two equal fits lie apart.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.accuracy.descriptors import Descriptors, load_descriptors
from benchmarks.accuracy.judging import aurocs, scored_test
from benchmarks.cached import CachedExtraction, network
from mhpatchcore.backbone.session import Backbone
from mhpatchcore.config import Config
from mhpatchcore.fitting import Fitted, learn
from mhpatchcore.parallel import one_blas_thread
from mhpatchcore.past import Past
from mhpatchcore.presets import preset


def main() -> None:
    options = _options()
    config = preset(options.preset).config
    backbone = network(config)
    data = load_descriptors(Path(options.data), config, None, Path(options.cache), options.limit)
    steps = [int(n) for n in options.add.split(",")]
    print(HEAD)
    rows = []
    for seed in range(options.orders):
        order = np.random.default_rng(seed).permutation(len(data.train)).tolist()
        rows.append(compare(data, order, options.first, steps, backbone, config))
        print(_line(rows[-1]), flush=True)
    for name in ("update", "refit"):
        values = [row[name]["image_auroc"] for row in rows]
        print(
            f"{name}: image AUROC {np.mean(values):.4f} ± {np.std(values):.4f} over {len(rows)} orders of arrival"
        )
    if options.out:
        Path(options.out).write_text(json.dumps(rows, indent=1) + "\n")


def compare(
    data: Descriptors, order: list[int], first: int, steps: list[int], backbone: Backbone, config: Config
) -> dict[str, Any]:
    """A fit and its updates against one fit on all these images."""
    grown = _learn(data, order[:first], backbone, config)
    seen = first
    for step in steps:
        print(f"{seen} images, {step} more", file=sys.stderr, flush=True)
        past = _past(grown, seen)
        # images of the past go by their number in the order of arrival, as in a model
        grown = _learn(data, order[seen : seen + step], backbone, config, [past], seen)
        seen += step
    anew = _learn(data, order[:seen], backbone, config)
    other = _learn(data, order[:seen], backbone, config.with_changes(seed=config.seed + 1))
    return _row(data, seen, {"update": grown, "refit": anew, "another seed": other}, config)


def _learn(
    data: Descriptors,
    images: list[int],
    backbone: Backbone,
    config: Config,
    pasts: list[Past] | None = None,
    first: int = 0,
) -> Fitted:
    arrived = np.full(first + len(images), -1)
    arrived[first:] = images
    extraction = CachedExtraction(
        _Reordered(data.train, arrived), range(first, len(arrived)), backbone, config
    )
    with one_blas_thread():
        return learn(extraction, pasts=pasts or [])


class _Reordered:
    """Descriptors in the order of arrival."""

    def __init__(self, rows: Any, order: Any) -> None:
        self.rows, self.order = rows, order

    def __getitem__(self, index: int) -> Any:
        return self.rows[self.order[index]]


def _past(fitted: Fitted, n: int) -> Past:
    bank = fitted.bank
    return Past(fitted.moments, bank.raw, bank.origin, fitted.calibration, ("gone",) * n)


def _row(data: Descriptors, n: int, models: dict[str, Fitted], config: Config) -> dict[str, Any]:
    row: dict[str, Any] = {"images": n}
    normal = np.array([not sample.is_anomalous for sample in data.dataset.test])
    for name, fitted in models.items():
        scored = scored_test(data, fitted.whitening, fitted.bank, config)
        image, pixel, _ = aurocs(data, scored, config)
        scores = np.array([one.score for one in scored])
        threshold = fitted.calibration.threshold
        row[name] = {
            "image_auroc": image,
            "pixel_auroc": pixel,
            "threshold": threshold,
            "median_calibration_score": float(np.median(fitted.calibration.scores)),
            "calibration_images": fitted.calibration.n,
            "good_rejected": int((scores[normal] > threshold).sum()),
            "good": int(normal.sum()),
            "defects_found": int((scores[~normal] > threshold).sum()),
        }
    grown, anew = models["update"], models["refit"]
    row["moments_differ_by"] = _difference(grown.moments.covariance, anew.moments.covariance)
    metrics = (fitted.whitening.A.T @ fitted.whitening.A for fitted in (grown, anew))
    row["whitening_differs_by"] = _difference(*metrics)
    return row


def _difference(a: Any, b: Any) -> float:
    """The largest difference, relative to the largest entry."""
    return float(np.abs(a - b).max() / np.abs(b).max())


HEAD = (
    "| images | image AUROC: update | refit | another seed | pixel AUROC: update | refit | threshold: update | refit "
    "| good rejected: update | refit | covariance differs by |\n" + "|---" * 11 + "|"
)


def _line(row: dict[str, Any]) -> str:
    both, all_three = (row["update"], row["refit"]), (row["update"], row["refit"], row["another seed"])
    cells = [
        str(row["images"]),
        *(f"{one['image_auroc']:.4f}" for one in all_three),
        *(f"{one['pixel_auroc']:.4f}" for one in both),
        *(f"{one['threshold']:.3g}" for one in both),
        *(f"{one['good_rejected']} of {one['good']}" for one in both),
        f"{row['moments_differ_by']:.0e}",
    ]
    return "| " + " | ".join(cells) + " |"


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("data", help="one category with labelled test images")
    parser.add_argument("--first", type=int, required=True, help="images of the first fit")
    parser.add_argument("--add", required=True, help="images of each update, separated by commas")
    parser.add_argument("--preset", default="default")
    parser.add_argument("--limit", type=int, default=None, help="at most so many training images")
    parser.add_argument("--cache", default=".cache/descriptors", help="folder for descriptors")
    parser.add_argument("--orders", type=int, default=1, help="orders of arrival")
    parser.add_argument("--out", default=None, help="write the rows into this JSON file")
    return parser.parse_args()


if __name__ == "__main__":
    main()
