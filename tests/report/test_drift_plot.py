"""The plot of a drift: whole numbers of images, plain ticks, and a legend that covers nothing."""

from __future__ import annotations

import numpy as np
import pytest
from matplotlib.figure import Figure

from mhpatchcore.calibration.threshold import calibrate
from mhpatchcore.inspection.drift import compare
from mhpatchcore.report.figures import drift_figure, figure_bytes


def drawn(recent: np.ndarray) -> Figure:
    reference = np.exp(np.random.default_rng(0).normal(2.8, 0.15, 100))
    calibration = calibrate(reference, reference, 0.01, "cross-image")
    figure = drift_figure(recent, calibration.scores, compare(recent, calibration))
    assert figure_bytes(figure, "png")  # which lays it out
    return figure


FEW = np.array([16.0, 17.0, 15.5])
MANY = np.exp(np.random.default_rng(1).normal(2.9, 0.15, 400))
FAR = np.exp(np.random.default_rng(2).normal(6.0, 0.5, 60))


@pytest.mark.parametrize("recent", [FEW, MANY, FAR], ids=["few", "many", "far"])
def test_ticks(recent: np.ndarray) -> None:
    left, right = drawn(recent).axes
    images = [tick for tick in right.get_xticks() if 1 <= tick <= len(recent)]
    assert images and all(float(tick).is_integer() for tick in images)
    for ticks, (low, high) in ((left.get_xticks(), left.get_xlim()), (right.get_yticks(), right.get_ylim())):
        shown = [tick for tick in ticks if low <= tick <= high]
        assert 2 <= len(shown) <= 10
    labels = [label.get_text() for axis in (left.xaxis, right.yaxis) for label in axis.get_ticklabels()]
    assert not any("10^" in label or "e+" in label for label in labels)


@pytest.mark.parametrize("recent", [FEW, MANY, FAR], ids=["few", "many", "far"])
def test_the_legend_names_every_line_and_covers_nothing(recent: np.ndarray) -> None:
    figure = drawn(recent)
    assert not any(axes.get_legend() for axes in figure.axes)
    (legend,) = figure.legends
    names = [text.get_text().rsplit(" ", 1)[0] for text in legend.get_texts()]
    assert {"reference", "recent", "image threshold", "median of the reference"} <= set(names)
    assert len(names) == len(set(names))
    box = legend.get_window_extent()
    canvas = figure.bbox
    assert box.x0 >= canvas.x0 and box.x1 <= canvas.x1 and box.y0 >= canvas.y0
    for axes in figure.axes:
        assert not box.overlaps(axes.get_tightbbox())
