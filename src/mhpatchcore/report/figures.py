"""Figures in one style, readable in grey print and by colour-blind people.

Every function returns a matplotlib `Figure`, never shown and not registered with pyplot; `save_figure` writes it
as PNG and SVG. Whatever a colour means is also shown by a marker, a dash pattern or a hatch.
"""

from __future__ import annotations

import io
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, Locator, LogLocator, MaxNLocator, NullLocator, PercentFormatter
from numpy.typing import ArrayLike

from mhpatchcore.errors import UserError
from mhpatchcore.evaluation.metrics import auroc, average_precision, precision_recall_curve, roc_curve
from mhpatchcore.inspection.drift import Drift
from mhpatchcore.runtime.arrays import Array, Doubles, Floats
from mhpatchcore.runtime.files import atomic_path

BLUE, VERMILION, GREY = "#0072B2", "#D55E00", "#595959"
# Okabe and Ito's colours that stand out on white, each with a marker and a dash pattern of its own
LOOKS: tuple[tuple[str, str, Any], ...] = (
    (BLUE, "o", "-"),
    (VERMILION, "s", "--"),
    ("#009E73", "^", "-."),
    ("#CC79A7", "D", ":"),
    ("#E69F00", "v", (0, (6, 1))),
    ("#56B4E9", "P", (0, (3, 1, 1, 1, 1, 1))),
    ("#000000", "X", (0, (1, 2))),
)
STYLE: dict[Any, Any] = {
    "axes.titlesize": 11,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "axes.grid": True,
    "grid.color": "#d9d9d9",
    "grid.linewidth": 0.6,
    "legend.fontsize": 9,
    "lines.linewidth": 1.8,
    "hatch.linewidth": 0.8,
    "figure.constrained_layout.use": True,
    "savefig.dpi": 200,
    "svg.hashsalt": "mhpatchcore",  # the same figure gives the same bytes
}
THRESHOLD: dict[str, Any] = {"color": "black", "linestyle": "--", "linewidth": 1.4}
CHANCE: dict[str, Any] = {"color": GREY, "linestyle": ":", "linewidth": 1}
MARK: dict[str, Any] = {"color": VERMILION, "marker": "o", "markeredgecolor": "black", "linestyle": ""}
MARK |= {"label": "threshold", "zorder": 3}
HATCH = "\\\\\\"
SCORE = "score (squared distance, logarithmic)"
KINDS = ("png", "svg")
BINS, DRIFT_BINS = 32, 24
WINDOW_SHARE = 0.05  # of the scores, for their running median


class Series(NamedTuple):
    """A labelled line through the points x (n,), y (n,)."""

    label: str
    x: ArrayLike
    y: ArrayLike


class Cost(NamedTuple):
    """What a configuration needs and what it gives."""

    label: str
    ram: float
    auroc: float


def figure_bytes(figure: Figure, kind: str) -> bytes:
    """The figure as a "png" or "svg" file, without the date that would make each copy differ."""
    buffer = io.BytesIO()
    with rc_context(STYLE | {"figure.constrained_layout.use": False}):  # it keeps the layout it was made with
        figure.savefig(buffer, format=kind, metadata={"Date": None} if kind == "svg" else None)
    return buffer.getvalue()


def write_plot(path: Path, figure: Figure) -> None:
    """Write a figure whole or not at all."""
    kind = path.suffix.lower().removeprefix(".")
    if kind not in KINDS:
        raise UserError(f"cannot write {path}: a plot is a .png or .svg file")
    with atomic_path(path) as temporary:
        temporary.write_bytes(figure_bytes(figure, kind))


def save_figure(figure: Figure, stem: str | Path) -> list[Path]:
    """Write `stem`.png and `stem`.svg."""
    files = [Path(f"{stem}.{kind}") for kind in KINDS]
    for path in files:
        write_plot(path, figure)
    return files


@rc_context(STYLE)
def roc_figure(labels: ArrayLike, scores: ArrayLike, threshold: float) -> Figure | None:
    """ROC curve of labels (n,) and scores (n,) with the threshold's place on it; None for a single class."""
    curve = roc_curve(labels, scores)
    if curve is None:
        return None
    is_anomalous, flagged = np.asarray(labels, bool), np.asarray(scores) > threshold
    figure, axes = _square("ROC", "good parts rejected", "defects rejected")
    axes.plot([0, 1], [0, 1], label="by chance", **CHANCE)
    axes.plot(*curve[:2], color=BLUE, label=f"AUROC {auroc(labels, scores):.3f}")
    if np.isfinite(threshold):
        axes.plot(flagged[~is_anomalous].mean(), flagged[is_anomalous].mean(), **MARK)
    axes.legend(loc="lower right")
    return figure


@rc_context(STYLE)
def precision_recall_figure(labels: ArrayLike, scores: ArrayLike, threshold: float) -> Figure | None:
    """Precision over recall of labels (n,) and scores (n,); None for a single class."""
    curve = precision_recall_curve(labels, scores)
    if curve is None:
        return None
    is_anomalous, flagged = np.asarray(labels, bool), np.asarray(scores) > threshold
    rejects = "rejects that are defects (precision)"
    figure, axes = _square("Precision and recall", "defects rejected (recall)", rejects)
    axes.axhline(float(is_anomalous.mean()), label="by chance", **CHANCE)
    label = f"average precision {average_precision(labels, scores):.3f}"
    precision, recall, _ = curve
    axes.plot(recall, precision, color=BLUE, drawstyle="steps-post", label=label)
    if flagged.any():
        axes.plot(flagged[is_anomalous].mean(), is_anomalous[flagged].mean(), **MARK)
    axes.legend(loc="lower left")
    return figure


@rc_context(STYLE)
def histogram_figure(labels: ArrayLike, scores: ArrayLike, threshold: float) -> Figure:
    """How often each score occurs, normal and anomalous, over a logarithmic axis: distances have a long tail."""
    is_anomalous, score = np.asarray(labels, bool), np.asarray(scores, np.float64)
    figure, axes = plot((5.8, 3.1), "Scores", SCORE, "images")
    groups = {"good": score[~is_anomalous], "defective": score[is_anomalous]}
    _histogram(axes, groups, threshold, BINS, f"threshold {threshold:.4g}")
    axes.yaxis.set_major_locator(MaxNLocator(integer=True))
    # beside the title, where no bar can reach it
    axes.legend(loc="lower right", bbox_to_anchor=(1, 1), ncols=3, frameon=False, borderaxespad=0.2)
    return figure


def _histogram(
    axes: Axes, groups: Mapping[str, Array], threshold: float, n: int, label: str, shares: bool = False
) -> None:
    """Two groups of scores, of which one may be empty, in n bins: counts, or shares so that groups compare."""
    bins = log_bins(np.concatenate(list(groups.values())), threshold, n)
    for (name, values), (colour, hatch) in zip(
        groups.items(), ((BLUE, "///"), (VERMILION, HATCH)), strict=True
    ):
        if len(values):
            heights = np.histogram(np.clip(values, bins[0], bins[-1]), bins)[0]
            heights = heights / len(values) if shares else heights
            # tint and hatch apart: in SVG a hatch takes over the opacity of its background
            axes.stairs(heights, bins, fill=True, color=colour, alpha=0.18)
            named = f"{name} ({len(values)})"
            axes.stairs(heights, bins, edgecolor=colour, hatch=hatch, linewidth=1.4, label=named)
    if np.isfinite(threshold):
        axes.axvline(threshold, label=label, **THRESHOLD)
    log_scale(axes, bins[0], bins[-1])


@rc_context(STYLE)
def lines_figure(
    series: Sequence[Series],
    title: str,
    x_label: str,
    y_label: str,
    bottom: float | None = None,
    top: float | None = None,
) -> Figure:
    """Lines with markers, for instance peak RAM over the number of images for several configurations."""
    figure, axes = plot((6.4, 4.0), title, x_label, y_label)
    for i, one in enumerate(series):
        colour, marker, dashes = LOOKS[i % len(LOOKS)]
        axes.plot(one.x, one.y, color=colour, marker=marker, linestyle=dashes, label=one.label)
    axes.set_ylim(bottom, top)
    axes.legend(loc="best")
    return figure


@rc_context(STYLE)
def pareto_figure(costs: Sequence[Cost]) -> Figure:
    """AUROC over RAM, one marker for each configuration; a line joins those that none other beats."""
    figure, axes = plot((8.4, 4.2), "AUROC and memory", "peak RAM (MB)", "image AUROC")
    front = pareto_front(costs)
    steps = [c.ram for c in front], [c.auroc for c in front]
    axes.step(*steps, where="post", color=GREY, linewidth=1, zorder=1)
    for i, cost in enumerate(costs):
        # past the last look the markers shift, so that each pair of colour and marker occurs once
        colour, marker = LOOKS[i % len(LOOKS)][0], LOOKS[(i + i // len(LOOKS)) % len(LOOKS)][1]
        label = f"{cost.label} *" if cost in front else cost.label
        style: dict[str, Any] = {"color": colour, "marker": marker, "edgecolor": "black", "linewidth": 0.6}
        axes.scatter(cost.ram, cost.auroc, s=60, label=label, **style)
    axes.margins(0.12)
    log_scale(axes, min(c.ram for c in costs), max(c.ram for c in costs))
    # beside the axes: next to their points the names of a dozen configurations would cover each other
    place: dict[str, Any] = {"loc": "upper left", "bbox_to_anchor": (1.02, 1)}
    axes.legend(frameon=False, title="* beaten by none", fontsize=8, **place)
    return figure


def pareto_front(costs: Iterable[Cost]) -> list[Cost]:
    """Those for which none other takes no more memory and gives at least the same AUROC, by rising RAM.

    >>> [c.label for c in pareto_front([Cost("a", 1, 0.9), Cost("b", 2, 0.8), Cost("c", 3, 0.95)])]
    ['a', 'c']
    """
    front: list[Cost] = []
    for cost in sorted(costs, key=lambda c: (c.ram, -c.auroc)):
        if not front or cost.auroc > front[-1].auroc:
            front.append(cost)
    return front


@rc_context(STYLE)
def drift_figure(
    scores: Doubles, reference: Floats, drift: Drift, pictures: Mapping[str, Array] | None = None
) -> Figure:
    """Both distributions, the threshold, and the scores in their order.

    Pictures, by their titles, stand below: of the camera's images then and now.
    """
    figure = Figure(figsize=(9.6, 8.2 if pictures else 4.1))
    figure.suptitle(drift.verdict, x=0.01, ha="left", fontsize=10)
    rows = figure.subplots(2 if pictures else 1, 2, width_ratios=[1, 1.2], squeeze=False)
    for axes in rows[1:].flat:
        axes.set_axis_off()
    for axes, (title, pixels) in zip(rows[-1], (pictures or {}).items(), strict=False):
        axes.imshow(pixels)
        axes.set_title(title)
    left, right = rows[0]
    groups, label = {"reference": reference, "recent": scores}, f"image threshold {drift.threshold:.4g}"
    _histogram(left, groups, drift.threshold, DRIFT_BINS, label, shares=True)
    left.yaxis.set_major_locator(MaxNLocator(7, steps=[1, 2, 5, 10]))
    left.yaxis.set_major_formatter(PercentFormatter(1, decimals=0, symbol=" %"))
    left.set(title="Distribution", xlabel=SCORE, ylabel="share of the images")
    _in_order(right, scores, drift)
    # one legend for both, below them, where it covers nothing
    found = [axes.get_legend_handles_labels() for axes in (left, right)]
    handles, labels = ([*first, *second] for first, second in zip(*found, strict=True))
    figure.legend(handles, labels, loc="outside lower center", ncols=3, frameon=False, fontsize=9)
    return figure


def _in_order(axes: Axes, scores: Doubles, drift: Drift) -> None:
    place = np.arange(1, len(scores) + 1)
    axes.plot(place, scores, ".", color=VERMILION, markersize=4, alpha=0.7)
    window = max(9, round(WINDOW_SHARE * len(scores)))
    if len(scores) >= 2 * window:
        views = np.lib.stride_tricks.sliding_window_view(scores, window)
        middle = place[window // 2 : window // 2 + len(views)]
        axes.plot(middle, np.median(views, axis=1), color="black", label=f"median of {window} recent ones")
    known = drift.reference_median
    label = f"median of the reference {known:.4g}"
    axes.axhline(known, color=GREY, linestyle=":", linewidth=1.4, label=label)
    if np.isfinite(drift.threshold):
        axes.axhline(drift.threshold, **THRESHOLD)
    ends = log_bins(np.append(scores, known), drift.threshold, 1)
    log_scale(axes, ends[0], ends[1], vertical=True)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
    axes.set(title="In order", xlabel="image", ylabel="score (logarithmic)", ylim=(ends[0], ends[1]))


def plot(size: tuple[float, float], title: str, x_label: str, y_label: str) -> tuple[Figure, Axes]:
    figure = Figure(figsize=size)
    axes = figure.subplots()
    axes.set(title=title, xlabel=x_label, ylabel=y_label)
    return figure, axes


def _square(title: str, x_label: str, y_label: str) -> tuple[Figure, Axes]:
    """Axes from 0 to 1, with room for lines that run along their edges."""
    figure, axes = plot((4.2, 4.2), title, x_label, y_label)
    axes.set(xlim=(-0.02, 1.02), ylim=(-0.02, 1.02), aspect="equal")
    return figure, axes


def log_bins(scores: Doubles, threshold: float, bins: int = BINS) -> Doubles:
    """Edges (bins + 1,) over all positive scores and the threshold; a score of 0 belongs into the first bin."""
    values = np.append(scores, threshold)
    values = values[np.isfinite(values) & (values > 0)]
    low, high = (values.min(), values.max()) if values.size else (1.0, 1.0)
    return np.geomspace(low / 1.05, high * 1.05, bins + 1)


def log_scale(axes: Axes, low: float, high: float, vertical: bool = False) -> None:
    """A logarithmic x (or y) axis with plain numbers, as many as its span bears."""
    decades = np.log10(high / low)
    locator: Locator = MaxNLocator(7, steps=[1, 2, 5, 10])
    if decades > 0.7:
        locator = LogLocator(subs=(1, 2, 3, 5, 7) if decades < 1.3 else (1, 2, 5) if decades < 3 else (1,))
    axis = axes.yaxis if vertical else axes.xaxis
    (axes.set_yscale if vertical else axes.set_xscale)("log")
    axis.set_major_locator(locator)
    axis.set_minor_locator(NullLocator())
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
