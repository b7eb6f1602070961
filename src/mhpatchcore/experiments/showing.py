"""What a cell leaves behind for people to look at: the verdict on every image, curves, and telling examples."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from mhpatchcore.detector import Detector
from mhpatchcore.errors import ImageError
from mhpatchcore.evaluation.evaluate import Evaluation, Judged
from mhpatchcore.inputs.datasets import Dataset, Sample, read_mask
from mhpatchcore.inputs.window import load_pixels
from mhpatchcore.report.examples import Example, qualitative_figure
from mhpatchcore.report.figures import histogram_figure, precision_recall_figure, roc_figure, save_figure
from mhpatchcore.report.gallery import verdict_of
from mhpatchcore.runtime.files import write_csv

VERDICT = ("image", "kind", "is_anomalous", "score", "threshold", "flagged", "located", "p_value", "verdict")
HARD, CLEAR = 3, 5


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
