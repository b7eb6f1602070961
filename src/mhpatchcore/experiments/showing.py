"""What a cell leaves behind for people to look at: the verdict on every image, curves, and telling examples."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from PIL import Image

from mhpatchcore.detector import Detector
from mhpatchcore.errors import ImageError
from mhpatchcore.evaluation.evaluate import Evaluation, Judged
from mhpatchcore.inputs.datasets import Dataset, Sample, read_mask
from mhpatchcore.inputs.loading import load_pixels
from mhpatchcore.report.drawing import heat_unit, outlined, overlay, screen_map
from mhpatchcore.report.evaluation import verdict_of
from mhpatchcore.report.figures import (
    OWN_LAYOUT,
    STYLE,
    histogram_figure,
    precision_recall_figure,
    roc_figure,
    save_figure,
)
from mhpatchcore.result import Result
from mhpatchcore.runtime.arrays import Array, Mask
from mhpatchcore.runtime.files import write_csv

VERDICT = ("image", "kind", "is_anomalous", "score", "threshold", "flagged", "located", "p_value", "verdict")
HARD, CLEAR = 3, 5
PANEL_PIXELS = 256
PANEL, GAP, MARGIN = 1.28, 0.06, 0.3  # inches


def write_verdicts(evaluation: Evaluation, root: Path, path: Path) -> Path:
    """One line for each test image, named by its place below the data set's folder."""
    lines = [
        {
            "image": _name(judged.path, root),
            "kind": judged.kind,
            "is_anomalous": int(judged.is_anomalous),
            "score": judged.score,
            "threshold": evaluation.threshold,
            "flagged": _digit(judged.flagged),
            "located": _digit(judged.located),
            "p_value": judged.p_value,
            "verdict": verdict_of(judged),
        }
        for judged in evaluation.images
    ]
    write_csv(path, VERDICT, lines)
    return path


def write_figures(detector: Detector, dataset: Dataset, evaluation: Evaluation, folder: Path) -> list[Path]:
    """ROC, precision and recall, scores with the threshold, and pictures of clear and of hard cases."""
    labels = [judged.is_anomalous for judged in evaluation.images]
    scores = [judged.score for judged in evaluation.images]
    figures = {
        "roc": roc_figure(labels, scores, evaluation.threshold),
        "precision-recall": precision_recall_figure(labels, scores, evaluation.threshold),
        "histogram": histogram_figure(labels, scores, evaluation.threshold),
    }
    samples = {sample.path: sample for sample in dataset.test}
    for name, chosen in (("clear", clear_cases(evaluation.images)), ("hard", hard_cases(evaluation.images))):
        if chosen:
            figures[name] = qualitative_figure([_example(detector, judged, samples) for judged in chosen])
    return [path for name, figure in figures.items() if figure for path in save_figure(figure, folder / name)]


def hard_cases(images: Sequence[Judged]) -> list[Judged]:
    """The defects of the lowest scores and the good parts of the highest: the worst misses and false alarms."""
    defects = sorted((judged for judged in images if judged.is_anomalous), key=lambda judged: judged.score)
    good = sorted((judged for judged in images if not judged.is_anomalous), key=lambda judged: -judged.score)
    return [*defects[:HARD], *good[:HARD]]


def clear_cases(images: Sequence[Judged]) -> list[Judged]:
    """The strongest defect of every kind, strongest kinds first, and the calmest good part."""
    by_score = sorted(images, key=lambda judged: -judged.score)
    strongest = {judged.kind: judged for judged in reversed(by_score) if judged.is_anomalous}
    defects = sorted(strongest.values(), key=lambda judged: -judged.score)
    return [*defects[:CLEAR], *[judged for judged in by_score if not judged.is_anomalous][-1:]]


def _example(detector: Detector, judged: Judged, samples: dict[Path, Sample]) -> Example:
    pixels, mask = load_pixels(judged.path, detector.config.views[0].window), samples[judged.path].mask
    try:
        truth = None if mask is None else read_mask(mask, *pixels.shape[:2])
    except ImageError:
        truth = None  # the evaluation reports it
    label = f"{judged.kind}\n{verdict_of(judged)}"
    return Example(label, pixels, detector.score(judged.path), truth)


def _name(path: Path, root: Path) -> str:
    return path.relative_to(root if path.is_relative_to(root) else root.parent).as_posix()


def _digit(value: bool | None) -> int | None:
    """1, 0, or nothing where it is not known."""
    return None if value is None else int(value)


@dataclass(frozen=True, eq=False)
class Example:
    """An image (H, W, 3) with a label, what the detector says of it and, where it is known, the truth (H, W)."""

    label: str
    pixels: Array
    result: Result
    truth: Mask | None = None


@rc_context(STYLE | OWN_LAYOUT)  # all sizes are known here: no need to search for a layout
def qualitative_figure(examples: Sequence[Example]) -> Figure:
    """One row for each example: image, ground truth (if there is any), heatmap, predicted segmentation."""
    with_truth = any(example.truth is not None for example in examples)
    titles = ["image", *(["ground truth"] if with_truth else []), "heatmap", "segmentation"]
    heights = [PANEL * example.pixels.shape[0] / example.pixels.shape[1] for example in examples]
    size = MARGIN + (PANEL + GAP) * len(titles), MARGIN + sum(heights) + GAP * len(examples)
    figure = Figure(figsize=size)
    FigureCanvasAgg(figure)
    grid, top = [], size[1] - MARGIN
    for height in heights:
        top -= height
        lefts = [MARGIN + (PANEL + GAP) * column for column in range(len(titles))]
        grid.append([_axes(figure, left, top, height) for left in lefts])
        top -= GAP
    for axes, title in zip(grid[0], titles, strict=True):
        axes.set_title(title, fontsize=9, fontweight="normal")
    for line, example in zip(grid, examples, strict=True):
        for axes, panel in zip(line, _example_panels(example, with_truth), strict=True):
            axes.imshow(panel)
            axes.set(xticks=[], yticks=[])
            axes.spines[:].set(visible=True, color="#bfbfbf", linewidth=0.6)
        line[0].set_ylabel(example.label, fontsize=7)
    return figure


def _axes(figure: Figure, left: float, bottom: float, height: float) -> Axes:
    """Axes of a panel's width, given in inches."""
    wide, tall = figure.get_size_inches()
    return figure.add_axes((left / wide, bottom / tall, PANEL / wide, height / tall))


def _example_panels(example: Example, with_truth: bool) -> list[Array]:
    """Pictures (h, w, 3), made small before anything is drawn on them, so that outlines stay visible."""
    pixels = _shrunk(example.pixels)
    heat = screen_map(example.result, *pixels.shape[:2])
    hot = overlay(pixels, heat, heat_unit(example.result))
    predicted = outlined(pixels, heat > example.result.mask_limit)
    if not with_truth:
        return [pixels, hot, predicted]
    truth = pixels if example.truth is None else outlined(pixels, _resized(example.truth, *pixels.shape[:2]))
    return [pixels, truth, hot, predicted]


def _resized(mask: Mask, height: int, width: int) -> Mask:
    image = Image.fromarray(mask.astype(np.float32)).resize((width, height), Image.Resampling.BILINEAR)
    return np.asarray(image) >= 0.5


def _shrunk(pixels: Array) -> Array:
    """Pixels (H, W, 3) made small enough for print."""
    image = Image.fromarray(pixels)
    image.thumbnail((PANEL_PIXELS, PANEL_PIXELS))
    return np.asarray(image)
