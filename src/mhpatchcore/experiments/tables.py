"""The paper's tables from the rows of a grid: its rows, columns, digits and order. What else there is stands below."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import nan
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mhpatchcore.evaluation.metrics import image_weighted_mean, macro_average
from mhpatchcore.experiments.published import dataset_table, reproduction_tables, row_name, title_of
from mhpatchcore.experiments.showing import (
    Entry,
    Row,
    Table,
    best_marked,
    write_formats,
)
from mhpatchcore.presets import PAPER

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Aggregate = Callable[[Sequence[Row]], float | None]
GB = 1e9

MAIN = ("patchcore", "streaming-euclidean", "mh", "mh-kmeans")
REFERENCE = "patchcore"  # in the studies it stands last and takes no part in the bold marks
BUDGET = ("mh", "mh-k1000-c1024", "mh-k5000-c256", "mh-k5000-c1024", "mh-k5000-c4096", REFERENCE)
GEORES = ("mh", "geores-k1000", "geores-k2000", "geores-k5000", REFERENCE)
IN_BUDGET = {"mh": "Streaming Mahalanobis K=1000, m_c=256"}  # its title in that study

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
AREAS = f"{AUROCS} {PIXELS}"
COSTS = f"{LOWER} {TIMES} {MEMORY}"
FOUND = (
    "Defects found and false alarms are means over the data sets at the threshold of the model, which was set for the "
    "stated rate of false alarms."
)
EVERYTHING = f"{FOUND} {PIXELS} {COSTS}"
APART = "The last column is an offline reference and takes no part in the bold marks."


@dataclass(frozen=True)
class Measure:
    """A line of a table: what it says of a configuration's rows; `beside` stands below it in parentheses.

    Unless it is that of one data set, only a configuration that ran on all of them has a value: without a hard one its
    mean would look better.
    """

    label: str
    of: Aggregate
    digits: int = 3
    higher: bool = False
    beside: Aggregate | None = None
    of_one: bool = False


def write_tables(rows: Sequence[Row], statistics: Sequence[dict[str, Any]], folder: Path) -> list[Path]:
    """All tables as Markdown, LaTeX and HTML, the published values beside the measured, and the AUROC/RAM figure."""
    from mhpatchcore.report.figures import save_figure

    tables = {"datasets": dataset_table(statistics), **reproduction_tables(rows), **paper_tables(rows)}
    figure = auroc_and_memory(rows)
    written = write_formats(tables, folder, figures={"pareto": figure} if figure else {}, cells=rows)
    return [*written, *(save_figure(figure, folder / "figures" / "pareto") if figure else [])]


def paper_tables(rows: Sequence[Row]) -> dict[str, Table]:
    """All tables that the rows allow, by file name: the paper's, then our own configurations."""
    names = list(dict.fromkeys(row["preset"] for row in rows))
    own = [name for name in names if name not in PAPER]
    everything = [*own, *(name for name in PAPER if name in names)]
    aurocs = _by_dataset(rows, lambda row: row["image_auroc"], (AUROC,), lambda row: row["pixel_auroc"])
    ram, latency = _by_dataset(rows, _ram, PEAKS), _by_dataset(rows, lambda row: row["ms_per_image"], LATENCY)
    plans: tuple[tuple[str, str, Sequence[str], Sequence[Measure], str], ...] = (
        ("auroc", "AUROC", MAIN, aurocs, AREAS),
        ("budget", "k-center budget study", BUDGET, BUDGET_LINES, COSTS),
        ("geores", "GeoReS study", GEORES, GEORES_LINES, COSTS),
        ("budget-auroc", "k-center budget study, AUROC", BUDGET, aurocs, AREAS),
        ("geores-auroc", "GeoReS study, AUROC", GEORES, aurocs, AREAS),
        ("resources", "Resources", MAIN, RESOURCES, COSTS),
        ("ram", "Peak RAM (GB)", MAIN, ram, f"{LOWER} {MEMORY}"),
        ("latency", "Per-image inference time (ms/image)", MAIN, latency, LOWER),
        ("own-auroc", "Our own configurations, AUROC", own, aurocs, AREAS),
        ("all", "All configurations, with what the paper does not report", everything, FURTHER, EVERYTHING),
    )  # fmt: skip
    tables = {}
    for file, title, presets, measures, note in plans:
        studied = presets[1:-1] if presets in (BUDGET, GEORES) else presets
        if set(names) & set(studied):
            present = [name for name in presets if name in names]
            apart = presets in (BUDGET, GEORES) and len(present) > 1 and present[-1] == REFERENCE
            heads = IN_BUDGET if presets is BUDGET else {}
            tables[file] = _table(rows, present, title, measures, note, apart, heads)
    return tables


def _table(
    rows: Sequence[Row],
    presets: Sequence[str],
    title: str,
    measures: Sequence[Measure],
    note: str,
    apart: bool,
    heads: Mapping[str, str],
) -> Table:
    """Measure × configuration, without lines for what no configuration has, such as pixels without masks.

    The best are bold; with `apart` the last column, a reference, stands outside of the competition.
    """
    each, all_sets = [_of(rows, preset) for preset in presets], _sets(rows)

    def marked(measure: Measure, of: Aggregate) -> list[tuple[str, bool]]:
        values = [of(own) if measure.of_one or _sets(own) == all_sets else None for own in each]
        compete = values[:-1] if apart else values
        reference = [(text, False) for text, _ in best_marked(values[len(compete) :], measure.digits)]
        return best_marked(compete, measure.digits, measure.higher) + reference

    lines = []
    for measure in measures:
        texts = [(one,) for one in marked(measure, measure.of)]
        if measure.beside:
            beside = [
                ((f"({text})", bold),) if text != "–" else ()
                for text, bold in marked(measure, measure.beside)
            ]
            texts = [first + second for first, second in zip(texts, beside, strict=True)]  # type: ignore[misc]
        if any(text != "–" for entry in texts for text, _ in entry):
            lines.append((measure.label, tuple(map(Entry, texts))))
    titles = tuple(heads.get(name, title_of(name)) for name in presets)
    return Table(title, titles, tuple(lines), f"{note} {APART}" if apart else note)


def auroc_and_memory(rows: Sequence[Row]) -> Figure | None:
    """Mean image AUROC against the largest peak memory, one point per configuration that ran on all data sets."""
    from mhpatchcore.report.figures import Cost, pareto_figure

    points = []
    for name in dict.fromkeys(row["preset"] for row in rows):
        own = _of(rows, name)
        auroc = IMAGE.of(own)
        if auroc is not None and _sets(own) == _sets(rows):
            points.append(Cost(title_of(name), max(row["peak_rss"] for row in own) / 1e6, auroc))
    return pareto_figure(points) if points else None


def _of(rows: Sequence[Row], preset: str) -> list[Row]:
    return [row for row in rows if row["preset"] == preset]


def _sets(rows: Sequence[Row]) -> set[str]:
    return {row["dataset"] for row in rows}


def _by_dataset(
    rows: Sequence[Row],
    value: Callable[[Row], float | None],
    summaries: Sequence[Measure],
    beside: Callable[[Row], float | None] | None = None,
) -> list[Measure]:
    """A line for each data set, and summaries over all of them."""

    def on(dataset: str, value: Callable[[Row], float | None]) -> Aggregate:
        return lambda own: next((value(row) for row in own if row["dataset"] == dataset), None)

    higher = summaries[0].higher
    return [
        *(
            Measure(
                row_name(one), on(one, value), 3, higher, on(one, beside) if beside else None, of_one=True
            )
            for one in sorted(_sets(rows))
        ),
        *summaries,
    ]


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


IMAGE = Measure("Image AUROC", _macro("image_auroc"), higher=True)
PIXEL = Measure("Pixel AUROC", _macro("pixel_auroc"), higher=True)
AUROC = Measure("Mean", IMAGE.of, higher=True, beside=PIXEL.of)
TRAINING = Measure("Mean training time (s)", _macro("fit_seconds"))
INFERENCE = Measure("Per-image inference time (ms/image)", _weighted("ms_per_image"))
MEAN_RAM = Measure("Mean RAM (GB)", lambda own: macro_average(map(_ram, own)))
MAX_RAM = Measure("Max RAM (GB)", lambda own: max(map(_ram, own)))
BUDGET_LINES = (IMAGE, PIXEL, TRAINING, MEAN_RAM, MAX_RAM, INFERENCE)
GEORES_LINES = (IMAGE, PIXEL, TRAINING, INFERENCE, MAX_RAM)
RESOURCES = (TRAINING, INFERENCE, MEAN_RAM, MAX_RAM)
PEAKS = (Measure("Mean", MEAN_RAM.of), Measure("Max", MAX_RAM.of))
LATENCY = (Measure("Image-weighted mean", INFERENCE.of),)
DEFECTS = Measure("Defects found (%)", _share("misses", lambda row: row["n_anomalous"], True), 1, higher=True)
ALARMS = Measure(
    "False alarms (%)", _share("false_alarms", lambda row: row["n_test"] - row["n_anomalous"], False), 1
)
STATED = Measure(
    "False alarms, stated (%)", lambda own: 100 * max(row["stated_rate"] or nan for row in own), 1
)
AUPRO = Measure("Pixel AUPRO", _macro("pixel_aupro"), higher=True)
ROWS = Measure("Bank rows (mean)", _macro("rows"), 0)
FURTHER = (
    *(
        IMAGE,
        DEFECTS,
        ALARMS,
        STATED,
        Measure("Image F1-max", _macro("image_f1_max"), higher=True),
        PIXEL,
        AUPRO,
    ),
    Measure("Pixel AUROC, whole images", _macro("whole_pixel_auroc"), higher=True),
    TRAINING,
    Measure("Mean calibration time (s)", _macro("calibration_seconds")),
    INFERENCE,
    Measure("Inference with the map (ms/image)", _weighted("ms_per_image_with_map")),
    *(MEAN_RAM, MAX_RAM, ROWS),
)
# what a page in a repository shows of all configurations
HEADLINE = (IMAGE, DEFECTS, ALARMS, STATED, PIXEL, AUPRO, MAX_RAM, ROWS)


def headline_table(rows: Sequence[Row]) -> Table:
    """All configurations by what matters most, one below the other."""
    names = list(dict.fromkeys(row["preset"] for row in rows))
    table = _table(rows, names, "All configurations", HEADLINE, f"{FOUND} {PIXELS} {MEMORY}", False, {})
    lines = tuple(
        (head, tuple(entries[i] for _, entries in table.rows)) for i, head in enumerate(table.columns)
    )
    return Table(table.title, tuple(label for label, _ in table.rows), lines, table.note)
