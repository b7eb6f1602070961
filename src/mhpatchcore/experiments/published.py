"""The values of the paper's tables, as data, and a report that has them beside what was measured."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from importlib.resources import files
from typing import Any

from mhpatchcore.evaluation.metrics import macro_average
from mhpatchcore.experiments.table import Entry, Row, Table, plain_entries, signed
from mhpatchcore.presets import PAPER, PRESETS

Value = Callable[[Row], float | None]
# by family of data sets, configuration (a preset) and data set; "summary" has the means and maxima over a family
PUBLISHED: dict[str, Any] = json.loads(
    files("mhpatchcore.experiments").joinpath("published.json").read_text(encoding="utf-8")
)
# what a reader of the paper has to know: how we label, where the paper is silent
LABELS = (
    "Labels come from the names of folders, which is our choice; the paper counts anomalous images after the masks "
    "have been resized and cropped, which can turn a defect at the edge into a normal image."
)
FAMILIES = ("mvtec", "industrial")
QUALITY: dict[str, Value] = {
    "image_auroc": lambda row: row["image_auroc"],
    "pixel_auroc": lambda row: row["pixel_auroc"],
}
COST: dict[str, Value] = {
    "ram_gb": lambda row: row["peak_rss"] / 1e9,
    "ms_per_image": lambda row: row["ms_per_image"],
}
HEADS = {
    "image_auroc": "image AUROC",
    "pixel_auroc": "pixel AUROC",
    "ram_gb": "peak RAM (GB)",
    "ms_per_image": "ms/image",
}


def published_value(dataset: str, preset: str, name: str) -> float | None:
    """What the paper reports of a configuration on a data set, if it does.

    >>> published_value("pill", "mh", "image_auroc"), published_value("pill", "default", "image_auroc")
    (0.966, None)
    """
    by_dataset = [PUBLISHED[family]["by_dataset"].get(preset, {}) for family in FAMILIES]
    found = [datasets[dataset].get(name) for datasets in by_dataset if dataset in datasets]
    return found[0] if found else None


def dataset_table(statistics: Sequence[dict[str, Any]]) -> Table:
    """The paper's table of data sets."""
    columns = ("labels", "train", "test", "anomalous")
    rows = tuple(
        (row_name(str(line["dataset"])), plain_entries(line[column] for column in columns))
        for line in statistics
    )
    return Table("Data sets", ("Labels", "Train normal", "Test", "Anom. eval"), rows, LABELS)


def row_name(dataset: str) -> str:
    """A data set as the paper writes it, if it is one of its own.

    >>> row_name("metal_nut"), row_name("my_parts")
    ('Metal nut', 'my_parts')
    """
    return dataset.replace("_", " ").capitalize() if dataset in PUBLISHED["datasets"] else dataset


def reproduction_tables(rows: Sequence[Row]) -> dict[str, Table]:
    """Published, measured and their difference, wherever data set (by its name) and configuration match."""
    network = ", ".join(dict.fromkeys(str(row["backbone"]) for row in rows))
    note = f"Published: {PUBLISHED['network']} on the original images. Measured here: {network}."
    tables = {}
    for name, title, values in (
        ("reproduction", "Published and measured: AUROC", QUALITY),
        ("reproduction-costs", "Published and measured: peak memory and inference time", COST),
    ):
        lines = [line for preset in PAPER for line in _lines(rows, preset, values)]
        if lines:
            heads = [
                f"{HEADS[one]}, {what}" for one in values for what in ("published", "measured", "difference")
            ]
            tables[name] = Table(title, tuple(heads), tuple(lines), note)
    return tables


def _lines(
    rows: Sequence[Row], preset: str, values: dict[str, Value]
) -> Iterator[tuple[str, tuple[Entry, ...]]]:
    """A line for each data set, and one for the means over those that match."""
    pairs: list[dict[str, tuple[float, float]]] = []
    for row in sorted((row for row in rows if row["preset"] == preset), key=lambda row: str(row["dataset"])):
        found = {}
        for name, measured in values.items():
            paper, here = published_value(row["dataset"], preset, name), measured(row)
            if paper is not None and here is not None:
                found[name] = (paper, here)
        if found:
            pairs.append(found)
            yield f"{PRESETS[preset].title} · {row['dataset']}", _entries(found, values)
    if len(pairs) > 1:
        means = {
            name: (macro_average(pair[name][0] for pair in pairs), macro_average(pair[name][1] for pair in pairs))
            for name in values
            if all(name in pair for pair in pairs)
        }  # fmt: skip
        yield f"{PRESETS[preset].title} · mean of {len(pairs)}", _entries(means, values)


def _entries(found: dict[str, tuple[float, float]], values: dict[str, Value]) -> tuple[Entry, ...]:
    texts: list[str] = []
    for name in values:
        if name in found:
            paper, here = found[name]
            texts += [f"{paper:.3f}", f"{here:.3f}", signed(here - paper)]
        else:
            texts += ["–"] * 3
    return plain_entries(texts)
