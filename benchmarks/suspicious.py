"""Defects planted among the normal images: `python -m benchmarks.suspicious DATA_CATEGORY --planted 5,10,20`.

For every number of planted defects: how many of them are among the same number of most suspicious images, and what
the test says of a model that has learnt from clean images, from all images, and from all but the most suspicious.
`--copies` plants every defect twice: two photos of one defect vouch for each other.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from mhpatchcore import Config, Detector
from mhpatchcore.evaluation.metrics import auroc
from mhpatchcore.inputs.datasets import Dataset, Sample, load_dataset
from mhpatchcore.inspection.suspicion import Scrutiny
from mhpatchcore.runtime.files import write_text


@dataclass(frozen=True)
class Quality:
    """Image AUROC on the test, and the shares of defects found and good parts rejected at the threshold."""

    auroc: float
    found: float
    rejected: float


@dataclass(frozen=True)
class Trial:
    """One draw: planted defects, how many of the first `planted` suspects are such, and the three models."""

    category: str
    seed: int
    planted: int
    hits: int
    clean: Quality
    polluted: Quality
    trimmed: Quality


def main() -> None:
    options = _options()
    sizes = [int(n) for n in options.planted.split(",")]
    dataset = load_dataset(options.data)
    trials = []
    for seed in range(options.seeds):
        trials += run_trials(dataset, sizes, seed, options.normals, options.test, options.copies)
        print(table(trials), flush=True)
    if options.out:
        write_text(options.out, json.dumps([asdict(trial) for trial in trials], indent=1))


def run_trials(
    dataset: Dataset, sizes: Sequence[int], seed: int, n_normals: int, n_test: int, copies: bool
) -> list[Trial]:
    """All sizes with one draw of normal images, planted defects and test images; no image has two roles."""
    rng = np.random.default_rng(seed)
    normals = list(dataset.subset(min(n_normals, len(dataset.train)), seed).train)
    defects = _shuffled([s for s in dataset.test if s.is_anomalous], rng)
    goods = _shuffled([s for s in dataset.test if not s.is_anomalous], rng)
    planted, rest = defects[: max(sizes)], defects[max(sizes) :]
    test = [*rest[: n_test // 2], *goods[: n_test // 2]]
    clean = judged(Detector.fit(normals), test)
    trials = []
    for n in sizes:
        bad = [sample.path for sample in planted[:n]]
        if copies:
            bad = [*bad[: n // 2], *bad[: n - n // 2]]
        mixed = [*normals, *bad]
        study = Detector.study(mixed, Config(), Scrutiny(exclude=n))
        hits = sum(suspect.source in bad for suspect in study.suspects[:n])
        polluted = judged(Detector.fit(mixed), test)
        trials.append(Trial(dataset.name, seed, n, hits, clean, polluted, judged(study.detector, test)))
    return trials


def judged(detector: Detector, test: Sequence[Sample]) -> Quality:
    labels = np.array([sample.is_anomalous for sample in test])
    scores = np.array([result.score for result in detector.score([sample.path for sample in test])])
    flagged = scores > detector.threshold
    return Quality(auroc(labels, scores), float(flagged[labels].mean()), float(flagged[~labels].mean()))


def table(trials: Sequence[Trial]) -> str:
    """Markdown, the mean over the seeds for every number of planted defects."""
    lines = [
        "| category | planted | draws | of them found | AUROC clean / all / trimmed | defects found | good rejected |",
        "|---|---|---|---|---|---|---|",
    ]
    for n in sorted({trial.planted for trial in trials}):
        same = [trial for trial in trials if trial.planted == n]
        share = sum(trial.hits for trial in same) / (n * len(same))
        models = [[getattr(trial, name) for trial in same] for name in ("clean", "polluted", "trimmed")]
        columns = [
            " / ".join(f"{np.mean([getattr(q, name) for q in model]):{form}}" for model in models)
            for name, form in (("auroc", ".3f"), ("found", ".0%"), ("rejected", ".1%"))
        ]
        lines.append(
            f"| {same[0].category} | {n} | {len(same)} | {share:.0%} | " + " | ".join(columns) + " |"
        )
    return "\n".join(lines)


def _shuffled(samples: Sequence[Sample], rng: np.random.Generator) -> list[Sample]:
    return [samples[i] for i in rng.permutation(len(samples))]


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("data", type=Path, help="a category with train/good and test/")
    parser.add_argument("--planted", default="5,10,20", help="numbers of defects, separated by commas")
    parser.add_argument("--copies", action="store_true", help="plant every defect twice")
    parser.add_argument("--normals", type=int, default=200, help="at most so many normal images")
    parser.add_argument("--test", type=int, default=200, help="at most so many test images")
    parser.add_argument("--seeds", type=int, default=2, help="draws")
    parser.add_argument("--out", default=None, help="a JSON file for all trials")
    return parser.parse_args()


if __name__ == "__main__":
    main()
