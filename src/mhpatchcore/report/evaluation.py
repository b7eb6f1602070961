"""The page about an evaluation: one HTML file that needs no network and holds a bounded number of pictures."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import isfinite
from pathlib import Path
from typing import Any

import numpy as np

from mhpatchcore.detector import Detector
from mhpatchcore.evaluation.evaluate import Evaluation, Judged, evaluate
from mhpatchcore.inputs.datasets import Dataset
from mhpatchcore.report import wording
from mhpatchcore.report.figures import figure_bytes, histogram_figure, precision_recall_figure, roc_figure
from mhpatchcore.report.gallery import FALSE_ALARM, FOUND, MISSED, PASSED, Exhibit, Gallery, verdict_of
from mhpatchcore.report.page import render_page
from mhpatchcore.runtime.files import atomic_path
from mhpatchcore.runtime.telemetry import Telemetry

MAX_GALLERY = 48
HEADINGS = {
    FALSE_ALARM: ("False alarms", "good parts that were rejected, highest score first"),
    MISSED: ("Missed defects", "defects that were passed, lowest score first"),
    FOUND: ("Found defects", "the strongest of each kind"),
    PASSED: ("Good parts that passed", "the calmest ones"),
}


@dataclass(frozen=True)
class Row:
    """An image in the table; `exhibit` is the number of its picture in the gallery, 0 if it has none."""

    name: str
    judged: Judged
    verdict: str
    exhibit: int


@dataclass(frozen=True)
class Section:
    """A part of the gallery: numbered exhibits of one verdict, out of `total` such images."""

    heading: str
    note: str
    exhibits: Sequence[tuple[int, Exhibit]]
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
    costs = Telemetry(also=progress)
    with atomic_path(path) as temporary:  # a place that cannot be written is known before the work, not after
        costs.progress("score", 0, len(dataset.test))
        evaluation = evaluate(
            detector, dataset, workers, gallery.offer, costs.progress, skip_broken=skip_broken
        )
        costs.finish()
        page = render(detector, evaluation, gallery.exhibits(), costs.to_json())
        # file names may hold bytes that are no text
        temporary.write_text(page, encoding="utf-8", errors="replace")
    return evaluation


def render(
    detector: Detector, evaluation: Evaluation, exhibits: Sequence[Exhibit], telemetry: Mapping[str, Any]
) -> str:
    """The page as text."""
    names = short_names([judged.path for judged in evaluation.images])
    return render_page(
        "evaluation.html.j2",
        eyebrow="Inspection report",
        name=evaluation.name,
        evaluation=evaluation,
        has_threshold=isfinite(evaluation.threshold),
        headline=wording.headline(evaluation),
        promise=wording.promise(evaluation, detector),
        tiles=wording.tiles(evaluation),
        figures=_figures(evaluation),
        kinds=wording.kind_rows(evaluation),
        names=names,
        sections=_sections(evaluation, exhibits),
        rows=_rows(evaluation, exhibits, names),
        verdicts=[FALSE_ALARM, MISSED, FOUND, PASSED],
        telemetry=wording.telemetry_facts(telemetry),
        phases=wording.telemetry_phases(telemetry),
        provenance=wording.provenance(detector),
        settings=wording.settings(detector),
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


def _sections(evaluation: Evaluation, exhibits: Sequence[Exhibit]) -> list[Section]:
    verdicts = [verdict_of(judged.is_anomalous, judged.flagged) for judged in evaluation.images]
    numbered = list(enumerate(exhibits, start=1))
    sections = []
    for verdict, (heading, note) in HEADINGS.items():
        members = [(i, exhibit) for i, exhibit in numbered if exhibit.verdict == verdict]
        if members:
            sections.append(Section(heading, note, members, verdicts.count(verdict)))
    return sections


def _rows(evaluation: Evaluation, exhibits: Sequence[Exhibit], names: Mapping[Path, str]) -> list[Row]:
    """All images, highest score first."""
    number_of = {exhibit.path: i for i, exhibit in enumerate(exhibits, start=1)}
    return [
        Row(names[j.path], j, verdict_of(j.is_anomalous, j.flagged), number_of.get(j.path, 0))
        for j in sorted(evaluation.images, key=lambda j: -j.score)
    ]
