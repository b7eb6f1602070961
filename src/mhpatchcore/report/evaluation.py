"""The page about an evaluation: one HTML file that needs no network and holds a bounded number of pictures."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from mhpatchcore.calibration.choices import cautions
from mhpatchcore.detector import Detector
from mhpatchcore.evaluation.evaluate import Evaluation, Judged, evaluate
from mhpatchcore.inputs.datasets import Dataset
from mhpatchcore.report import wording
from mhpatchcore.report.figures import figure_bytes, histogram_figure, precision_recall_figure, roc_figure
from mhpatchcore.report.gallery import (
    ELSEWHERE,
    FALSE_ALARM,
    FOUND,
    MISSED,
    NOT_JUDGED,
    PASSED,
    REJECTED,
    VERDICTS,
    Gallery,
    GalleryItem,
    verdict_of,
)
from mhpatchcore.report.page import render_page
from mhpatchcore.runtime.files import atomic_path
from mhpatchcore.runtime.telemetry import Telemetry

MAX_GALLERY = 48
HEADINGS = {
    FALSE_ALARM: ("False alarms", "good parts that were rejected, highest score first"),
    MISSED: ("Missed defects", "defects that were passed, lowest score first"),
    ELSEWHERE: ("Rejected, but not for the defect", "what is outlined lies elsewhere, highest score first"),
    FOUND: ("Found defects", "rejected, and outlined where the defect is: the strongest of each kind"),
    REJECTED: ("Rejected defects", "the strongest of each kind; where the defects are is not known"),
    PASSED: ("Good parts that passed", "the calmest ones"),
    NOT_JUDGED: ("Not judged", "the model has no threshold"),
}


@dataclass(frozen=True)
class Row:
    """An image in the table; `item` is the number of its picture in the gallery, 0 if it has none."""

    name: str
    judged: Judged
    verdict: str
    item: int


@dataclass(frozen=True)
class Section:
    """A part of the gallery: numbered items of one verdict, out of `total` such images."""

    heading: str
    note: str
    items: Sequence[tuple[int, GalleryItem]]
    total: int


def write_report(
    detector: Detector,
    dataset: Dataset,
    path: str | Path,
    *,
    workers: int | None = None,
    progress: Callable[[str, int, int], None] | None = None,
    max_gallery: int = MAX_GALLERY,
    skip_broken: bool = False,
) -> Evaluation:
    """Evaluate and write the page about it, with pictures of at most `max_gallery` images."""
    gallery = Gallery((sample.kind for sample in dataset.test if sample.is_anomalous), max_gallery)
    telemetry = Telemetry()
    with atomic_path(path) as temporary:  # a place that cannot be written is known before the work, not after
        with telemetry.phase("score") as measured:
            evaluation = evaluate(detector, dataset, workers, gallery.offer, progress, skip_broken)
            measured.items = len(evaluation.images)
        page = render(detector, evaluation, gallery.items(), telemetry.to_json())
        # file names may hold bytes that are no text
        temporary.write_text(page, encoding="utf-8", errors="backslashreplace")
    return evaluation


def render(
    detector: Detector, evaluation: Evaluation, items: Sequence[GalleryItem], telemetry: Mapping[str, Any]
) -> str:
    """The page as text."""
    names = short_names([*(judged.path for judged in evaluation.images), *evaluation.left_out])
    return render_page(
        "evaluation.html.j2",
        eyebrow="Inspection report",
        name=evaluation.name,
        evaluation=evaluation,
        headline=wording.headline(evaluation),
        promise=wording.promise(evaluation, detector),
        tested_on=wording.tested_on(evaluation),
        tiles=wording.tiles(evaluation),
        cautions=cautions(detector.calibration, detector.model.odd_images),
        figures=_figures(evaluation),
        kinds=wording.kind_rows(evaluation),
        names=names,
        sections=_sections(evaluation, items),
        rows=_rows(evaluation, items, names),
        verdicts=[verdict for verdict in VERDICTS if verdict in map(verdict_of, evaluation.images)],
        pixel_threshold=wording.number(detector.calibration.pixel_threshold),
        telemetry=wording.telemetry_facts(telemetry),
        phases=wording.telemetry_phases(telemetry),
        provenance=wording.provenance(detector),
        settings=wording.settings(detector.config),
    )


def short_names(paths: Sequence[Path]) -> dict[Path, str]:
    """Each path without what all of them share.

    >>> list(short_names([Path("/set/test/good/1.png"), Path("/set/test/bad/1.png")]).values())
    ['good/1.png', 'bad/1.png']
    """
    if not paths:
        return {}
    shared = os.path.commonpath([path.parent for path in paths])
    return {path: path.relative_to(shared).as_posix() for path in paths}


def _figures(evaluation: Evaluation) -> list[tuple[str, bytes]]:
    """Descriptions and SVG files of what can be drawn: curves need both good and defective images."""
    labels = np.array([judged.is_anomalous for judged in evaluation.images])
    scores = np.array([judged.score for judged in evaluation.images])
    image, threshold = evaluation.image, evaluation.threshold
    known = f"threshold {wording.number(threshold)}"
    drawn = [
        (
            f"Histogram of the scores of {image.n_normal} good and {image.n_anomalous} defective images, {known}",
            histogram_figure(labels, scores, threshold),
        ),
        (f"ROC curve, area {image.auroc:.3f}", roc_figure(labels, scores, threshold)),
        (
            f"Precision-recall curve, average precision {image.average_precision:.3f}",
            precision_recall_figure(labels, scores, threshold),
        ),
    ]
    return [(text, figure_bytes(figure, "svg")) for text, figure in drawn if figure is not None]


def _sections(evaluation: Evaluation, items: Sequence[GalleryItem]) -> list[Section]:
    verdicts = [verdict_of(judged) for judged in evaluation.images]
    numbered = list(enumerate(items, start=1))
    sections = []
    for verdict, (heading, note) in HEADINGS.items():
        members = [(i, item) for i, item in numbered if item.verdict == verdict]
        if members:
            sections.append(Section(heading, note, members, verdicts.count(verdict)))
    return sections


def _rows(evaluation: Evaluation, items: Sequence[GalleryItem], names: Mapping[Path, str]) -> list[Row]:
    """All images, highest score first."""
    number_of = {item.path: i for i, item in enumerate(items, start=1)}
    return [
        Row(names[judged.path], judged, verdict_of(judged), number_of.get(judged.path, 0))
        for judged in sorted(evaluation.images, key=lambda judged: -judged.score)
    ]
