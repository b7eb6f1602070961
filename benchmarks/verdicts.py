"""Which parts are rejected? `python -m benchmarks.verdicts DATA` for a folder of categories (train/good, test/…).

defaults   a fit with defaults on each category's training images: good parts rejected and defects found on its test
           images at the default threshold and at other rates, beside what is found where the threshold rejects a true
           2 % of the test's own good parts.
--fits N   the promise: N fits on random 60 % of all normal images, the other 40 % and the defects scored. Which share
           of the others exceeds the threshold, against what is stated, and which share of the defects does; from n of
           the calibration scores and from all; and what is found at a true rate.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from benchmarks.commands import Row, integers, listed, parser_of, shares, shown, write_json
from benchmarks.quality import scores_of
from mhpatchcore import Detector
from mhpatchcore.calibration.threshold import calibrate, threshold_at
from mhpatchcore.evaluation.metrics import auroc
from mhpatchcore.inputs.datasets import Dataset, load_dataset
from mhpatchcore.runtime.arrays import Doubles

TRUE_RATE = 0.02
LEARNT = 0.6
ALL = 10**6  # calibration scores: more than there are
RATES = (0.01, 0.02, 0.05)
DEFAULTS = {
    "set": "{category} ({normals})",
    "image AUROC": "{auroc:.3f}",
    "good rejected": "{rejected} of {good}",
    "defects found": "{found} of {defects}",
    **{f"at {rate:.0%}": f"{{found_{i}}}, {{rejected_{i}}} good" for i, rate in enumerate(RATES)},
    "at a true 2 %": "{limit}",
}
FITS = {
    "from": "{images}",
    "stated": "{stated:.0%}",
    "realised (most, least)": "{realised:.2%} ({most:.2%}, {least:.2%})",
    "within its interval": "{within:.0%}",
    "defects found (least)": "{found:.1%} ({found_least:.0%})",
    "found at that rate exactly": "{limit:.1%}",
}


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("data", type=Path, help="a folder of categories")
    parser.add_argument("--only", type=listed, help="these categories, by commas")
    parser.add_argument("--fits", type=int, default=0, help="on random parts of the normal images")
    parser.add_argument("--rates", type=shares, default=[0.01, 0.02, 0.03, 0.05], help="stated, for --fits")
    parser.add_argument("--images", type=integers, default=[20, 50, 100, ALL], help="calibration scores")
    parser.add_argument("--limit", type=int, default=400, help="at most so many normal images, for --fits")
    options = parser.parse_args()
    names = options.only or sorted(path.name for path in options.data.iterdir() if (path / "test").is_dir())
    sets = [load_dataset(options.data / name) for name in names]
    if options.fits:
        write_json(options.json, shown(fit_rows(sets, options), FITS))
        return
    rows = shown((default_row(dataset) for dataset in sets), DEFAULTS)
    total = {
        name: sum(row[name] for row in rows) for name in ("rejected", "good", "found", "defects", "limit")
    }
    kept = np.mean([row["found"] / max(row["limit"], 1) for row in rows])
    print(
        f"\n{total['found']} of {total['defects']} defects found, {total['rejected']} of {total['good']} good parts "
        f"rejected; {kept:.0%} of what is found at a true {TRUE_RATE:.0%}, in the mean over the sets"
    )
    write_json(options.json, rows)


def default_row(dataset: Dataset) -> Row:
    detector = Detector.fit(dataset.train)
    labels = np.array([sample.is_anomalous for sample in dataset.test])
    scores = scores_of(detector, [sample.path for sample in dataset.test])
    good, bad = scores[~labels], scores[labels]
    row: Row = {
        "category": dataset.name,
        "normals": len(dataset.train),
        "auroc": auroc(labels, scores),
        "good": len(good),
        "defects": len(bad),
        "rejected": int((good > detector.threshold).sum()),
        "found": int((bad > detector.threshold).sum()),
        "limit": int((bad > true_threshold(good, TRUE_RATE)).sum()),
    }
    for i, rate in enumerate(RATES):
        threshold = detector.calibration.at_rate(rate).threshold
        row |= {f"found_{i}": int((bad > threshold).sum()), f"rejected_{i}": int((good > threshold).sum())}
    return row


def true_threshold(good: Doubles, rate: float) -> float:
    """The lowest threshold that rejects no more than a share of these good parts."""
    return float(np.sort(good)[len(good) - 1 - int(rate * len(good) + 1e-9)])


def fit_rows(sets: Sequence[Dataset], options: argparse.Namespace) -> Iterator[Row]:
    fits = [(dataset.name, scored) for dataset in sets for scored in _fits(dataset, options)]
    for n in options.images:
        for rate in options.rates:
            judged = [(name, *_judged(n, rate, *scored)) for name, scored in fits]
            means = np.array(
                [
                    np.mean([one[1:] for one in judged if one[0] == name], axis=0)
                    for name in dict.fromkeys(name for name, _ in fits)
                ]
            )
            yield {
                "images": "all" if n == ALL else n,
                "stated": rate,
                "realised": float(means[:, 0].mean()),
                "most": float(means[:, 0].max()),
                "least": float(means[:, 0].min()),
                "within": float(means[:, 1].mean()),
                "found": float(means[:, 2].mean()),
                "found_least": float(means[:, 2].min()),
                "limit": float(means[:, 3].mean()),
            }


def _fits(dataset: Dataset, options: argparse.Namespace) -> Iterator[tuple[Doubles, Doubles, Doubles]]:
    """Scores of calibration images, of the other normal images and of the defects, for each fit."""
    good = [*dataset.train, *(sample.path for sample in dataset.test if not sample.is_anomalous)]
    bad = [sample.path for sample in dataset.test if sample.is_anomalous]
    for fit in range(options.fits):
        order = np.random.default_rng(fit).permutation(len(good))[: options.limit]
        learnt = round(LEARNT * len(order))
        detector = Detector.fit([good[i] for i in order[:learnt]], seed=fit)
        others = scores_of(detector, [good[i] for i in order[learnt:]])
        yield np.asarray(detector.calibration.scores, np.float64), others, scores_of(detector, bad)


def _judged(n: int, rate: float, known: Doubles, others: Doubles, bad: Doubles) -> list[float]:
    """The share of others above the threshold, whether that is within the interval but for chance, and of defects."""
    from scipy.stats import binom

    draws = 1 if n >= len(known) else 10
    found = []
    for draw in range(draws):
        some = known if n >= len(known) else np.random.default_rng(draw).choice(known, n, replace=False)
        calibration = calibrate(some, some, rate, "cross-image")
        threshold, (low, high) = threshold_at(calibration.scores, rate), calibration.interval
        above = int((others > threshold).sum())
        inside = binom.sf(above - 1, len(others), high) > 0.1 and binom.cdf(above, len(others), low) > 0.1
        found.append((above / len(others), float(inside), float((bad > threshold).mean())))
    return [*np.mean(found, axis=0), float((bad > true_threshold(others, rate)).mean())]


if __name__ == "__main__":
    main()
