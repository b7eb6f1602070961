"""Is a model that grew as good as one fitted anew? `python -m benchmarks.updating CATEGORY --first 200 --add 67`

Normal images arrive in a random order: `--first` for the fit, then the numbers in `--add` one update after the other.
At the end the model is compared with a fit on all images: moments, AUROC on the test images, the threshold, and how
many good test images exceed it. A fit itself varies with the seed: `--orders` repeats everything, and each time a
second fit with another seed shows how far two equal fits lie apart.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import numpy as np

from benchmarks.commands import Row, integers, parser_of, shown, write_json
from benchmarks.quality import quality_of
from mhpatchcore import Config, Detector, Execution
from mhpatchcore.inputs.datasets import Dataset, load_dataset
from mhpatchcore.presets import preset
from mhpatchcore.runtime.arrays import Doubles

MODELS = {"update": "update", "refit": "refit", "seed": "another seed"}
COLUMNS = {
    "order": "{order}",
    "images": "{images}",
    **{f"AUROC: {head}": f"{{{model}_auroc:.4f}}" for model, head in MODELS.items()},
    **{f"threshold: {head}": f"{{{model}_threshold:.3g}}" for model, head in MODELS.items()},
    "median score: update / refit": "{update_median:.3g} / {refit_median:.3g}",
    "good rejected: update / refit": "{update_rejected:.1%} / {refit_rejected:.1%}",
    "defects found: update / refit": "{update_found:.0%} / {refit_found:.0%}",
    "covariance differs by": "{covariance_differs:.0e}",
}


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("data", type=Path, help="a category with train/good and test/")
    parser.add_argument("--first", type=int, required=True, help="images of the first fit")
    parser.add_argument("--add", type=integers, required=True, help="images of each update, by commas")
    parser.add_argument("--preset", default="default")
    parser.add_argument("--orders", type=int, default=1, help="orders of arrival")
    options = parser.parse_args()
    dataset, config = load_dataset(options.data), preset(options.preset).config
    rows = (order_row(dataset, options.first, options.add, config, seed) for seed in range(options.orders))
    found = shown(rows, COLUMNS)
    for model in ("update", "seed"):
        differences = [row[f"{model}_auroc"] - row["refit_auroc"] for row in found]
        mean, spread = np.mean(differences), np.std(differences)
        print(f"\nAUROC, {MODELS[model]} − refit: {mean:+.4f} ± {spread:.4f} over {len(found)} orders")
    write_json(options.json, found)


def order_row(dataset: Dataset, first: int, steps: Sequence[int], config: Config, seed: int) -> Row:
    """A fit and its updates; one fit on all these images; and one more with another seed."""
    order = np.random.default_rng(seed).permutation(len(dataset.train))
    ends = np.cumsum([first, *steps])
    parts = [[dataset.train[i] for i in part] for part in np.split(order, ends)[:-1]]
    everything = [path for part in parts for path in part]
    grown = Detector.fit(parts[0], config)
    for part in parts[1:]:
        grown = grown.updated(part)
    with tempfile.TemporaryDirectory() as scratch:  # the two fits share what they extract
        execution = Execution(store=scratch)
        refit = Detector.fit(everything, config, execution=execution)
        again = Detector.fit(everything, config, seed=config.seed + 1, execution=execution)
    row: Row = {"order": seed, "images": len(everything)}
    for name, detector in zip(MODELS, (grown, refit, again), strict=True):
        facts = asdict(quality_of(detector, dataset.test)) | {
            "threshold": detector.threshold,
            "median": float(np.median(detector.calibration.scores)),
            "calibration_images": detector.calibration.n,
        }
        row |= {f"{name}_{fact}": value for fact, value in facts.items()}
    covariances = (detector.scales[0].moments.covariance for detector in (grown, refit))
    return row | {"covariance_differs": _difference(*covariances)}


def _difference(a: Doubles, b: Doubles) -> float:
    """The largest difference, relative to the largest entry."""
    return float(np.abs(a - b).max() / np.abs(b).max())


if __name__ == "__main__":
    main()
