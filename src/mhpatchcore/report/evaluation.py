"""The page about an evaluation: one HTML file that needs no network and holds a bounded number of pictures."""

from __future__ import annotations

import heapq
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from mhpatchcore.calibration.choices import cautions
from mhpatchcore.detector import Detector
from mhpatchcore.evaluation.evaluate import Evaluation, Judged, evaluate
from mhpatchcore.inputs.datasets import Dataset, Sample
from mhpatchcore.report import wording
from mhpatchcore.report.drawing import outline_note
from mhpatchcore.report.figures import figure_bytes, histogram_figure, precision_recall_figure, roc_figure
from mhpatchcore.report.page import Picture, picture_of, render_page
from mhpatchcore.result import Result
from mhpatchcore.runtime.costs import Costs
from mhpatchcore.runtime.files import atomic_path

MAX_GALLERY = 48
FALSE_ALARM, MISSED, PASSED, NOT_JUDGED = "false alarm", "missed", "passed", "not judged"
# of a rejected defect: on the defect, elsewhere, or not known, since nobody has drawn the defect
FOUND, ELSEWHERE, REJECTED = "found", "rejected elsewhere", "rejected"
VERDICTS = (FALSE_ALARM, MISSED, ELSEWHERE, FOUND, REJECTED, PASSED, NOT_JUDGED)
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
class GalleryItem:
    """A picture with its verdict; `outline` says what is outlined."""

    path: Path
    kind: str
    verdict: str
    score: float
    p_value: float
    outline: str
    picture: Picture


@dataclass
class TopItems:
    """The `size` items of the highest rank; of equals the earlier one stays."""

    size: int
    _heap: list[tuple[float, int, GalleryItem]] = field(default_factory=list)
    _offered: int = 0

    def wants(self, rank: float) -> bool:
        return len(self._heap) < self.size or (self.size > 0 and rank > self._heap[0][0])

    def put(self, rank: float, item: GalleryItem) -> None:
        self._offered += 1
        add = heapq.heappush if len(self._heap) < self.size else heapq.heappushpop
        add(self._heap, (rank, -self._offered, item))

    def items(self) -> list[GalleryItem]:
        """Highest rank first."""
        return [item for _, _, item in sorted(self._heap, key=lambda entry: entry[:2], reverse=True)]


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
    telemetry = Costs()
    with atomic_path(path) as temporary:  # a place that cannot be written is known before the work, not after
        with telemetry.phase("score") as measured:
            evaluation = evaluate(detector, dataset, workers, gallery.offer, progress, skip_broken)
            measured.items = len(evaluation.images)
        page = render(detector, evaluation, gallery.items(), telemetry.to_json())
        # file names may hold bytes that are not text
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
        cautions=[
            *cautions(detector.calibration, detector.model.odd_images),
            *filter(None, [evaluation.realised]),
        ],
        figures=_figures(evaluation),
        kinds=wording.kind_rows(evaluation),
        names=names,
        sections=_sections(evaluation, items),
        images=sorted(evaluation.images, key=lambda judged: -judged.score),
        verdict_of=verdict_of,
        item_numbers={item.path: i for i, item in enumerate(items, start=1)},
        verdicts=[verdict for verdict in VERDICTS if verdict in map(verdict_of, evaluation.images)],
        pixel_threshold=wording.number(detector.calibration.pixel_threshold),
        telemetry=wording.telemetry_facts(telemetry),
        phases=wording.telemetry_phases(telemetry),
        provenance=wording.provenance(detector),
        settings=wording.settings(detector.config),
    )


def verdict_of(judged: Judged) -> str:
    """How the detector's word compares with the label, and what it outlines with the defect."""
    if judged.flagged is None:
        return NOT_JUDGED
    if not judged.is_anomalous:
        return FALSE_ALARM if judged.flagged else PASSED
    if not judged.flagged:
        return MISSED
    return REJECTED if judged.located is None else FOUND if judged.located else ELSEWHERE


class Gallery:
    """Keeps at most `limit` pictures of all the results it is offered.

    A quarter of the room each is for the worst false alarms and the worst misses, a sixth for defects that were
    rejected for something elsewhere; the rest is for the strongest defects of each kind and a few of the calmest
    good parts.
    """

    def __init__(self, kinds: Iterable[str], limit: int) -> None:
        kinds = sorted(set(kinds))
        quarter, sixth, calm = limit // 4, limit // 6, limit // 12
        per_kind = (limit - 2 * quarter - sixth - calm) // max(len(kinds), 1)
        self._limit = limit
        self._groups: dict[str | tuple[str, str], TopItems] = {
            FALSE_ALARM: TopItems(quarter),
            MISSED: TopItems(quarter),
            ELSEWHERE: TopItems(sixth),
            **{("defects", kind): TopItems(max(per_kind, 1)) for kind in kinds[:limit]},
            "good": TopItems(calm),
        }

    def offer(self, sample: Sample, result: Result, judged: Judged) -> None:
        """Take the result's picture if it belongs to those worth seeing so far."""
        verdict = verdict_of(judged)
        others = ("defects", sample.kind) if judged.is_anomalous else "good"
        group = self._groups.get(verdict if verdict in self._groups else others)
        lowest_first = verdict == MISSED or group is self._groups["good"]
        rank = -result.score if lowest_first else result.score
        if group is not None and group.wants(rank):
            facts = (sample.path, sample.kind, verdict, result.score, result.p_value)
            group.put(rank, GalleryItem(*facts, outline_note(result), picture_of(sample, result)))

    def items(self) -> list[GalleryItem]:
        """What the page shows, in its order: false alarms, misses, rejected elsewhere, defects by kind, good parts."""
        return [item for group in self._groups.values() for item in group.items()][: self._limit]


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
    limit = f"threshold {wording.number(threshold)}"
    drawn = [
        (
            f"Histogram of the scores of {image.n_normal} good and {image.n_anomalous} defective images, {limit}",
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
