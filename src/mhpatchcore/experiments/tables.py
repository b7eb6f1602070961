"""The paper's tables from the rows of a grid."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from mhpatchcore.experiments.table import Entry, Table, best_marked
from mhpatchcore.metrics import image_weighted_mean, macro_average
from mhpatchcore.presets import PRESETS

Row = dict[str, Any]
GB = 1e9

MAIN = ("patchcore", "streaming-euclidean", "mh", "mh-kmeans")
BUDGET = ("mh", "mh-k1000-c1024", "mh-k5000-c256", "mh-k5000-c1024", "mh-k5000-c4096", "patchcore")
GEORES = ("mh", "geores-k1000", "geores-k2000", "geores-k5000", "patchcore")


def paper_tables(rows: Sequence[Row]) -> dict[str, Table]:
    """All tables that the rows allow, by file name."""
    own = [name for name in PRESETS if name not in {*MAIN, *BUDGET, *GEORES}]
    everything = [*own, *MAIN, *BUDGET[1:-1], *GEORES[1:-1]]
    plans: dict[str, tuple[Callable[..., Table], Sequence[str], str]] = {
        "auroc": (auroc_table, [*own, *MAIN], "AUROC"),
        "resources": (resource_table, [*own, *MAIN], "Resources"),
        "ram": (ram_table, [*own, *MAIN], "Peak RAM (GB)"),
        "latency": (latency_table, [*own, *MAIN], "Inference time (ms/image)"),
        "budget": (study_table, BUDGET, "k-center budget study"),
        "budget-auroc": (auroc_table, BUDGET, "k-center budget study, AUROC"),
        "geores": (study_table, GEORES, "GeoReS study"),
        "geores-auroc": (auroc_table, GEORES, "GeoReS study, AUROC"),
        "all": (study_table, everything, "All configurations"),
    }
    tables = {}
    for name, (make, presets, title) in plans.items():
        present = [p for p in presets if any(row["preset"] == p for row in rows)]
        if present:
            tables[name] = make(rows, present, title)
    return tables


def auroc_table(rows: Sequence[Row], presets: Sequence[str], title: str) -> Table:
    """Category × configuration, image AUROC and (pixel AUROC); the last row is the macro-average."""
    lines = [
        (dataset, _two_lines([_find(rows, dataset, preset) for preset in presets]))
        for dataset in _datasets(rows)
    ]
    means = [
        {
            name: macro_average([row[name] for row in _of(rows, preset) if row[name] is not None])
            for name in ("image_auroc", "pixel_auroc")
        }
        for preset in presets
    ]
    return Table(
        title,
        _titles(presets),
        (*lines, ("Mean", _two_lines(means))),
        "Image-level AUROC and, in parentheses, pixel-level AUROC; best in bold after rounding, with ties.",
    )


def resource_table(rows: Sequence[Row], presets: Sequence[str], title: str) -> Table:
    """Mean training time, image-weighted latency, mean and maximum RAM."""
    return Table(title, _titles(presets), tuple(_resource_lines(rows, presets)), "Lower is better.")


def study_table(rows: Sequence[Row], presets: Sequence[str], title: str) -> Table:
    """Macro-averaged quality above the resources. The offline reference takes no part in the bold marks."""
    lines = [
        _line(label, [_macro(rows, preset, name) for preset in presets], 3, presets)
        for label, name in (
            ("Image AUROC", "image_auroc"),
            ("Image F1-max", "image_f1_max"),
            ("Pixel AUROC", "pixel_auroc"),
            ("Pixel AUPRO", "pixel_aupro"),
        )
    ]
    return Table(title, _titles(presets), (*lines, *_resource_lines(rows, presets)))


def ram_table(rows: Sequence[Row], presets: Sequence[str], title: str) -> Table:
    return _per_dataset(rows, presets, title, lambda row: row["peak_rss"] / GB, 2)


def latency_table(rows: Sequence[Row], presets: Sequence[str], title: str) -> Table:
    return _per_dataset(rows, presets, title, lambda row: float(row["ms_per_image"]), 1)


def dataset_table(statistics: Sequence[dict[str, Any]]) -> Table:
    """The paper's table of data sets."""
    columns = ("labels", "train", "test", "anomalous")
    rows = tuple(
        (str(line["dataset"]), tuple(Entry(((str(line[column]), False),)) for column in columns))
        for line in statistics
    )
    return Table("Data sets", ("Labels", "Train normal", "Test", "Anomalous"), rows)


def _per_dataset(
    rows: Sequence[Row], presets: Sequence[str], title: str, value: Callable[[Row], float], digits: int
) -> Table:
    lines = []
    for dataset in _datasets(rows):
        found = [_find(rows, dataset, preset) for preset in presets]
        lines.append(
            _line(dataset, [None if row is None else value(row) for row in found], digits, (), higher=False)
        )
    weighted = [
        image_weighted_mean([value(r) for r in _of(rows, p)], [r["n_test"] for r in _of(rows, p)])
        for p in presets
    ]
    lines.append(_line("Image-weighted mean", weighted, digits, (), higher=False))
    return Table(title, _titles(presets), tuple(lines), "Lower is better.")


def _resource_lines(rows: Sequence[Row], presets: Sequence[str]) -> list[tuple[str, tuple[Entry, ...]]]:
    def column(aggregate: Callable[[list[Row]], float]) -> list[float | None]:
        return [aggregate(_of(rows, preset)) for preset in presets]

    return [
        _line("Mean training time (s)", column(lambda r: _mean(r, "fit_seconds")), 1, presets, higher=False),
        _line(
            "Inference (ms/image)",
            column(lambda r: image_weighted_mean([x["ms_per_image"] for x in r], [x["n_test"] for x in r])),
            1,
            presets,
            higher=False,
        ),
        _line("Mean RAM (GB)", column(lambda r: _mean(r, "peak_rss") / GB), 2, presets, higher=False),
        _line("Max RAM (GB)", column(lambda r: max(x["peak_rss"] for x in r) / GB), 2, presets, higher=False),
        _line("Bank rows (mean)", column(lambda r: _mean(r, "rows")), 0, presets, higher=False),
    ]


def _line(
    name: str, values: Sequence[float | None], digits: int, presets: Sequence[str], higher: bool = True
) -> tuple[str, tuple[Entry, ...]]:
    """A row of single values; an offline reference in the last column stands outside the competition."""
    reference = len(presets) > 1 and presets[-1] == "patchcore"
    marked = best_marked(values[:-1] if reference else values, digits, higher)
    if reference:
        marked.append((best_marked(values[-1:], digits)[0][0], False))
    return name, tuple(Entry((entry,)) for entry in marked)


def _two_lines(found: Sequence[Row | None]) -> tuple[Entry, ...]:
    image = best_marked([None if row is None else row["image_auroc"] for row in found], 3)
    pixel = best_marked([None if row is None else row["pixel_auroc"] for row in found], 3)
    return tuple(
        Entry((i, (f"({p[0]})", p[1]))) if p[0] != "–" else Entry((i,))
        for i, p in zip(image, pixel, strict=True)
    )


def _titles(presets: Sequence[str]) -> tuple[str, ...]:
    return tuple(PRESETS[name].title if name in PRESETS else name for name in presets)


def _datasets(rows: Sequence[Row]) -> list[str]:
    return sorted({row["dataset"] for row in rows})


def _of(rows: Sequence[Row], preset: str) -> list[Row]:
    return [row for row in rows if row["preset"] == preset]


def _find(rows: Sequence[Row], dataset: str, preset: str) -> Row | None:
    return next((row for row in _of(rows, preset) if row["dataset"] == dataset), None)


def _macro(rows: Sequence[Row], preset: str, name: str) -> float | None:
    values = [row[name] for row in _of(rows, preset) if row[name] is not None]
    return macro_average(values) if values else None


def _mean(rows: Sequence[Row], name: str) -> float:
    return float(sum(row[name] for row in rows) / len(rows))
