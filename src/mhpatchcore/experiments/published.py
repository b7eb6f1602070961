"""The values of the paper's tables, as data, and a report that has them beside what was measured."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from importlib.resources import files
from math import isfinite
from operator import itemgetter
from typing import Any

import numpy as np

from mhpatchcore.experiments.showing import Entry, Row, Table, plain_entries, signed
from mhpatchcore.presets import PAPER, PRESETS
from mhpatchcore.runtime.arrays import Doubles

Value = Callable[[Row], float | None]
GB = 1e9


def peak_ram(row: Row) -> float:
    """In GB, as the paper has it."""
    return float(row["peak_rss"] / GB)


# names in published.json, what is measured, and heads
QUALITY: tuple[tuple[str, Value, str], ...] = (
    ("image_auroc", itemgetter("image_auroc"), "image AUROC"),
    ("pixel_auroc", itemgetter("pixel_auroc"), "pixel AUROC"),
)
COST: tuple[tuple[str, Value, str], ...] = (
    ("ram_gb", peak_ram, "peak RAM (GB)"),
    ("ms_per_image", itemgetter("ms_per_image"), "ms/image"),
)
# by family of data sets, configuration (a preset) and data set; "summary" has the means and maxima over a family
PUBLISHED: dict[str, Any] = json.loads(
    files("mhpatchcore.experiments").joinpath("published.json").read_text(encoding="utf-8")
)
FAMILIES = ("mvtec", "industrial")
# how we label, where the paper is silent
LABELS = (
    "Labels come from the names of folders, which is our choice; the paper counts anomalous images after the masks "
    "have been resized and cropped, which can turn a defect at the edge into a normal image."
)


def dataset_table(statistics: Sequence[dict[str, Any]]) -> Table:
    """The paper's table of data sets."""
    columns = itemgetter("labels", "train", "test", "anomalous")
    rows = tuple((row_name(line["dataset"]), plain_entries(columns(line))) for line in statistics)
    return Table("Data sets", ("Labels", "Train normal", "Test", "Anom. eval"), rows, LABELS)


def row_name(dataset: str) -> str:
    """A data set as the paper writes it, if it is one of its own.

    >>> row_name("metal_nut"), row_name("my_parts")
    ('Metal nut', 'my_parts')
    """
    return dataset.replace("_", " ").capitalize() if dataset in PUBLISHED["datasets"] else dataset


def title_of(preset: str) -> str:
    return PRESETS[preset].title if preset in PRESETS else preset


def published_value(dataset: str, preset: str, name: str) -> float | None:
    """What the paper reports of a configuration on a data set, if it does.

    >>> published_value("pill", "mh", "image_auroc"), published_value("pill", "default", "image_auroc")
    (0.966, None)
    """
    by_dataset = [PUBLISHED[family]["by_dataset"].get(preset, {}) for family in FAMILIES]
    return next((datasets[dataset].get(name) for datasets in by_dataset if dataset in datasets), None)


def reproduction_tables(rows: Sequence[Row], detailed: Sequence[str] = PAPER) -> dict[str, Table]:
    """Published, measured and their difference, wherever data set (by its name) and configuration match.

    Of configurations that are not `detailed` the means alone.
    """
    network = ", ".join(dict.fromkeys(str(row["backbone"]) for row in rows))
    note = f"Published: {PUBLISHED['network']} on the original images. Measured here: {network}."
    tables = {}
    for name, title, values in (
        ("reproduction", "Published and measured: AUROC", QUALITY),
        ("reproduction-costs", "Published and measured: peak memory and inference time", COST),
    ):
        lines = [line for preset in PAPER for line in _reproduced(rows, preset, values, preset in detailed)]
        heads = (f"{head}, {of}" for *_, head in values for of in ("published", "measured", "difference"))
        if lines:
            tables[name] = Table(title, tuple(heads), tuple(lines), note)
    return tables


def _reproduced(
    rows: Sequence[Row], preset: str, values: Sequence[tuple[str, Value, str]], detailed: bool
) -> Iterator[tuple[str, tuple[Entry, ...]]]:
    """A line for each data set, and one for the means over those that match."""
    known: list[Doubles] = []
    for row in sorted((row for row in rows if row["preset"] == preset), key=itemgetter("dataset")):
        figures = [(published_value(row["dataset"], preset, name), value(row)) for name, value, _ in values]
        pairs = np.array(figures, np.float64)  # published and measured; NaN is unknown
        if np.isfinite(pairs).all(axis=1).any():
            known.append(pairs)
            if detailed:
                yield f"{title_of(preset)} · {row['dataset']}", _compared(pairs)
    if len(known) > 1:
        yield f"{title_of(preset)} · mean of {len(known)}", _compared(np.mean(known, axis=0))


def _compared(pairs: Doubles) -> tuple[Entry, ...]:
    texts: list[str] = []
    for published, measured in pairs.tolist():
        known = isfinite(published) and isfinite(measured)
        texts += [f"{published:.3f}", f"{measured:.3f}", signed(measured - published)] if known else ["–"] * 3
    return plain_entries(texts)
