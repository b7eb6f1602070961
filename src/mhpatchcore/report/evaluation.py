"""The page about an evaluation: one HTML file that needs no network and holds a bounded number of pictures."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from math import ceil, isnan
from operator import itemgetter
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from mhpatchcore.calibration.choices import cautions
from mhpatchcore.detector import Detector
from mhpatchcore.errors import ImageError
from mhpatchcore.evaluation.evaluate import Evaluation, Judged, evaluate
from mhpatchcore.evaluation.metrics import FPR_LIMIT, f1_max
from mhpatchcore.inputs.datasets import Dataset, Sample, read_mask
from mhpatchcore.report import drawing, page
from mhpatchcore.report.figures import histogram_figure, precision_recall_figure, roc_figure
from mhpatchcore.report.page import Picture, Tile, encoded, outline_path, percent, threshold_promise
from mhpatchcore.result import Result
from mhpatchcore.runtime.arrays import Mask
from mhpatchcore.runtime.costs import Costs
from mhpatchcore.runtime.files import atomic_path
from mhpatchcore.runtime.texts import number

MAX_GALLERY = 48
FALSE_ALARM, MISSED, PASSED, NOT_JUDGED = "false alarm", "missed", "passed", "not judged"
# of a rejected defect: on the defect, elsewhere, or not known, since nobody has drawn the defect
FOUND, ELSEWHERE, REJECTED = "found", "rejected elsewhere", "rejected"
# every verdict in the order of the page: its heading, and what stands below it
SECTIONS = {
    FALSE_ALARM: ("False alarms", "good parts that were rejected, highest score first"),
    MISSED: ("Missed defects", "defects that were passed, lowest score first"),
    ELSEWHERE: ("Rejected, but not for the defect", "what is outlined lies elsewhere, highest score first"),
    FOUND: ("Found defects", "rejected, and outlined where the defect is: the strongest of each kind"),
    REJECTED: ("Rejected defects", "the strongest of each kind; where the defects are is not known"),
    PASSED: ("Good parts that passed", "the calmest ones"),
    NOT_JUDGED: ("Not judged", "the model has no threshold"),
}


def verdict_of(judged: Judged) -> str:
    """How the detector's word compares with the label, and what it outlines with the defect."""
    if judged.flagged is None:
        return NOT_JUDGED
    if not judged.is_anomalous:
        return FALSE_ALARM if judged.flagged else PASSED
    if not judged.flagged:
        return MISSED
    return REJECTED if judged.located is None else FOUND if judged.located else ELSEWHERE


@dataclass(frozen=True)
class GalleryItem:
    """A picture with its verdict; `outline` says what is outlined."""

    judged: Judged
    verdict: str
    outline: str
    picture: Picture


class Gallery:
    """Keeps at most `limit` pictures of all the results it is offered.

    A quarter of the room each is for the worst false alarms and the worst misses, a sixth for defects that were
    rejected for something elsewhere; the rest is for the strongest defects of each kind and a few of the calmest
    good parts.
    """

    def __init__(self, kinds: Iterable[str], limit: int) -> None:
        kinds = sorted(set(kinds))
        quarter, sixth, calm = limit // 4, limit // 6, limit // 12
        per_kind = max((limit - 2 * quarter - sixth - calm) // max(len(kinds), 1), 1)
        self._limit = limit
        rooms: dict[str | tuple[str, str], int] = {FALSE_ALARM: quarter, MISSED: quarter, ELSEWHERE: sixth}
        rooms |= {("defects", kind): per_kind for kind in kinds[:limit]} | {"good": calm}
        self._groups = {name: (room, list[tuple[float, GalleryItem]]()) for name, room in rooms.items()}

    def offer(self, sample: Sample, result: Result, judged: Judged) -> None:
        """Take the result's picture if it belongs to those worth seeing so far; of equals the earlier one stays."""
        verdict = verdict_of(judged)
        others = ("defects", sample.kind) if judged.is_anomalous else "good"
        group = verdict if verdict in self._groups else others
        room, kept = self._groups.get(group, (0, []))
        rank = -result.score if group in (MISSED, "good") else result.score
        if len(kept) < room or (kept and rank > kept[-1][0]):
            item = GalleryItem(judged, verdict, drawing.outline_note(result), picture_of(sample, result))
            kept.append((rank, item))
            kept.sort(key=itemgetter(0), reverse=True)
            del kept[room:]

    def items(self) -> list[GalleryItem]:
        """What the page shows, in its order: false alarms, misses, rejected elsewhere, defects by kind, good parts."""
        return [item for _, kept in self._groups.values() for _, item in kept][: self._limit]


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
    costs = Costs()
    with atomic_path(path) as temporary:  # a place that cannot be written is known before the work, not after
        with costs.phase("score") as measured:
            evaluation = evaluate(detector, dataset, workers, gallery.offer, progress, skip_broken)
            measured.items = len(evaluation.images)
        html = render(detector, evaluation, gallery.items(), costs.to_json())
        # file names may hold bytes that are not text
        temporary.write_text(html, encoding="utf-8", errors="backslashreplace")
    return evaluation


def render(
    detector: Detector, evaluation: Evaluation, items: Sequence[GalleryItem], costs: Mapping[str, Any]
) -> str:
    """The page as text."""
    verdicts = [verdict_of(judged) for judged in evaluation.images]
    numbered = list(enumerate(items, start=1))
    sections = [
        {"heading": heading, "note": note, "items": members, "total": verdicts.count(verdict)}
        for verdict, (heading, note) in SECTIONS.items()
        if (members := [(i, item) for i, item in numbered if item.verdict == verdict])
    ]
    realised = [evaluation.realised] if evaluation.realised else []
    return page.render_page(
        "evaluation.html.j2",
        eyebrow="Inspection report",
        name=evaluation.name,
        evaluation=evaluation,
        headline=_headline(evaluation),
        promise=promise(evaluation, detector),
        tiles=tiles(evaluation),
        cautions=[*cautions(detector.calibration, detector.model.odd_images), *realised],
        figures=figures_of(evaluation).values(),
        kinds=_kinds(evaluation),
        names=short_names([*(judged.path for judged in evaluation.images), *evaluation.left_out]),
        sections=sections,
        images=sorted(evaluation.images, key=lambda judged: -judged.score),
        verdict_of=verdict_of,
        item_numbers={item.judged.path: i for i, item in numbered},
        verdicts=[verdict for verdict in SECTIONS if verdict in verdicts],
        pixel_threshold=number(detector.calibration.pixel_threshold),
        **page.about_model(detector, costs),
    )


def short_names(paths: Sequence[Path]) -> dict[Path, str]:
    """Each path without what all of them share.

    >>> list(short_names([Path("/set/test/good/1.png"), Path("/set/test/bad/1.png")]).values())
    ['good/1.png', 'bad/1.png']
    """
    shared = os.path.commonpath([path.parent for path in paths])
    return {path: path.relative_to(shared).as_posix() for path in paths}


def _headline(evaluation: Evaluation) -> str:
    image = evaluation.image
    if not evaluation.has_threshold:
        return f"{image.n_anomalous} defects and {image.n_normal} good parts scored, none of them judged"
    parts = []
    if image.n_anomalous:
        found = "" if evaluation.found is None else f" ({evaluation.found} found where they are)"
        parts.append(f"{len(evaluation.rejected)} of {image.n_anomalous} defects rejected{found}")
    if image.n_normal:
        parts.append(f"{len(evaluation.false_alarms)} of {image.n_normal} good parts rejected")
    return ", ".join(parts)


def promise(evaluation: Evaluation, detector: Detector) -> str:
    """What the threshold was made to hold, and what came of it."""
    text = threshold_promise(detector.calibration)
    if evaluation.has_threshold and evaluation.image.n_normal:
        text += f" Here it rejected {percent(len(evaluation.false_alarms) / evaluation.image.n_normal)}."
    return text


def tiles(evaluation: Evaluation) -> list[Tile]:
    """Image-level figures, with what a line sees, and pixel-level ones where there are masks."""
    image, pixel, whole = evaluation.image, evaluation.pixel, evaluation.whole_pixel
    best = f1_max([j.is_anomalous for j in evaluation.images], [j.score for j in evaluation.images])
    rate = evaluation.stated_rate
    stated = "at a threshold set by hand" if rate is None else f"at a stated {percent(rate)} of false alarms"
    found = f"{len(evaluation.rejected)} of {image.n_anomalous}, {stated}"
    shown = [
        Tile("Image AUROC", _metric(image.auroc), "chance that a defective part scores above a good one"),
        Tile("Defects found", percent(evaluation.found_share), found),
        Tile("Image AP", _metric(image.average_precision), "precision averaged over recall"),
        Tile("Image F1-max", _metric(image.f1_max), f"best F1, at a threshold of {number(best.threshold)}"),
    ]
    if isnan(evaluation.found_share):
        del shown[1]
    if pixel is None or whole is None:
        return shown
    seen = "of what the model sees: images and masks resized and cropped" if evaluation.cropped else ""
    regions = f"overlap with {pixel.n_regions} regions, to {percent(FPR_LIMIT)} FPR"
    shown += [
        Tile("Pixel AUROC", _metric(pixel.auroc), seen or f"over all pixels of {pixel.n_images} images"),
        Tile("Pixel AP", _metric(pixel.average_precision), "precision averaged over recall, by pixels"),
        Tile("AUPRO", _metric(pixel.aupro), regions),
    ]
    if evaluation.cropped:
        beyond = "of whole images: what lies beyond the crop counts as calm"
        shown += [
            Tile("Whole-image pixel AUROC", _metric(whole.auroc), beyond),
            Tile("Whole-image pixel AP", _metric(whole.average_precision), "of whole images"),
            Tile("Whole-image AUPRO", _metric(whole.aupro), f"overlap with {whole.n_regions} regions"),
        ]
    return shown


def _metric(value: float) -> str:
    return "–" if isnan(value) else f"{value:.3f}"


def _kinds(evaluation: Evaluation) -> list[dict[str, Any]]:
    """How the images of each kind fared, defects first; `found` is None where nobody has drawn them."""
    kinds = {(not j.is_anomalous, j.kind) for j in evaluation.images}
    rows = []
    for is_normal, kind in sorted(kinds):
        members = [j for j in evaluation.images if (not j.is_anomalous, j.kind) == (is_normal, kind)]
        flagged = [j for j in members if j.flagged]
        drawn = any(j.located is not None for j in members)
        rows.append(
            {
                "kind": kind,
                "is_anomalous": not is_normal,
                "images": len(members),
                "flagged": len(flagged),
                "found": sum(bool(j.located) for j in flagged) if drawn else None,
                "score": median(j.score for j in members),
            }
        )
    return rows


def figures_of(evaluation: Evaluation) -> dict[str, tuple[str, Figure]]:
    """What can be drawn, by file name, with descriptions: curves need both good and defective images."""
    labels = [judged.is_anomalous for judged in evaluation.images]
    scores = [judged.score for judged in evaluation.images]
    given, image = (labels, scores, evaluation.threshold), evaluation.image
    both = f"{image.n_normal} good and {image.n_anomalous} defective images"
    texts = {
        "histogram": f"Histogram of the scores of {both}, threshold {number(evaluation.threshold)}",
        "roc": f"ROC curve, area {image.auroc:.3f}",
        "precision-recall": f"Precision-recall curve, average precision {image.average_precision:.3f}",
    }
    drawn = (histogram_figure(*given), roc_figure(*given), precision_recall_figure(*given))
    return {name: (text, one) for (name, text), one in zip(texts.items(), drawn, strict=True) if one}


def picture_of(sample: Sample, result: Result) -> Picture:
    height, width = result.size
    heat = drawing.screen_map(result, *drawing.screen_size(height, width, page.HEAT_SIDE))
    truth = ""
    with suppress(ImageError):  # the evaluation reports it
        if sample.mask is not None:
            mask = _pooled(read_mask(sample.mask, height, width), page.MASK_SIDE)
            truth = outline_path(mask.astype(np.float32), 0.5, height, width)
    return Picture(
        width,
        height,
        encoded(drawing.screen_pixels(sample.path, result.window, page.PHOTO_SIDE), "JPEG"),
        encoded(drawing.heat_layer(heat, drawing.heat_unit(result)), "WEBP"),
        outline_path(heat, result.mask_limit, height, width),
        truth,
    )


def _pooled(mask: Mask, side: int) -> Mask:
    """A mask (H, W) made at most side × side by any-pooling, so that a thin scratch does not vanish."""
    step = ceil(max(mask.shape) / side)
    rows, columns = (-n % step for n in mask.shape)
    padded = np.pad(mask, ((0, rows), (0, columns)))
    blocks = padded.reshape(padded.shape[0] // step, step, padded.shape[1] // step, step)
    return np.asarray(blocks.any(axis=(1, 3)))
