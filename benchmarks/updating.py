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
from math import sqrt
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.cached import CachedExtraction, cached_descriptors, network
from mhpatchcore.backbone.session import Backbone
from mhpatchcore.config import Config
from mhpatchcore.evaluation.metrics import auroc
from mhpatchcore.fitting.passes import Fitted, learn
from mhpatchcore.fitting.past import Past
from mhpatchcore.inputs.datasets import load_dataset
from mhpatchcore.presets import preset
from mhpatchcore.runtime.arrays import Array, Floats, Mask
from mhpatchcore.runtime.parallel import available_cores, one_blas_thread, ordered_map
from mhpatchcore.scoring.rules import Scorer


def main() -> None:
    options = _options()
    config = preset(options.preset).config
    backbone, cache = network(config), Path(options.cache)
    dataset = load_dataset(options.data)
    train = cached_descriptors(dataset.train, f"{options.data}-train", backbone, config, cache)
    paths = [sample.path for sample in dataset.test]
    test = cached_descriptors(paths, f"{options.data}-test", backbone, config, cache)
    labels = np.array([sample.is_anomalous for sample in dataset.test])
    steps = [int(n) for n in options.add.split(",")]
    print(HEAD)
    rows = []
    for seed in range(options.orders):
        order = np.random.default_rng(seed).permutation(len(train)).tolist()
        models = grown_and_fitted(train, order, options.first, steps, backbone, config)
        rows.append(_row(options.first + sum(steps), models, test, labels, config))
        print(_line(rows[-1]), flush=True)
    for name in ("update", "another seed"):
        differences = [row[name]["image_auroc"] - row["refit"]["image_auroc"] for row in rows]
        print(
            f"{name} − refit: {np.mean(differences):+.4f} ± {np.std(differences):.4f} over {len(rows)} orders"
        )
    if options.out:
        Path(options.out).write_text(json.dumps(rows, indent=1) + "\n")


def grown_and_fitted(
    train: Array, order: list[int], first: int, steps: list[int], backbone: Backbone, config: Config
) -> dict[str, Fitted]:
    """A fit and its updates; one fit on all these images; and one more with another seed."""
    grown = _learn(train, order[:first], backbone, config)
    seen = first
    for step in steps:
        print(f"{seen} images, {step} more", file=sys.stderr, flush=True)
        bank = grown.bank
        past = Past(grown.moments, bank.raw, bank.origin, grown.calibration, ("gone",) * seen)
        grown = _learn(train, order[seen : seen + step], backbone, config, past)
        seen += step
    return {
        "update": grown,
        "refit": _learn(train, order[:seen], backbone, config),
        "another seed": _learn(train, order[:seen], backbone, config.with_changes(seed=config.seed + 1)),
    }


def _learn(
    train: Array, images: list[int], backbone: Backbone, config: Config, past: Past | None = None
) -> Fitted:
    """Images go by their number in the order of arrival, as in a model."""
    gone = len(past.images) if past else 0
    arrived = {gone + i: train[image] for i, image in enumerate(images)}
    with one_blas_thread():
        extraction = CachedExtraction(arrived, list(arrived), backbone, config)
        return learn(extraction, pasts=[past] if past else [])


def _row(n: int, models: dict[str, Fitted], test: Array, labels: Mask, config: Config) -> dict[str, Any]:
    row: dict[str, Any] = {"images": n}
    for name, fitted in models.items():
        scores = test_scores(fitted, test, config)
        threshold = fitted.calibration.threshold
        row[name] = {
            "image_auroc": auroc(labels, scores),
            "threshold": threshold,
            "median_calibration_score": float(np.median(fitted.calibration.scores)),
            "calibration_images": fitted.calibration.n,
            "good_rejected": int((scores[~labels] > threshold).sum()),
            "good": int((~labels).sum()),
            "defects_found": int((scores[labels] > threshold).sum()),
            "defects": int(labels.sum()),
        }
    grown, anew = models["update"], models["refit"]
    row["moments_differ_by"] = _difference(grown.moments.covariance, anew.moments.covariance)
    metrics = (fitted.whitening.A.T @ fitted.whitening.A for fitted in (grown, anew))
    row["whitening_differs_by"] = _difference(*metrics)
    return row


def test_scores(fitted: Fitted, test: Array, config: Config) -> Floats:
    side = int(sqrt(test.shape[1]))
    scorer = Scorer(fitted.bank.z, (side, side), config)
    with one_blas_thread():
        work = ordered_map(lambda u: scorer(fitted.whitening(u)).score, test, available_cores())
        return np.array(list(work))


def _difference(a: Any, b: Any) -> float:
    """The largest difference, relative to the largest entry."""
    return float(np.abs(a - b).max() / np.abs(b).max())


HEAD = (
    "| images | image AUROC: update | refit | another seed | threshold: update | refit | median score: update | refit "
    "| good rejected: update | refit | covariance differs by |\n" + "|---" * 11 + "|"
)


def _line(row: dict[str, Any]) -> str:
    both, all_three = (row["update"], row["refit"]), (row["update"], row["refit"], row["another seed"])
    cells = [
        str(row["images"]),
        *(f"{one['image_auroc']:.4f}" for one in all_three),
        *(f"{one['threshold']:.3g}" for one in both),
        *(f"{one['median_calibration_score']:.3g}" for one in both),
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
    parser.add_argument("--cache", default=".cache/descriptors", help="folder for descriptors")
    parser.add_argument("--orders", type=int, default=1, help="orders of arrival")
    parser.add_argument("--out", default=None, help="write the rows into this JSON file")
    return parser.parse_args()


if __name__ == "__main__":
    main()
