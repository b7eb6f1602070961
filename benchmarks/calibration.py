"""Does the threshold keep its promise? `python -m benchmarks.calibration CATEGORY [CATEGORY …]`

For each category (train/good, test/…), both rules and several numbers of calibration images: which share of further
normal images exceeds the threshold, and which share of the test's defects, as means and 5 to 95 % over the splits.

scores   one fit, calibrated on all training images; their scores are split at random into those that make the
         threshold and those that test it. Cheap, so there are many splits.
fits     the true test: fit and calibrate on a random half of the training images, score the other half. A few splits.

To expect of the rank r = ⌈(n + 1)(1 − rate)⌉ are 1 − r/(n + 1), whatever the distribution; a tail aims at the stated
rate itself, unless there are too few scores for one, where the rank decides.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import product
from pathlib import Path
from typing import NamedTuple

import numpy as np

from benchmarks.commands import Row, integers, parser_of, shares, shown, write_json
from benchmarks.quality import scores_of
from mhpatchcore import Detector
from mhpatchcore.calibration.conformal import calibrate, conformal_rank
from mhpatchcore.config import CHOICES, Config
from mhpatchcore.inputs.datasets import Dataset, load_dataset
from mhpatchcore.inputs.sources import spread
from mhpatchcore.presets import preset
from mhpatchcore.runtime.arrays import Doubles

ALL = 100_000  # calibration images: more than any category has
LEAST_TESTED = 20
RULES = CHOICES["threshold"]
COLUMNS = {
    "category": "{category}",
    "splits": "{splits} of {of}",
    "calibrated on": "{calibration_images}",
    "tested on": "{tested}",
    "stated": "{stated:.0%}",
    "to expect": "{expected:.1%}",
    **{
        f"{head}: {rule}": f"{{{rule}_{name}:{form}}} ({{{rule}_{name}_low:{form}}} – {{{rule}_{name}_high:{form}}})"
        for head, name, form in (("realised", "realised", ".1%"), ("defects found", "found", ".0%"))
        for rule in RULES
    },
}
Shares = dict[
    str, tuple[float, float]
]  # of further normal images and of defects above the threshold, by rule


class Case(NamedTuple):
    """Thresholds at a rate from n scores."""

    n: int
    rate: float

    def shares_above(self, scores: Doubles, further: Doubles, defects: Doubles) -> Shares:
        """What lies above the thresholds that scores (n,) make."""
        found = {}
        for rule in RULES:
            limit = calibrate(scores, scores, self.rate, "", rule=rule).threshold
            found[rule] = float((further > limit).mean()), float((defects > limit).mean())
        return found


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("data", nargs="+", type=Path, help="categories with train/good and test/")
    parser.add_argument("--calibrated", type=integers, default=[30, 60, 100, 200], help="numbers of images")
    parser.add_argument("--rates", type=shares, default=[0.01, 0.05], help="stated rates, by commas")
    parser.add_argument("--splits", type=int, default=200, help="of the scores of one fit")
    parser.add_argument("--fits", type=int, default=3, help="on random halves; 0 for none")
    parser.add_argument("--limit", type=int, help="at most so many normal images")
    parser.add_argument("--preset", default="default")
    parser.add_argument("--backbone", help="another network, or an .onnx file")
    parser.add_argument("--weights", help="a weights file for the network")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    config = preset(options.preset).config.with_changes(calibration_images=ALL)
    if options.backbone:
        config = config.with_changes(backbone=options.backbone)

    def rows() -> Iterator[Row]:
        for data in options.data:
            dataset = load_dataset(data)
            if options.limit and options.limit < len(dataset.train):
                dataset = dataset.subset(options.limit)
            cases = [Case(*case) for case in product(options.calibrated, options.rates)]
            if options.splits:
                detector = Detector.fit(dataset.train, config, weights=options.weights)
                scores = np.asarray(detector.calibration.scores, np.float64)
                defects = scores_of(detector, defects_of(dataset))
                yield from score_rows(dataset.name, scores, defects, cases, options.splits, options.seed)
            if options.fits:
                yield from fit_rows(dataset, config, options.weights, cases, options.fits, options.seed)

    write_json(options.json, shown(rows(), COLUMNS))


def score_rows(
    category: str, scores: Doubles, defects: Doubles, cases: Sequence[Case], splits: int, seed: int
) -> Iterator[Row]:
    """Random splits of the calibration scores (N,) of one fit."""
    for case in cases:
        if case.n + LEAST_TESTED > len(scores):
            continue
        shares_above = []
        for split in range(splits):
            order = np.random.default_rng([seed, split]).permutation(len(scores))
            ours, further = scores[order[: case.n]], scores[order[case.n :]]
            shares_above.append(case.shares_above(ours, further, defects))
        yield _row(category, "scores", case, len(scores) - case.n, shares_above)


def fit_rows(
    dataset: Dataset, config: Config, weights: str | None, cases: Sequence[Case], splits: int, seed: int
) -> Iterator[Row]:
    """Fits on random halves of the normal images; a threshold from n of them is that of `calibration_images` = n."""
    found: dict[Case, list[Shares]] = defaultdict(list)
    half = len(dataset.train) // 2
    for split in range(splits):
        order = np.random.default_rng([seed, split]).permutation(len(dataset.train))
        learnt, others = ([dataset.train[i] for i in part] for part in (order[:half], order[half:]))
        detector = Detector.fit(learnt, config, weights=weights)
        scores = np.asarray(detector.calibration.scores, np.float64)
        further, defects = scores_of(detector, others), scores_of(detector, defects_of(dataset))
        for case in cases:
            if case.n <= len(scores):
                ours = scores[spread(len(scores), case.n)]
                found[case].append(case.shares_above(ours, further, defects))
    for case, shares_above in found.items():
        yield _row(dataset.name, "fits", case, len(dataset.train) - half, shares_above)


def defects_of(dataset: Dataset) -> list[Path]:
    return [sample.path for sample in dataset.test if sample.is_anomalous]


def _row(category: str, of: str, case: Case, tested: int, splits: Sequence[Shares]) -> Row:
    row: Row = {
        "category": category,
        "splits": len(splits),
        "of": of,
        "calibration_images": case.n,
        "tested": tested,
        "stated": case.rate,
        "expected": 1 - conformal_rank(case.n, case.rate) / (case.n + 1),
    }
    for rule in RULES:
        for i, name in enumerate(("realised", "found")):
            values = [shares_above[rule][i] for shares_above in splits]
            low, high = np.quantile(values, [0.05, 0.95])
            named = {"": np.mean(values), "_low": low, "_high": high}
            row |= {f"{rule}_{name}{end}": float(value) for end, value in named.items()}
    return row


if __name__ == "__main__":
    main()
