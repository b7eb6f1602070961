"""Figures: written whole as PNG and SVG, the same each time, told apart without colour, on any input."""

from __future__ import annotations

import subprocess
import sys
from functools import cache
from pathlib import Path
from xml.etree import ElementTree

import matplotlib
import numpy as np
import pytest
from matplotlib.figure import Figure
from PIL import Image

from mhpatchcore.report.figures import (
    LOOKS,
    Cost,
    Series,
    figure_bytes,
    histogram_figure,
    lines_figure,
    pareto_figure,
    pareto_front,
    precision_recall_figure,
    roc_figure,
    save_figure,
)

LABELS = np.repeat([False, True], 20)
SCORES = np.concatenate([np.linspace(10, 40, 20), np.geomspace(25, 900, 20)])
COSTS = [
    Cost("patchcore", 2400, 0.985),
    Cost("mh", 530, 0.93),
    Cost("mh-kmeans", 540, 0.928),
    Cost("mh-k1000-c1024", 545, 0.955),
    Cost("mh-k5000-c1024", 640, 0.972),
    Cost("geores-k1000", 600, 0.95),
    Cost("geores-k2000", 620, 0.962),
    Cost("default", 610, 0.978),
]


@cache
def drawn(copy: int = 0) -> dict[str, Figure | None]:
    series = [Series(f"configuration {i}", [300, 500, 1000], [1 + i, 2 + i, 3 + i]) for i in range(7)]
    return {
        "roc": roc_figure(LABELS, SCORES, 35.0),
        "precision_recall": precision_recall_figure(LABELS, SCORES, 35.0),
        "histogram": histogram_figure(LABELS, SCORES, 35.0),
        "lines": lines_figure(series, "Memory", "training images", "peak RAM (GB)"),
        "pareto": pareto_figure(COSTS),
    }


def test_saved_as_png_and_svg_and_nothing_else(tmp_path: Path) -> None:
    for name, figure in drawn().items():
        assert figure is not None
        stem = tmp_path / "figures" / f"{name}.v1"
        save_figure(figure, stem)
        with Image.open(f"{stem}.png") as image:
            assert image.format == "PNG" and image.width > 600
        assert ElementTree.parse(f"{stem}.svg").getroot().tag.endswith("svg")
    assert len(list((tmp_path / "figures").iterdir())) == 2 * len(drawn())


def test_same_figure_same_bytes() -> None:
    for name in ("histogram", "pareto"):
        first, second = drawn(0)[name], drawn(1)[name]
        assert first is not None and second is not None
        assert figure_bytes(first, "svg") == figure_bytes(second, "svg")


def test_no_global_state_is_touched() -> None:
    before = dict(matplotlib.rcParams)
    drawn(2)
    assert dict(matplotlib.rcParams) == before
    code = "import sys, mhpatchcore.report.figures; sys.exit('matplotlib.pyplot' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_lines_differ_in_colour_marker_and_dashes_each() -> None:
    for column in zip(*LOOKS, strict=True):
        assert len(set(column)) == len(LOOKS)
    figure = drawn()["lines"]
    assert figure is not None
    lines = figure.axes[0].get_lines()
    assert [line.get_marker() for line in lines] == [marker for _, marker, _ in LOOKS]


def test_curves_mark_the_threshold_and_need_both_classes() -> None:
    figure = roc_figure(LABELS, SCORES, 35.0)
    assert figure is not None
    point = figure.axes[0].get_lines()[-1]
    assert point.get_xdata() == [np.mean(SCORES[~LABELS] > 35)]
    assert point.get_ydata() == [np.mean(SCORES[LABELS] > 35)]
    for labels in (np.zeros(40, bool), np.ones(40, bool)):
        assert roc_figure(labels, SCORES, 35.0) is None
        assert precision_recall_figure(labels, SCORES, 35.0) is None


@pytest.mark.parametrize(
    ("labels", "scores", "threshold"),
    [
        (LABELS, SCORES, np.inf),
        ([False] * 3, [1.0, 2.0, 3.0], 2.5),
        ([False, True], [0.0, 0.0], 0.0),
        ([False, True, True], [5.0, 5.0, 5.0], 5.0),
        ([False, True], [1e-3, 1e6], 10.0),
    ],
)
def test_histogram_counts_every_image(labels: list[bool], scores: list[float], threshold: float) -> None:
    figure = histogram_figure(labels, scores, threshold)
    assert figure_bytes(figure, "png")
    outlines = [patch for patch in figure.axes[0].patches if patch.get_hatch()]
    counts = [sum(patch.get_data().values) for patch in outlines]  # type: ignore[attr-defined]
    assert counts == [n for n in (np.sum(~np.asarray(labels)), np.sum(labels)) if n]
    assert len({patch.get_hatch() for patch in outlines}) == len(counts)


def test_pareto_front_is_what_none_other_beats() -> None:
    front = pareto_front(COSTS)
    assert [cost.label for cost in front] == ["mh", "mh-k1000-c1024", "default", "patchcore"]
    assert pareto_front([]) == []
    assert [cost.label for cost in pareto_front([Cost("a", 1, 0.5), Cost("b", 1, 0.7)])] == ["b"]


def test_every_configuration_of_a_pareto_figure_is_told_apart() -> None:
    many = [Cost(f"configuration {i}", 300 + 20 * i, 0.9 + 0.001 * i) for i in range(14)]
    axes = pareto_figure(many).axes[0]
    looks = {
        (tuple(points.get_facecolor()[0]), points.get_paths()[0].vertices.tobytes())
        for points in axes.collections
    }
    assert len(looks) == 14
    legend = axes.get_legend()
    assert legend is not None and len(legend.get_texts()) == 14
    named = [text.get_text() for text in pareto_figure(COSTS).axes[0].get_legend().get_texts()]  # type: ignore[union-attr]
    assert [name.removesuffix(" *") for name in named if name.endswith("*")] == [
        cost.label for cost in COSTS if cost in pareto_front(COSTS)
    ]
