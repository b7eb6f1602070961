"""Figures in one style, readable in grey print and by colour-blind people.

Every function returns a matplotlib `Figure`, never shown and not registered with pyplot; `save_figure` writes it
as PNG and SVG. Whatever a colour means is also shown by a marker, a dash pattern or a hatch.
"""

from __future__ import annotations

import io
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, Locator, LogLocator, MaxNLocator, NullLocator
from numpy.typing import ArrayLike

from mhpatchcore.evaluation.metrics import auroc, average_precision, precision_recall_curve, roc_curve
from mhpatchcore.runtime.arrays import Doubles
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
OWN_LAYOUT: dict[Any, Any] = {"figure.constrained_layout.use": False}
THRESHOLD: dict[str, Any] = {"color": "black", "linestyle": "--", "linewidth": 1.4}
BINS = 32


@dataclass(frozen=True, eq=False)
class Series:
    """A labelled line through the points x (n,), y (n,)."""

    label: str
    x: ArrayLike
    y: ArrayLike


@dataclass(frozen=True)
class Cost:
    """What a configuration needs and what it gives."""

    label: str
    ram: float
    auroc: float


def figure_bytes(figure: Figure, kind: str) -> bytes:
    """The figure as a "png" or "svg" file, without the date that would make each copy differ."""
    buffer = io.BytesIO()
    with rc_context(STYLE | OWN_LAYOUT):  # a figure keeps the layout it was made with
        figure.savefig(buffer, format=kind, metadata={"Date": None} if kind == "svg" else None)
    return buffer.getvalue()


def save_figure(figure: Figure, stem: str | Path) -> list[Path]:
    """Write `stem`.png and `stem`.svg, each whole or not at all."""
    files = [Path(f"{stem}.{kind}") for kind in ("png", "svg")]
    for path in files:
        with atomic_path(path) as temporary:
            temporary.write_bytes(figure_bytes(figure, path.suffix[1:]))
    return files


@rc_context(STYLE)
def roc_figure(labels: ArrayLike, scores: ArrayLike, threshold: float) -> Figure | None:
    """ROC curve of labels (n,) and scores (n,) with the threshold's place on it; None for a single class."""
    curve = roc_curve(labels, scores)
    if curve is None:
        return None
    is_anomalous, flagged = np.asarray(labels, bool), np.asarray(scores) > threshold
    figure, axes = _square("ROC", "good parts rejected", "defects rejected")
    axes.plot([0, 1], [0, 1], color=GREY, linestyle=":", linewidth=1, label="by chance")
    x, y = curve.false_positive_rate, curve.true_positive_rate
    axes.plot(x, y, color=BLUE, label=f"AUROC {auroc(labels, scores):.3f}")
    if np.isfinite(threshold):
        _mark_threshold(axes, flagged[~is_anomalous].mean(), flagged[is_anomalous].mean())
    axes.legend(loc="lower right")
    return figure


@rc_context(STYLE)
def precision_recall_figure(labels: ArrayLike, scores: ArrayLike, threshold: float) -> Figure | None:
    """Precision over recall of labels (n,) and scores (n,); None for a single class."""
    curve = precision_recall_curve(labels, scores)
    if curve is None:
        return None
    is_anomalous, flagged = np.asarray(labels, bool), np.asarray(scores) > threshold
    figure, axes = _square(
        "Precision and recall", "defects rejected (recall)", "rejects that are defects (precision)"
    )
    axes.axhline(float(is_anomalous.mean()), color=GREY, linestyle=":", linewidth=1, label="by chance")
    label = f"average precision {average_precision(labels, scores):.3f}"
    axes.plot(curve.recall, curve.precision, color=BLUE, drawstyle="steps-post", label=label)
    if flagged.any():
        _mark_threshold(axes, flagged[is_anomalous].mean(), is_anomalous[flagged].mean())
    axes.legend(loc="lower left")
    return figure


@rc_context(STYLE)
def histogram_figure(labels: ArrayLike, scores: ArrayLike, threshold: float) -> Figure:
    """How often each score occurs, normal and anomalous, over a logarithmic axis: distances have a long tail."""
    is_anomalous, score = np.asarray(labels, bool), np.asarray(scores, np.float64)
    figure, axes = plot((5.8, 3.1), "Scores", "score (squared distance, logarithmic)", "images")
    bins = log_bins(score, threshold)
    classes = (("good", ~is_anomalous, BLUE, "///"), ("defective", is_anomalous, VERMILION, "\\\\\\"))
    for name, members, colour, hatch in classes:
        if not members.any():
            continue
        counts = np.histogram(np.clip(score[members], bins[0], bins[-1]), bins)[0]
        hatched_stairs(axes, counts, bins, colour, hatch, f"{name} ({members.sum()})")
    if np.isfinite(threshold):
        axes.axvline(threshold, **THRESHOLD, label=f"threshold {threshold:.4g}")
    log_scale(axes, bins[0], bins[-1])
    axes.yaxis.set_major_locator(MaxNLocator(integer=True))
    # beside the title, where no bar can reach it
    axes.legend(loc="lower right", bbox_to_anchor=(1, 1), ncols=3, frameon=False, borderaxespad=0.2)
    return figure


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
def pareto_figure(costs: Sequence[Cost], ram_label: str = "peak RAM (MB)") -> Figure:
    """AUROC over RAM, one marker for each configuration; a line joins those that none other beats."""
    figure, axes = plot((8.4, 4.2), "AUROC and memory", ram_label, "image AUROC")
    front = pareto_front(costs)
    axes.step(
        [c.ram for c in front], [c.auroc for c in front], where="post", color=GREY, linewidth=1, zorder=1
    )
    for i, cost in enumerate(costs):
        # past the last look the markers shift, so that each pair of colour and marker occurs once
        colour, marker = LOOKS[i % len(LOOKS)][0], LOOKS[(i + i // len(LOOKS)) % len(LOOKS)][1]
        label = f"{cost.label} *" if cost in front else cost.label
        style: dict[str, Any] = {
            "s": 60,
            "color": colour,
            "marker": marker,
            "edgecolor": "black",
            "linewidth": 0.6,
        }
        axes.scatter(cost.ram, cost.auroc, label=label, **style)
    axes.margins(0.12)
    log_scale(axes, min(c.ram for c in costs), max(c.ram for c in costs))
    # beside the axes: next to their points the names of a dozen configurations would cover each other
    axes.legend(
        loc="upper left", bbox_to_anchor=(1.02, 1), frameon=False, title="* beaten by none", fontsize=8
    )
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


def plot(size: tuple[float, float], title: str, x_label: str, y_label: str) -> tuple[Figure, Axes]:
    figure = Figure(figsize=size)
    FigureCanvasAgg(figure)
    axes = figure.subplots()
    axes.set(title=title, xlabel=x_label, ylabel=y_label)
    return figure, axes


def _square(title: str, x_label: str, y_label: str) -> tuple[Figure, Axes]:
    """Axes from 0 to 1, with room for lines that run along their edges."""
    figure, axes = plot((4.2, 4.2), title, x_label, y_label)
    axes.set(xlim=(-0.02, 1.02), ylim=(-0.02, 1.02), aspect="equal")
    return figure, axes


def _mark_threshold(axes: Axes, x: float, y: float) -> None:
    axes.plot(
        x, y, color=VERMILION, marker="o", markeredgecolor="black", linestyle="", label="threshold", zorder=3
    )


def hatched_stairs(
    axes: Axes, heights: ArrayLike, bins: Doubles, colour: str, hatch: str, label: str
) -> None:
    """A histogram of heights (n,) over the edges bins (n + 1,)."""
    # tint and hatch apart: in SVG a hatch takes over the opacity of its background
    axes.stairs(heights, bins, fill=True, color=colour, alpha=0.18)
    axes.stairs(heights, bins, edgecolor=colour, hatch=hatch, linewidth=1.4, label=label)


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
