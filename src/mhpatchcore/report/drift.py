"""One picture of a drift, or of none: both distributions, the threshold, and the scores in their order."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, PercentFormatter

from mhpatchcore.errors import UserError
from mhpatchcore.inspection.drift import Drift
from mhpatchcore.report.figures import (
    BLUE,
    GREY,
    STYLE,
    THRESHOLD,
    VERMILION,
    figure_bytes,
    hatched_stairs,
    log_bins,
    log_scale,
)
from mhpatchcore.runtime.arrays import Array, Doubles, Floats
from mhpatchcore.runtime.files import atomic_path

KINDS = ("png", "svg")
BINS = 24
WINDOW_SHARE = 0.05


def write_plot(
    path: Path, scores: Doubles, reference: Floats, drift: Drift, pictures: Mapping[str, Array] | None = None
) -> None:
    """Pictures, by their titles, stand below: of the camera's images then and now."""
    kind = path.suffix.lower().removeprefix(".")
    if kind not in KINDS:
        raise UserError(f"cannot write {path}: a plot is a .png or .svg file")
    with atomic_path(path) as temporary:
        temporary.write_bytes(figure_bytes(drift_figure(scores, reference, drift, pictures or {}), kind))


@rc_context(STYLE)
def drift_figure(scores: Doubles, reference: Floats, drift: Drift, pictures: Mapping[str, Array]) -> Figure:
    figure = Figure(figsize=(9.6, 8.2 if pictures else 4.1))
    FigureCanvasAgg(figure)
    figure.suptitle(drift.verdict, x=0.01, ha="left", fontsize=10)
    rows = figure.subplots(2 if pictures else 1, 2, width_ratios=[1, 1.2], squeeze=False)
    left, right = rows[0]
    for axes in rows[1:].flat:
        axes.set_axis_off()
    for axes, (title, pixels) in zip(rows[-1], pictures.items(), strict=False):
        axes.imshow(pixels)
        axes.set_title(title)
    _distributions(left, scores, reference, drift.threshold)
    _in_order(right, scores, drift)
    # one legend for both, below them, where it covers nothing
    found = [axes.get_legend_handles_labels() for axes in (left, right)]
    handles, labels = ([*first, *second] for first, second in zip(*found, strict=True))
    figure.legend(handles, labels, loc="outside lower center", ncols=3, frameon=False, fontsize=9)
    return figure


def _distributions(axes: Axes, scores: Doubles, reference: Floats, threshold: float) -> None:
    """Shares of images, so that groups of different size compare."""
    bins = log_bins(np.concatenate([scores, reference]), threshold, BINS)
    groups = (("reference", reference, BLUE, "///"), ("recent", scores, VERMILION, "\\\\\\"))
    for name, values, colour, hatch in groups:
        shares = np.histogram(np.clip(values, bins[0], bins[-1]), bins)[0] / len(values)
        hatched_stairs(axes, shares, bins, colour, hatch, f"{name} ({len(values)})")
    if np.isfinite(threshold):
        axes.axvline(threshold, **THRESHOLD, label=f"image threshold {threshold:.4g}")
    log_scale(axes, bins[0], bins[-1])
    axes.yaxis.set_major_locator(MaxNLocator(7, steps=[1, 2, 5, 10]))
    axes.yaxis.set_major_formatter(PercentFormatter(1, decimals=0, symbol=" %"))
    axes.set(
        title="Distribution", xlabel="score (squared distance, logarithmic)", ylabel="share of the images"
    )


def _in_order(axes: Axes, scores: Doubles, drift: Drift) -> None:
    place = np.arange(1, len(scores) + 1)
    axes.plot(place, scores, ".", color=VERMILION, markersize=4, alpha=0.7)
    window = max(9, round(WINDOW_SHARE * len(scores)))
    if len(scores) >= 2 * window:
        views = np.lib.stride_tricks.sliding_window_view(scores, window)
        middle = place[window // 2 : window // 2 + len(views)]
        axes.plot(middle, np.median(views, axis=1), color="black", label=f"median of {window} recent ones")
    known = drift.reference_median
    axes.axhline(
        known, color=GREY, linestyle=":", linewidth=1.4, label=f"median of the reference {known:.4g}"
    )
    if np.isfinite(drift.threshold):
        axes.axhline(drift.threshold, **THRESHOLD)
    ends = log_bins(np.append(scores, known), drift.threshold, 1)
    log_scale(axes, ends[0], ends[1], vertical=True)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
    axes.set(title="In order", xlabel="image", ylabel="score (logarithmic)", ylim=(ends[0], ends[1]))
