"""The paper's tables from the rows of a grid: its rows, columns, digits and order. What else there is stands below."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import nan
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mhpatchcore.evaluation.metrics import image_weighted_mean, macro_average
from mhpatchcore.experiments.published import dataset_table, reproduction_tables, row_name
from mhpatchcore.experiments.table import Entry, Row, Table, best_marked, write_formats
from mhpatchcore.presets import PAPER, PRESETS

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Line = tuple[str, tuple[Entry, ...]]
Aggregate = Callable[[Sequence[Row]], float | None]
GB = 1e9

MAIN = ("patchcore", "streaming-euclidean", "mh", "mh-kmeans")
REFERENCE = "patchcore"  # in the studies it stands last and takes no part in the bold marks
BUDGET = ("mh", "mh-k1000-c1024", "mh-k5000-c256", "mh-k5000-c1024", "mh-k5000-c4096", REFERENCE)
GEORES = ("mh", "geores-k1000", "geores-k2000", "geores-k5000", REFERENCE)

# what a reader of the paper has to know: how figures are taken, and what is our choice where the paper is silent
AUROCS = "Image-level AUROC and, in parentheses, pixel-level AUROC; best in bold after rounding, with ties."
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
APART = "The last column is an offline reference and takes no part in the bold marks."


@dataclass(frozen=True)
class Measure:
    """A line of a table: what it says of a configuration's rows, which cover all data sets."""

    label: str
    of: Aggregate
    digits: int = 3
    higher: bool = False


def write_tables(rows: Sequence[Row], statistics: Sequence[dict[str, Any]], folder: Path) -> list[Path]:
    """All tables as Markdown, LaTeX and HTML, the published values beside the measured, and the AUROC/RAM figure."""
    from mhpatchcore.report.figures import save_figure

    tables = {"datasets": dataset_table(statistics), **reproduction_tables(rows), **paper_tables(rows)}
    figure = auroc_and_memory(rows)
    files = write_formats(tables, folder, figures={"pareto": figure} if figure else {}, cells=rows)
    return [*files, *(save_figure(figure, folder / "figures" / "pareto") if figure else [])]


def paper_tables(rows: Sequence[Row]) -> dict[str, Table]:
    """All tables that the rows allow, by file name: the paper's, then our own configurations."""
    budget_heads = {"mh": "Streaming Mahalanobis K=1000, m_c=256"}
    plans: dict[str, tuple[Callable[..., Table], Sequence[str], dict[str, Any]]] = {
        "auroc": (_aurocs, MAIN, {"title": "AUROC"}),
        "budget": (_study, BUDGET, {"title": "k-center budget study", "measures": BUDGET_LINES, "heads": budget_heads}),
        "geores": (_study, GEORES, {"title": "GeoReS study", "measures": GEORES_LINES}),
        "budget-auroc": (_aurocs, BUDGET, {"title": "k-center budget study, AUROC", "heads": budget_heads}),
        "geores-auroc": (_aurocs, GEORES, {"title": "GeoReS study, AUROC"}),
        "resources": (_study, MAIN, {"title": "Resources", "measures": RESOURCES}),
        "ram": (_per_dataset, MAIN, {"title": "Peak RAM (GB)", "value": _ram, "summaries": PEAKS, "note": MEMORY}),
        "latency": (
            _per_dataset,
            MAIN,
            {"title": "Per-image inference time (ms/image)", "value": _latency, "summaries": LATENCY},
        ),
    }  # fmt: skip
    tables = {}
    for name, (make, presets, options) in plans.items():
        present = [p for p in presets if _of(rows, p)]
        studied = presets if presets is MAIN else presets[1:-1]
        if set(present) & set(studied):
            tables[name] = make(rows, present, reference=presets is not MAIN, **options)
    names = list(dict.fromkeys(row["preset"] for row in rows))
    own = [name for name in names if name not in PAPER]
    if own:
        tables["own-auroc"] = _aurocs(rows, own, "Our own configurations, AUROC")
    if names:
        everything = [*own, *(name for name in PAPER if name in names)]
        title = "All configurations, with what the paper does not report"
        tables["all"] = _study(rows, everything, title, FURTHER, note=f"{PIXELS} {COSTS}")
    return tables


def auroc_and_memory(rows: Sequence[Row]) -> Figure | None:
    """Mean image AUROC against the largest peak memory, one point per configuration that ran on all data sets."""
    from mhpatchcore.report.figures import Cost, pareto_figure

    points = []
    datasets = {row["dataset"] for row in rows}
    for name in dict.fromkeys(row["preset"] for row in rows):
        own = [row for row in rows if row["preset"] == name]
        aurocs = [row["image_auroc"] for row in own if row["image_auroc"] is not None]
        if aurocs and {row["dataset"] for row in own} == datasets:
            points.append(
                Cost(title_of(name), max(row["peak_rss"] for row in own) / 1e6, macro_average(aurocs))
            )
    return pareto_figure(points) if points else None


def _aurocs(
    rows: Sequence[Row],
    presets: Sequence[str],
    title: str,
    reference: bool = False,
    heads: Mapping[str, str] | None = None,
) -> Table:
    """Category × configuration, image AUROC and (pixel AUROC); the last row is the macro-average.

    Only a configuration that ran on all categories has an average: without a hard one it would look better.
    """
    apart = reference and _ends_with_reference(presets)
    lines = [
        (row_name(dataset), _two_lines([_find(rows, dataset, preset) for preset in presets], apart))
        for dataset in _datasets(rows)
    ]
    names = ("image_auroc", "pixel_auroc")
    means = [
        dict(zip(names, _column(rows, preset, [_macro(name) for name in names]), strict=True)) for preset in presets
    ]  # fmt: skip
    note = " ".join([AUROCS, PIXELS, *([APART] if apart else [])])
    return Table(title, _titles(presets, heads), (*lines, ("Mean", _two_lines(means, apart))), note)


def _study(
    rows: Sequence[Row],
    presets: Sequence[str],
    title: str,
    measures: Sequence[Measure],
    reference: bool = False,
    heads: Mapping[str, str] | None = None,
    note: str = COSTS,
) -> Table:
    """Measure × configuration; without a line for what no configuration has, such as pixels without masks."""
    apart = reference and _ends_with_reference(presets)
    columns = [_column(rows, preset, [measure.of for measure in measures]) for preset in presets]
    lines = [
        _line(measure.label, values, measure.digits, measure.higher, apart)
        for measure, *values in zip(measures, *columns, strict=True)
        if any(value is not None for value in values)
    ]
    return Table(title, _titles(presets, heads), tuple(lines), " ".join([note, *([APART] if apart else [])]))


def _per_dataset(
    rows: Sequence[Row],
    presets: Sequence[str],
    title: str,
    value: Callable[[Row], float],
    summaries: Sequence[Measure],
    reference: bool = False,
    note: str = "",
) -> Table:
    """Data set × configuration, and summaries over all data sets."""
    lines = []
    for dataset in _datasets(rows):
        found = [_find(rows, dataset, preset) for preset in presets]
        lines.append(
            _line(row_name(dataset), [None if row is None else value(row) for row in found], 3, False, reference)
        )  # fmt: skip
    for summary in summaries:
        values = [_column(rows, preset, [summary.of])[0] for preset in presets]
        lines.append(_line(summary.label, values, summary.digits, summary.higher, reference))
    return Table(title, _titles(presets, None), tuple(lines), f"{LOWER} {note}".strip())


def _column(rows: Sequence[Row], preset: str, aggregates: Sequence[Aggregate]) -> list[float | None]:
    """Aggregates over the data sets for a configuration that ran on all of them."""
    own = _of(rows, preset)
    complete = {row["dataset"] for row in own} == set(_datasets(rows))
    return [aggregate(own) if complete else None for aggregate in aggregates]


def _line(name: str, values: Sequence[float | None], digits: int, higher: bool, reference: bool) -> Line:
    return name, tuple(Entry((entry,)) for entry in _marked(values, digits, higher, reference))


def _marked(
    values: Sequence[float | None], digits: int, higher: bool, reference: bool
) -> list[tuple[str, bool]]:
    """The best in bold; a reference in the last column stands outside the competition."""
    if not reference:
        return best_marked(values, digits, higher)
    apart = best_marked(values[-1:], digits)[0][0]
    return [*best_marked(values[:-1], digits, higher), (apart, False)]


def _two_lines(found: Sequence[Mapping[str, Any] | None], reference: bool) -> tuple[Entry, ...]:
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


def _titles(presets: Sequence[str], heads: Mapping[str, str] | None) -> tuple[str, ...]:
    return tuple((heads or {}).get(name, title_of(name)) for name in presets)


def title_of(preset: str) -> str:
    return PRESETS[preset].title if preset in PRESETS else preset


def _datasets(rows: Sequence[Row]) -> list[str]:
    return sorted({row["dataset"] for row in rows})


def _of(rows: Sequence[Row], preset: str) -> list[Row]:
    return [row for row in rows if row["preset"] == preset]


def _find(rows: Sequence[Row], dataset: str, preset: str) -> Row | None:
    return next((row for row in _of(rows, preset) if row["dataset"] == dataset), None)


def _macro(name: str) -> Aggregate:
    """The mean over the data sets that have a value."""

    def mean(own: Sequence[Row]) -> float | None:
        values = [row[name] for row in own if row[name] is not None]
        return macro_average(values) if values else None

    return mean


def _weighted(name: str) -> Aggregate:
    """The mean over all test images."""
    return lambda own: image_weighted_mean([row[name] for row in own], [row["n_test"] for row in own])


def _share(count: str, of: Callable[[Row], int], found: bool) -> Aggregate:
    """The mean over the data sets of a count, or of what is left of it, in per cent; None without thresholds."""

    def percent(own: Sequence[Row]) -> float | None:
        shares = [row[count] / of(row) for row in own if row[count] is not None and of(row)]
        return 100 * macro_average(1 - share if found else share for share in shares) if shares else None

    return percent


def _ram(row: Row) -> float:
    return float(row["peak_rss"] / GB)


def _latency(row: Row) -> float:
    return float(row["ms_per_image"])


def _mean_calibration(own: Sequence[Row]) -> float:
    """NaN for a configuration that does not calibrate."""
    return macro_average(
        nan if row["calibration_seconds"] is None else row["calibration_seconds"] for row in own
    )


IMAGE = Measure("Image AUROC", _macro("image_auroc"), higher=True)
PIXEL = Measure("Pixel AUROC", _macro("pixel_auroc"), higher=True)
TRAINING = Measure("Mean training time (s)", _macro("fit_seconds"))
INFERENCE = Measure("Per-image inference time (ms/image)", _weighted("ms_per_image"))
MEAN_RAM = Measure("Mean RAM (GB)", lambda own: macro_average(map(_ram, own)))
MAX_RAM = Measure("Max RAM (GB)", lambda own: max(map(_ram, own)))
BUDGET_LINES = (IMAGE, PIXEL, TRAINING, MEAN_RAM, MAX_RAM, INFERENCE)
GEORES_LINES = (IMAGE, PIXEL, TRAINING, INFERENCE, MAX_RAM)
RESOURCES = (TRAINING, INFERENCE, MEAN_RAM, MAX_RAM)
PEAKS = (Measure("Mean", MEAN_RAM.of), Measure("Max", MAX_RAM.of))
LATENCY = (Measure("Image-weighted mean", INFERENCE.of),)
FURTHER = (
    IMAGE,
    Measure("Defects found (%)", _share("misses", lambda row: row["n_anomalous"], True), 1, higher=True),
    Measure("False alarms (%)", _share("false_alarms", lambda row: row["n_test"] - row["n_anomalous"], False), 1),
    Measure("Image F1-max", _macro("image_f1_max"), higher=True),
    PIXEL,
    Measure("Pixel AUPRO", _macro("pixel_aupro"), higher=True),
    Measure("Pixel AUROC, whole images", _macro("whole_pixel_auroc"), higher=True),
    TRAINING,
    Measure("Mean calibration time (s)", _mean_calibration),
    INFERENCE,
    Measure("Inference with the map (ms/image)", _weighted("ms_per_image_with_map")),
    MEAN_RAM,
    MAX_RAM,
    Measure("Bank rows (mean)", _macro("rows"), 0),
)  # fmt: skip
