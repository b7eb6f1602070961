"""What a page says of an evaluation, in plain words and round numbers."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from statistics import median
from typing import Any

from mhpatchcore import __version__
from mhpatchcore.calibration.threshold import Calibration
from mhpatchcore.config import Config
from mhpatchcore.detector import Detector
from mhpatchcore.evaluation.evaluate import Evaluation
from mhpatchcore.evaluation.metrics import FPR_LIMIT, f1_max

Facts = list[tuple[str, str]]
# a page that shows both thresholds says what each is for
IMAGE_THRESHOLD = "An image whose score exceeds it is rejected."
PIXEL_THRESHOLD = "Colours and outlines show where the map exceeds it; the verdict does not depend on it."


@dataclass(frozen=True)
class Tile:
    """One figure of merit and what it means."""

    label: str
    value: str
    note: str


@dataclass(frozen=True)
class KindRow:
    """How the images of one kind fared; `score` is the median of theirs.

    `found` counts those that were rejected and outlined on the defect; None where nobody has drawn it.
    """

    kind: str
    is_anomalous: bool
    images: int
    flagged: int
    found: int | None
    score: float


def number(value: object) -> str:
    """A value as a reader wants it: four digits, no exponent where it can be helped, a dash for nothing.

    >>> number(1234.5678), number(0.000123456), number(12), number(float("nan")), number(True), number(("a", "b"))
    ('1235', '0.0001235', '12', '–', 'yes', 'a, b')
    """
    if value is None or value == "" or (isinstance(value, float) and math.isnan(value)):
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.0f}" if 1000 <= abs(value) < 1e15 else f"{value:.4g}"
    if isinstance(value, list | tuple):
        return ", ".join(number(one) for one in value)
    return str(value)


def four_digits(score: float) -> str:
    """A score among others, so that their digits line up.

    >>> four_digits(230.0), four_digits(63.1234), four_digits(12345.6)
    ('230.0', '63.12', '12346')
    """
    return f"{score:.0f}" if score >= 1000 else f"{score:#.4g}"


def relative(score: float, threshold: float) -> str:
    """A score as a multiple of the threshold; a dash where there is none to compare with."""
    return f"{score / threshold:.3f}" if math.isfinite(threshold) and threshold > 0 else "–"


def percent(share: float) -> str:
    """
    >>> percent(0.0123), percent(0.5), percent(1.0)
    ('1.2 %', '50 %', '100 %')
    """
    return f"{100 * share:.2g} %" if share < 0.995 else f"{100 * share:.3g} %"


def headline(evaluation: Evaluation) -> str:
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


def threshold_promise(calibration: Calibration) -> str:
    """What the threshold was made to hold."""
    if not calibration.judges:
        return "The model has no threshold: it scores images, but rejects none."
    threshold = f"The image threshold of {number(calibration.threshold)}"
    if calibration.n == 0:
        return f"{threshold} was set by hand; how many good parts it rejects is not known."
    low, high = (percent(one) for one in calibration.interval)
    set_by = "was set by hand; by" if calibration.by_hand is not None else "was set from"
    return (
        f"{threshold} {set_by} {calibration.n} good images, it should reject about "
        f"{percent(calibration.expected_rate)} of good parts, {low} to {high} in nine of ten cases."
    )


def tested_on(evaluation: Evaluation) -> str:
    """Which images were used."""
    image, left_out = evaluation.image, len(evaluation.left_out)
    images = f"{image.n_normal} good and {image.n_anomalous} defective images"
    text = f"Tested on {images} that the model has not learnt from"
    return text + (f"; {left_out} that it has learnt from were left out." if left_out else ".")


def tiles(evaluation: Evaluation) -> list[Tile]:
    """Image-level figures, and pixel-level ones where there are masks."""
    image, pixel, whole = evaluation.image, evaluation.pixel, evaluation.whole_pixel
    best = f1_max([j.is_anomalous for j in evaluation.images], [j.score for j in evaluation.images])
    found = [
        Tile("Image AUROC", _metric(image.auroc), "chance that a defective part scores above a good one"),
        *_found_tile(evaluation),
        Tile("Image AP", _metric(image.average_precision), "precision averaged over recall"),
        Tile("Image F1-max", _metric(image.f1_max), f"best F1, at a threshold of {number(best.threshold)}"),
    ]
    if pixel is None or whole is None:
        return found
    seen = "of what the model sees: images and masks resized and cropped" if evaluation.cropped else ""
    regions = f"overlap with {pixel.n_regions} regions, to {percent(FPR_LIMIT)} FPR"
    found += [
        Tile("Pixel AUROC", _metric(pixel.auroc), seen or f"over all pixels of {pixel.n_images} images"),
        Tile("Pixel AP", _metric(pixel.average_precision), "precision averaged over recall, by pixels"),
        Tile("AUPRO", _metric(pixel.aupro), regions),
    ]
    if evaluation.cropped:
        beyond = "of whole images: what lies beyond the crop counts as calm"
        found += [
            Tile("Whole-image pixel AUROC", _metric(whole.auroc), beyond),
            Tile("Whole-image pixel AP", _metric(whole.average_precision), "of whole images"),
            Tile("Whole-image AUPRO", _metric(whole.aupro), f"overlap with {whole.n_regions} regions"),
        ]
    return found


def _found_tile(evaluation: Evaluation) -> list[Tile]:
    """What a production line sees: the share of defects rejected at the rate of false alarms it was promised."""
    if math.isnan(evaluation.found_share):
        return []
    rate = evaluation.stated_rate
    stated = "at a threshold set by hand" if rate is None else f"at a stated {percent(rate)} of false alarms"
    note = f"{len(evaluation.rejected)} of {evaluation.image.n_anomalous}, {stated}"
    return [Tile("Defects found", percent(evaluation.found_share), note)]


def kind_rows(evaluation: Evaluation) -> list[KindRow]:
    """One row for each kind, defects first."""
    rows = []
    for kind, is_anomalous in sorted({(j.kind, j.is_anomalous) for j in evaluation.images}):
        members = [j for j in evaluation.images if (j.kind, j.is_anomalous) == (kind, is_anomalous)]
        flagged = [j for j in members if j.flagged]
        drawn = any(j.located is not None for j in members)
        found = sum(bool(j.located) for j in flagged) if drawn else None
        middle = median(j.score for j in members)
        rows.append(KindRow(kind, is_anomalous, len(members), len(flagged), found, middle))
    return sorted(rows, key=lambda row: not row.is_anomalous)


def provenance(detector: Detector) -> Facts:
    """Where the model comes from."""
    model, calibration, info = detector.model, detector.calibration, detector.scales[0].backbone.info
    views = [
        f"{scale.size[1]} × {scale.size[0]} pixels, {grid[1]} × {grid[0]} patches"
        for scale in model.scales
        for grid in [scale.backbone.info.grid]
    ]
    whitenings = [
        f"{info.dim} → {scale.whitening.k} dimensions, {percent(scale.whitening.retained)} of the variance"
        for scale in model.scales
    ]
    source = f"from {calibration.n} images ({calibration.method})" if calibration.n else "not calibrated"
    return [
        ("mhpatchcore", __version__),
        ("Training images", f"{model.n_learnt} ({model.patches} patches)"),
        *([("Left out as suspicious", number(model.excluded))] if model.excluded else []),
        ("Backbone", f"{info.name}, {info.descriptor} of {number(info.layers)}, {info.precision}"),
        ("Weights", info.weights_source),
        ("Weights SHA-256", info.weights_sha256),
        ("View", "; ".join(views)),
        ("Whitening", "; ".join(whitenings)),
        ("Bank", f"{model.rows} rows by {model.config.constructor}"),
        ("Image threshold", f"{_threshold(calibration.threshold)}, {source}. {IMAGE_THRESHOLD}"),
        ("Pixel threshold", f"{_threshold(calibration.pixel_threshold)}. {PIXEL_THRESHOLD}"),
    ]


def settings(config: Config) -> Facts:
    """All settings, as they would be given."""
    texts = {"sizes": tuple(map(str, config.sizes)), "window": str(config.window)}
    return [(name, number(texts.get(name, getattr(config, name)))) for name in config.to_json()]


def telemetry_facts(telemetry: Mapping[str, object]) -> Facts:
    """The values that stand alone."""
    return [(_spaced(name), _quantity(name, value)) for name, value in telemetry.items() if name != "phases"]


def telemetry_phases(telemetry: Mapping[str, Any]) -> list[list[str]]:
    """The phases as a table with a header, one row for each; empty if there are none."""
    phases: list[Mapping[str, object]] = list(telemetry.get("phases", ()))
    columns = list(dict.fromkeys(column for phase in phases for column in phase))
    rows = [[_quantity(column, phase.get(column)) for column in columns] for phase in phases]
    return [[_spaced(column) for column in columns], *rows] if rows else []


def _spaced(name: str) -> str:
    return name.replace("_", " ").replace("rss", "RSS").replace("cpu", "CPU")


def _quantity(name: str, value: object) -> str:
    """Memory in MB, everything else as a number."""
    in_bytes = name.endswith("rss") or name.startswith("bytes")
    return f"{value / 1e6:.0f} MB" if in_bytes and isinstance(value, int) else number(value)


def _metric(value: float) -> str:
    return "–" if math.isnan(value) else f"{value:.3f}"


def _threshold(value: float) -> str:
    return number(value) if math.isfinite(value) else "none"
