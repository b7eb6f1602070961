"""The paper's tables from the rows of a grid."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from math import nan
from typing import Any

from mhpatchcore.evaluation.metrics import image_weighted_mean, macro_average
from mhpatchcore.experiments.table import Entry, Table, best_marked
from mhpatchcore.presets import PRESETS

Row = dict[str, Any]
Line = tuple[str, tuple[Entry, ...]]
Aggregate = Callable[[Sequence[Row]], float]
GB = 1e9

MAIN = ("patchcore", "streaming-euclidean", "mh", "mh-kmeans", "paper")
REFERENCE = "patchcore"  # in the studies it stands last and takes no part in the bold marks
BUDGET = ("mh", "mh-k1000-c1024", "mh-k5000-c256", "mh-k5000-c1024", "mh-k5000-c4096", REFERENCE)
GEORES = ("mh", "geores-k1000", "geores-k2000", "geores-k5000", REFERENCE)

# what a reader of the paper has to know: how figures are taken, and what is our choice where the paper is silent
LABELS = (
    "Labels come from the names of folders, which is our choice; the paper counts anomalous images after the masks "
    "have been resized and cropped, which can turn a defect at the edge into a normal image."
)
PIXELS = (
    "Where a configuration crops, as all of the paper's do, pixel figures are those of the preprocessed image and "
    "mask; where it does not, and in the line of whole images, those of the original."
)
LOWER = "Lower is better."
TIMES = (
    "Training time is without calibration: the paper sets no threshold. Inference is from file to score, and with the "
    "map to a map of the size of the image."
)
MEMORY = (
    "Peak memory is that of training, calibration and inference. Between the passes descriptors are kept on disk as "
    "float16, which is our choice."
)
COSTS = f"{LOWER} {TIMES} {MEMORY}"
CANDIDATES = "The paper leaves q of GeoReS open: ten candidates for each row of the tail are our choice."
APART = "The last column is an offline reference and takes no part in the bold marks."


def paper_tables(rows: Sequence[Row]) -> dict[str, Table]:
    """All tables that the rows allow, by file name."""
    own = [name for name in PRESETS if name not in {*MAIN, *BUDGET, *GEORES}]
    everything = [*own, *MAIN, *BUDGET[1:-1], *GEORES[1:-1]]
    plans: dict[str, tuple[Callable[..., Table], Sequence[str], str]] = {
        "auroc": (auroc_table, [*own, *MAIN], "AUROC"),
        "resources": (resource_table, [*own, *MAIN], "Resources"),
        "ram": (ram_table, [*own, *MAIN], "Peak RAM (GB)"),
        "latency": (latency_table, [*own, *MAIN], "Inference time (ms/image)"),
        "latency-with-map": (latency_with_map_table, [*own, *MAIN], "Inference time with the map (ms/image)"),
        "budget": (study_table, BUDGET, "k-center budget study"),
        "budget-auroc": (study_auroc_table, BUDGET, "k-center budget study, AUROC"),
        "geores": (study_table, GEORES, "GeoReS study"),
        "geores-auroc": (study_auroc_table, GEORES, "GeoReS study, AUROC"),
        "all": (overview_table, everything, "All configurations"),
    }
    tables = {}
    for name, (make, presets, title) in plans.items():
        present = [p for p in presets if _of(rows, p)]
        studied = presets[1:-1] if presets in (BUDGET, GEORES) else presets
        if set(present) & set(studied):
            tables[name] = make(rows, present, title)
    return tables


def auroc_table(rows: Sequence[Row], presets: Sequence[str], title: str) -> Table:
    """Category × configuration, image AUROC and (pixel AUROC); the last row is the macro-average.

    Only a configuration that ran on all categories has an average: without a hard one it would look better.
    """
    return _aurocs(rows, presets, title, reference=False)


def study_auroc_table(rows: Sequence[Row], presets: Sequence[str], title: str) -> Table:
    """The same with the offline reference in the last column, which takes no part in the bold marks."""
    return _aurocs(rows, presets, title, _ends_with_reference(presets))


def _aurocs(rows: Sequence[Row], presets: Sequence[str], title: str, reference: bool) -> Table:
    lines = [
        (dataset, _two_lines([_find(rows, dataset, preset) for preset in presets], reference))
        for dataset in _datasets(rows)
    ]
    means = [
        {name: _macro(rows, preset, name) for name in ("image_auroc", "pixel_auroc")} for preset in presets
    ]
    told = "Image-level AUROC and, in parentheses, pixel-level AUROC; best in bold after rounding, with ties."
    note = _note(told, PIXELS, *_notes(presets, reference))
    return Table(title, _titles(presets), (*lines, ("Mean", _two_lines(means, reference))), note)


def resource_table(rows: Sequence[Row], presets: Sequence[str], title: str) -> Table:
    """Mean training and calibration time, image-weighted latency, mean and maximum RAM."""
    return Table(title, _titles(presets), tuple(_resource_lines(rows, presets, False)), COSTS)


def study_table(rows: Sequence[Row], presets: Sequence[str], title: str) -> Table:
    """An overview whose last column is the offline reference, which takes no part in the bold marks."""
    return _overview(rows, presets, title, _ends_with_reference(presets))


def overview_table(rows: Sequence[Row], presets: Sequence[str], title: str) -> Table:
    """Macro-averaged quality above the resources."""
    return _overview(rows, presets, title, reference=False)


def _overview(rows: Sequence[Row], presets: Sequence[str], title: str, reference: bool) -> Table:
    lines = [
        _line(label, [_macro(rows, preset, name) for preset in presets], 3, reference=reference)
        for label, name in (
            ("Image AUROC", "image_auroc"),
            ("Image F1-max", "image_f1_max"),
            ("Pixel AUROC", "pixel_auroc"),
            ("Pixel AUPRO", "pixel_aupro"),
            ("Pixel AUROC, whole images", "whole_pixel_auroc"),
        )
    ]
    note = _note(PIXELS, COSTS, *_notes(presets, reference))
    return Table(title, _titles(presets), (*lines, *_resource_lines(rows, presets, reference)), note)


def ram_table(rows: Sequence[Row], presets: Sequence[str], title: str) -> Table:
    """Peak RAM per data set; mean and maximum of the peaks."""
    peaks = {"Mean": lambda own: _mean(own, "peak_rss") / GB, "Max": _largest_peak}
    table = _per_dataset(rows, presets, title, lambda row: row["peak_rss"] / GB, 2, peaks)
    return replace(table, note=f"{LOWER} {MEMORY}")


def latency_table(rows: Sequence[Row], presets: Sequence[str], title: str) -> Table:
    """Time per image and data set; the mean over all images."""
    return _latency_table(rows, presets, title, "ms_per_image")


def latency_with_map_table(rows: Sequence[Row], presets: Sequence[str], title: str) -> Table:
    """The same with the map at the size of the original image."""
    return _latency_table(rows, presets, title, "ms_per_image_with_map")


def _latency_table(rows: Sequence[Row], presets: Sequence[str], title: str, column: str) -> Table:
    latency = {"Image-weighted mean": lambda own: _weighted(own, column)}
    return _per_dataset(rows, presets, title, lambda row: float(row[column]), 1, latency)


def dataset_table(statistics: Sequence[dict[str, Any]]) -> Table:
    """The paper's table of data sets."""
    columns = ("labels", "train", "test", "anomalous")
    rows = tuple(
        (str(line["dataset"]), tuple(Entry(((str(line[column]), False),)) for column in columns))
        for line in statistics
    )
    return Table("Data sets", ("Labels", "Train normal", "Test", "Anomalous"), rows, LABELS)


def _per_dataset(
    rows: Sequence[Row],
    presets: Sequence[str],
    title: str,
    value: Callable[[Row], float],
    digits: int,
    summaries: Mapping[str, Aggregate],
) -> Table:
    lines = []
    for dataset in _datasets(rows):
        found = [_find(rows, dataset, preset) for preset in presets]
        values = [None if row is None else value(row) for row in found]
        lines.append(_line(dataset, values, digits, higher=False))
    for name, aggregate in summaries.items():
        lines.append(_line(name, _column(rows, presets, aggregate), digits, higher=False))
    return Table(title, _titles(presets), tuple(lines), LOWER)


def _resource_lines(rows: Sequence[Row], presets: Sequence[str], reference: bool) -> list[Line]:
    plan: tuple[tuple[str, Aggregate, int], ...] = (
        ("Mean training time (s)", lambda own: _mean(own, "fit_seconds"), 1),
        ("Mean calibration time (s)", _mean_calibration, 1),
        ("Inference (ms/image)", lambda own: _weighted(own, "ms_per_image"), 1),
        ("Inference with the map (ms/image)", lambda own: _weighted(own, "ms_per_image_with_map"), 1),
        ("Mean RAM (GB)", lambda own: _mean(own, "peak_rss") / GB, 2),
        ("Max RAM (GB)", _largest_peak, 2),
        ("Bank rows (mean)", lambda own: _mean(own, "rows"), 0),
    )
    return [
        _line(name, _column(rows, presets, aggregate), digits, higher=False, reference=reference)
        for name, aggregate, digits in plan
    ]


def _column(rows: Sequence[Row], presets: Sequence[str], aggregate: Aggregate) -> list[float | None]:
    """An aggregate over the data sets for every configuration that ran on all of them."""
    return [aggregate(_of(rows, preset)) if _complete(rows, preset) else None for preset in presets]


def _line(
    name: str, values: Sequence[float | None], digits: int, higher: bool = True, reference: bool = False
) -> Line:
    return name, tuple(Entry((entry,)) for entry in _marked(values, digits, higher, reference))


def _marked(
    values: Sequence[float | None], digits: int, higher: bool, reference: bool
) -> list[tuple[str, bool]]:
    """The best in bold; a reference in the last column stands outside the competition."""
    if not reference:
        return best_marked(values, digits, higher)
    apart = best_marked(values[-1:], digits)[0][0]
    return [*best_marked(values[:-1], digits, higher), (apart, False)]


def _two_lines(found: Sequence[Row | None], reference: bool) -> tuple[Entry, ...]:
    image, pixel = (
        _marked([None if row is None else row[name] for row in found], 3, True, reference)
        for name in ("image_auroc", "pixel_auroc")
    )
    return tuple(
        Entry((i, (f"({p[0]})", p[1]))) if p[0] != "–" else Entry((i,))
        for i, p in zip(image, pixel, strict=True)
    )


def _ends_with_reference(presets: Sequence[str]) -> bool:
    return len(presets) > 1 and presets[-1] == REFERENCE


def _notes(presets: Sequence[str], reference: bool) -> list[str]:
    """What else is to be said of these configurations."""
    return [*([CANDIDATES] if {*presets} & {*GEORES[1:-1]} else []), *([APART] if reference else [])]


def _note(*sentences: str) -> str:
    return " ".join(sentences)


def _titles(presets: Sequence[str]) -> tuple[str, ...]:
    return tuple(PRESETS[name].title if name in PRESETS else name for name in presets)


def _datasets(rows: Sequence[Row]) -> list[str]:
    return sorted({row["dataset"] for row in rows})


def _of(rows: Sequence[Row], preset: str) -> list[Row]:
    return [row for row in rows if row["preset"] == preset]


def _find(rows: Sequence[Row], dataset: str, preset: str) -> Row | None:
    return next((row for row in _of(rows, preset) if row["dataset"] == dataset), None)


def _complete(rows: Sequence[Row], preset: str) -> bool:
    return {row["dataset"] for row in _of(rows, preset)} == set(_datasets(rows))


def _macro(rows: Sequence[Row], preset: str, name: str) -> float | None:
    values = [row[name] for row in _of(rows, preset) if row[name] is not None]
    return macro_average(values) if values and _complete(rows, preset) else None


def _weighted(rows: Sequence[Row], column: str) -> float:
    return image_weighted_mean([row[column] for row in rows], [row["n_test"] for row in rows])


def _largest_peak(rows: Sequence[Row]) -> float:
    return float(max(row["peak_rss"] for row in rows) / GB)


def _mean_calibration(rows: Sequence[Row]) -> float:
    """NaN for a configuration that does not calibrate."""
    return macro_average(
        nan if row["calibration_seconds"] is None else row["calibration_seconds"] for row in rows
    )


def _mean(rows: Sequence[Row], name: str) -> float:
    return float(sum(row[name] for row in rows) / len(rows))
