"""Defects planted among the normal images: `python -m benchmarks.suspicious CATEGORY --planted 5,10,20`

For every number of planted defects: how many of them are among the same number of most suspicious images, and what
the test says of a model that has learnt from clean images, from all images, and from all but the most suspicious.
`--copies` plants every defect twice: two photos of one defect vouch for each other.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path

import numpy as np

from benchmarks.commands import Row, integers, parser_of, shown, write_json
from benchmarks.quality import quality_of
from mhpatchcore import Config, Detector, ImageChecks
from mhpatchcore.inputs.datasets import Dataset, Sample, load_dataset

MODELS = ("clean", "polluted", "trimmed")
COLUMNS = {
    "category": "{category}",
    "planted": "{planted}",
    "draw": "{seed}",
    "of them found": "{hits}",
    **{
        f"{head}: clean / all / trimmed": " / ".join(f"{{{model}_{name}:{form}}}" for model in MODELS)
        for head, name, form in (
            ("AUROC", "auroc", ".3f"),
            ("defects found", "found", ".0%"),
            ("good rejected", "rejected", ".1%"),
        )
    },
}


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("data", type=Path, help="a category with train/good and test/")
    parser.add_argument("--planted", type=integers, default=[5, 10, 20], help="numbers of defects, by commas")
    parser.add_argument("--copies", action="store_true", help="plant every defect twice")
    parser.add_argument("--normals", type=int, default=200, help="at most so many normal images")
    parser.add_argument("--test", type=int, default=200, help="at most so many test images")
    parser.add_argument("--draws", type=int, default=2)
    options = parser.parse_args()
    dataset = load_dataset(options.data)
    found = shown(
        (
            row
            for seed in range(options.draws)
            for row in draw_rows(
                dataset, options.planted, seed, options.normals, options.test, options.copies
            )
        ),
        COLUMNS,
    )
    if options.draws > 1:
        print()
        shown(means(found), COLUMNS)
    write_json(options.json, found)


def draw_rows(
    dataset: Dataset, sizes: Sequence[int], seed: int, n_normals: int, n_test: int, copies: bool
) -> Iterator[Row]:
    """All sizes with one draw of normal images, planted defects and test images; no image has two roles."""
    rng = np.random.default_rng(seed)
    normals = list(dataset.subset(min(n_normals, len(dataset.train)), seed).train)
    defects = _shuffled([s for s in dataset.test if s.is_anomalous], rng)
    goods = _shuffled([s for s in dataset.test if not s.is_anomalous], rng)
    planted, rest = defects[: max(sizes)], defects[max(sizes) :]
    test = [*rest[: n_test // 2], *goods[: n_test // 2]]
    clean = quality_of(Detector.fit(normals), test)
    for n in sizes:
        with tempfile.TemporaryDirectory() as scratch:
            bad = [sample.path for sample in planted[:n]]
            if copies:
                bad = [*bad[: n - n // 2], *_copied(bad[: n // 2], Path(scratch))]
            mixed = [*normals, *bad]
            study = Detector.study(mixed, Config(), ImageChecks(exclude=n), all_good=True)
            polluted = quality_of(Detector.fit(mixed, all_good=True), test)
        qualities = zip(MODELS, (clean, polluted, quality_of(study.detector, test)), strict=True)
        yield {
            "category": dataset.name,
            "planted": n,
            "seed": seed,
            "hits": sum(suspect.source in bad for suspect in study.suspects[:n]),
            **{f"{model}_{name}": value for model, q in qualities for name, value in asdict(q).items()},
        }


def means(rows: Sequence[Row]) -> Iterator[Row]:
    """Over the draws, for every number of planted defects."""
    for n in sorted({row["planted"] for row in rows}):
        same = [row for row in rows if row["planted"] == n]
        numbers = {
            name: float(np.mean([row[name] for row in same])) for name in same[0] if name != "category"
        }
        yield {**same[0], **numbers, "planted": n, "seed": f"mean of {len(same)}"}


def _copied(paths: Sequence[Path], folder: Path) -> list[Path]:
    return [Path(shutil.copy(path, folder / f"{i}-{path.name}")) for i, path in enumerate(paths)]


def _shuffled(samples: Sequence[Sample], rng: np.random.Generator) -> list[Sample]:
    return [samples[i] for i in rng.permutation(len(samples))]


if __name__ == "__main__":
    main()
