"""One cell of the study: a variant on a category with one seed, fitted and judged as a user would."""

from __future__ import annotations

import csv
import time
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any

import numpy as np

from mhpatchcore import Config, Detector, Execution
from mhpatchcore.evaluation.evaluate import evaluate
from mhpatchcore.inputs.datasets import Dataset, load_dataset
from mhpatchcore.inputs.sources import spread
from mhpatchcore.presets import preset
from mhpatchcore.runtime.files import write_csv

FEW = "@"  # in the name of a line that learns from few images: default@4


@dataclass(frozen=True)
class Variant:
    """A line of the study: its recipe, what it is there to show, and whether it is in the first table."""

    name: str
    config: Config
    why: str
    headline: bool = False


@dataclass(frozen=True)
class Cell:
    """What one variant gives on one category with one seed; `images` were learnt from.

    `error` is the sampling error of the image AUROC, by bootstrap over the test images. `found` is the share of the
    defects, and `rejected` that of the good parts, above the threshold of the stated false-alarm rate. Either is NaN
    in cells of before it was measured.
    """

    variant: str
    category: str
    seed: int
    images: int
    image: float
    pixel: float
    aupro: float
    rows: int
    seconds: float
    error: float = np.nan
    found: float = np.nan
    rejected: float = np.nan

    @property
    def key(self) -> tuple[str, str, int, int]:
        return self.variant, self.category, self.seed, self.images


def read_variants(path: Path) -> dict[str, Variant]:
    """The lines of a TOML file: see variants.toml."""
    return {name: _variant(name, dict(table)) for name, table in tomllib.loads(path.read_text()).items()}


def _variant(name: str, table: dict[str, Any]) -> Variant:
    why, headline = table.pop("why", ""), table.pop("headline", False)
    start = preset(table.pop("preset", "default")).config
    return Variant(name, start.with_changes(**table), why, headline)


def limited(dataset: Dataset, train: int | None, test: int | None, seed: int = 0) -> Dataset:
    """A fixed part of a category: a random subset to learn from, test images evenly spread."""
    if train is not None and train < len(dataset.train):
        dataset = dataset.subset(train, seed)
    if test is not None and test < len(dataset.test):
        chosen = spread(len(dataset.test), test)
        dataset = replace(dataset, test=tuple(dataset.test[i] for i in chosen))
    return dataset


def run_cell(
    variant: Variant,
    folder: Path,
    seed: int,
    train: int | None,
    test: int | None,
    store: Path | None,
    draw: bool = False,
) -> Cell:
    """Fit, calibrate and judge. With `draw` the seed also decides which images are learnt from.

    Calibration compares images with each other, which leaves the scores as they are. The banks of k-means cannot do
    it, so they have no threshold.
    """
    dataset = limited(load_dataset(folder), train, test, seed if draw else 0)
    calibration = "none" if variant.config.constructor == "kmeans" else "cross-image"
    config = variant.config.with_changes(seed=seed, calibration=calibration)
    started = time.perf_counter()
    detector = Detector.fit(list(dataset.train), config, execution=Execution(store=store))
    evaluation = evaluate(detector, dataset)
    pixel = evaluation.pixel
    labels = [judged.is_anomalous for judged in evaluation.images]
    scores = [judged.score for judged in evaluation.images]
    good = evaluation.image.n_normal if evaluation.has_threshold else 0
    rejected = len(evaluation.false_alarms) / good if good else np.nan
    return Cell(
        variant=variant.name,
        category=dataset.name,
        seed=seed,
        images=len(dataset.train),
        image=round(evaluation.image.auroc, 5),
        pixel=round(pixel.auroc, 5) if pixel else np.nan,
        aupro=round(pixel.aupro, 5) if pixel else np.nan,
        rows=detector.model.rows,
        seconds=round(time.perf_counter() - started, 1),
        error=round(auroc_error(labels, scores), 5),
        found=round(evaluation.found_share, 5),
        rejected=round(rejected, 5),
    )


def read_cells(path: Path) -> list[Cell]:
    if not path.is_file():
        return []
    kinds = {"variant": str, "category": str, "seed": int, "images": int, "rows": int}
    with path.open(newline="") as file:
        return [
            Cell(**{name: kinds.get(name, float)(value) for name, value in row.items()})
            for row in csv.DictReader(file)
        ]


def write_cells(path: Path, cells: Sequence[Cell]) -> None:
    rows: list[Mapping[str, Any]] = [asdict(cell) for cell in sorted(cells, key=lambda cell: cell.key)]
    write_csv(path, [field.name for field in fields(Cell)], rows)


def auroc_error(labels: Sequence[bool], scores: Sequence[float], draws: int = 500, seed: int = 0) -> float:
    """The sampling error of AUROC: its standard deviation over bootstrap draws of the normal and the anomalous images.

    >>> auroc_error([False, True] * 50, [0.0, 1.0] * 50)
    0.0
    """
    is_anomalous, score = np.asarray(labels, bool), np.asarray(scores, np.float64)
    if is_anomalous.all() or not is_anomalous.any():
        return np.nan
    pairs = (np.sign(score[is_anomalous][:, None] - score[~is_anomalous]) + 1) / 2
    rows, columns = pairs.shape
    rng = np.random.default_rng(seed)
    drawn = (
        pairs[rng.integers(rows, size=rows)][:, rng.integers(columns, size=columns)].mean()
        for _ in range(draws)
    )
    return float(np.std(list(drawn), ddof=1))
