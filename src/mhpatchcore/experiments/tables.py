"""The paper's tables from the rows of a grid: its rows, columns, digits and order. What else there is stands below."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mhpatchcore.evaluation.metrics import image_weighted_mean, macro_average
from mhpatchcore.experiments.published import (
    Value,
    dataset_table,
    peak_ram,
    reproduction_tables,
    row_name,
    title_of,
)
from mhpatchcore.experiments.showing import Entry, Line, Row, Table, best_marked, write_formats
from mhpatchcore.presets import PAPER

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Mean = Callable[[Sequence[float]], float]  # of the values of data sets

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
    """A line of a table: a value of each data set, taken together; `beside` stands below it in parentheses.

    Unless it is that of one data set, only a configuration that ran on all of them has a value: without a hard one its
    mean would look better.
    """

    label: str
    value: Value
    mean: Mean | None = macro_average  # None: weighted by the numbers of test images
    digits: int = 3
    higher: bool = False
    beside: Value | None = None
    dataset: str | None = None

    def of(self, own: Sequence[Row], value: Value) -> float | None:
        """What it says of a configuration's rows."""
        rows = [row for row in own if self.dataset in (None, row["dataset"])]
        known = [(found, row["n_test"]) for row in rows if (found := value(row)) is not None]
        if not known:
            return None
        values, counts = zip(*known, strict=True)
        return self.mean(values) if self.mean else image_weighted_mean(values, counts)


def _share_found(row: Row) -> float | None:
    known = row["misses"] is not None and row["n_anomalous"]
    return 100 * (1 - row["misses"] / row["n_anomalous"]) if known else None


def _share_of_alarms(row: Row) -> float | None:
    good = row["n_test"] - row["n_anomalous"]
    return 100 * row["false_alarms"] / good if row["false_alarms"] is not None and good else None


def _stated(row: Row) -> float | None:
    return 100 * row["stated_rate"] if row["stated_rate"] else None


IMAGE = Measure("Image AUROC", itemgetter("image_auroc"), higher=True)
PIXEL = Measure("Pixel AUROC", itemgetter("pixel_auroc"), higher=True)
TRAINING = Measure("Mean training time (s)", itemgetter("fit_seconds"))
LATENCY = itemgetter("ms_per_image")
INFERENCE = Measure("Per-image inference time (ms/image)", LATENCY, None)
MEAN_RAM, MAX_RAM = Measure("Mean RAM (GB)", peak_ram), Measure("Max RAM (GB)", peak_ram, max)
DEFECTS = Measure("Defects found (%)", _share_found, digits=1, higher=True)
ALARMS = Measure("False alarms (%)", _share_of_alarms, digits=1)
STATED = Measure("False alarms, stated (%)", _stated, max, digits=1)
AUPRO = Measure("Pixel AUPRO", itemgetter("pixel_aupro"), higher=True)
ROWS = Measure("Bank rows (mean)", itemgetter("rows"), digits=0)
FURTHER = (
    IMAGE,
    DEFECTS,
    ALARMS,
    STATED,
    Measure("Image F1-max", itemgetter("image_f1_max"), higher=True),
    PIXEL,
    AUPRO,
    Measure("Pixel AUROC, whole images", itemgetter("whole_pixel_auroc"), higher=True),
    TRAINING,
    Measure("Mean calibration time (s)", itemgetter("calibration_seconds")),
    INFERENCE,
    Measure("Inference with the map (ms/image)", itemgetter("ms_per_image_with_map"), None),
    MEAN_RAM,
    MAX_RAM,
    ROWS,
)
# what a page in a repository shows of all configurations
HEADLINE = (IMAGE, DEFECTS, ALARMS, STATED, PIXEL, AUPRO, MAX_RAM, ROWS)


def write_tables(rows: Sequence[Row], statistics: Sequence[dict[str, Any]], folder: Path) -> list[Path]:
    """All tables as Markdown, LaTeX and HTML, the published values beside the measured, and the AUROC/RAM figure."""
    tables = {"datasets": dataset_table(statistics), **reproduction_tables(rows), **paper_tables(rows)}
    figure = auroc_and_memory(rows)
    return write_formats(tables, folder, figures={"pareto": figure} if figure else {}, cells=rows)


def paper_tables(rows: Sequence[Row]) -> dict[str, Table]:
    """All tables that the rows allow, by file name: the paper's, then our own configurations."""
    names = list(dict.fromkeys(row["preset"] for row in rows))
    own = [name for name in names if name not in PAPER]
    everything = [*own, *(name for name in PAPER if name in names)]
    mean = Measure("Mean", IMAGE.value, higher=True, beside=PIXEL.value)
    aurocs = _by_dataset(rows, mean)
    ram = _by_dataset(rows, Measure("Mean", peak_ram), Measure("Max", peak_ram, max))
    latency = _by_dataset(rows, Measure("Image-weighted mean", LATENCY, None))
    budget = (IMAGE, PIXEL, TRAINING, MEAN_RAM, MAX_RAM, INFERENCE)
    geores = (IMAGE, PIXEL, TRAINING, INFERENCE, MAX_RAM)
    resources = (TRAINING, INFERENCE, MEAN_RAM, MAX_RAM)
    plans: tuple[tuple[str, str, Sequence[str], Sequence[Measure], str], ...] = (
        ("auroc", "AUROC", MAIN, aurocs, AREAS),
        ("budget", "k-center budget study", BUDGET, budget, COSTS),
        ("geores", "GeoReS study", GEORES, geores, COSTS),
        ("budget-auroc", "k-center budget study, AUROC", BUDGET, aurocs, AREAS),
        ("geores-auroc", "GeoReS study, AUROC", GEORES, aurocs, AREAS),
        ("resources", "Resources", MAIN, resources, COSTS),
        ("ram", "Peak RAM (GB)", MAIN, ram, f"{LOWER} {MEMORY}"),
        ("latency", "Per-image inference time (ms/image)", MAIN, latency, LOWER),
        ("own-auroc", "Our own configurations, AUROC", own, aurocs, AREAS),
        ("all", "All configurations, with what the paper does not report", everything, FURTHER, EVERYTHING),
    )  # fmt: skip
    tables = {}
    for file, title, presets, measures, note in plans:
        is_study = presets in (BUDGET, GEORES)
        if set(names) & set(presets[1:-1] if is_study else presets):
            present = [name for name in presets if name in names]
            apart = is_study and len(present) > 1 and present[-1] == REFERENCE
            heads = IN_BUDGET if presets is BUDGET else {}
            tables[file] = _table(rows, present, title, measures, note, apart, heads)
    return tables


def headline_table(rows: Sequence[Row]) -> Table:
    """All configurations by what matters most, one below the other."""
    names = list(dict.fromkeys(row["preset"] for row in rows))
    table = _table(rows, names, "All configurations", HEADLINE, f"{FOUND} {PIXELS} {MEMORY}")
    columns = zip(*(entries for _, entries in table.rows), strict=True)
    lines = tuple(zip(table.columns, columns, strict=True))
    return Table(table.title, tuple(label for label, _ in table.rows), lines, table.note)


def _table(
    rows: Sequence[Row],
    presets: Sequence[str],
    title: str,
    measures: Sequence[Measure],
    note: str,
    apart: bool = False,
    heads: Mapping[str, str] | None = None,
) -> Table:
    """Measure × configuration, without lines for what no configuration has, such as pixels without masks."""
    lines = marked_lines(rows, presets, measures, apart)
    known = tuple(line for line in lines if any(text != "–" for entry in line[1] for text, _ in entry))
    titles = tuple((heads or {}).get(name, title_of(name)) for name in presets)
    return Table(title, titles, known, f"{note} {APART}" if apart else note)


def marked_lines(
    rows: Sequence[Row], presets: Sequence[str], measures: Sequence[Measure], apart: bool = False
) -> list[tuple[str, tuple[Entry, ...]]]:
    """Each measure of all configurations, the best bold; with `apart` the last, a reference, does not compete."""
    each, all_sets = [[row for row in rows if row["preset"] == preset] for preset in presets], _sets(rows)

    def marked(measure: Measure, value: Value) -> list[Line]:
        values = [
            measure.of(own, value) if measure.dataset or _sets(own) == all_sets else None for own in each
        ]
        compete = values[:-1] if apart else values
        reference = [(text, False) for text, _ in best_marked(values[len(compete) :], measure.digits)]
        return best_marked(compete, measure.digits, measure.higher) + reference

    lines = []
    for measure in measures:
        entries: list[Entry] = [(line,) for line in marked(measure, measure.value)]
        if measure.beside:
            beside = marked(measure, measure.beside)
            entries = [
                entry if text == "–" else (*entry, (f"({text})", bold))
                for entry, (text, bold) in zip(entries, beside, strict=True)
            ]
        lines.append((measure.label, tuple(entries)))
    return lines


def auroc_and_memory(rows: Sequence[Row]) -> Figure | None:
    """Mean image AUROC against the largest peak memory, one point per configuration that ran on all data sets."""
    from mhpatchcore.report.figures import Cost, pareto_figure

    points = []
    for name in dict.fromkeys(row["preset"] for row in rows):
        own = [row for row in rows if row["preset"] == name]
        auroc = IMAGE.of(own, IMAGE.value)
        if auroc is not None and _sets(own) == _sets(rows):
            points.append(Cost(title_of(name), max(row["peak_rss"] for row in own) / 1e6, auroc))
    return pareto_figure(points) if points else None


def _sets(rows: Sequence[Row]) -> set[str]:
    return {row["dataset"] for row in rows}


def _by_dataset(rows: Sequence[Row], *summaries: Measure) -> list[Measure]:
    """A line for each data set, and summaries over all of them."""
    first = summaries[0]
    each = [
        replace(first, label=row_name(one), mean=macro_average, dataset=one) for one in sorted(_sets(rows))
    ]
    return [*each, *summaries]
