"""The page about a fit: what was learnt, how well the bank covers it, which images look as if they do not belong."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib import rc_context
from matplotlib.figure import Figure
from matplotlib.ticker import PercentFormatter

from mhpatchcore.calibration.choices import cautions, choices
from mhpatchcore.detector import Detector, Study
from mhpatchcore.errors import ImageError
from mhpatchcore.fitting.checks import LEVELS, Coverage, Suspect
from mhpatchcore.report import wording
from mhpatchcore.report.drawing import screen_pixels, screen_size
from mhpatchcore.report.figures import (
    BLUE,
    GREY,
    STYLE,
    VERMILION,
    Series,
    figure_bytes,
    histogram_figure,
    lines_figure,
    plot,
)
from mhpatchcore.report.page import HEAT_SIDE, PHOTO_SIDE, Picture, picture, render_page
from mhpatchcore.report.wording import Tile, percent
from mhpatchcore.runtime.arrays import Doubles
from mhpatchcore.runtime.files import write_text
from mhpatchcore.scoring.maps import combined_map

MAX_SUSPECTS = 12
MAX_POINTS = 48
CALM_SHARE = 0.9
LEVEL_NAMES = {0.5: "half of the patches", 0.9: "90 %", 0.99: "99 %", 1.0: "all of them"}


def write_fit_report(study: Study, name: str, path: str | Path, telemetry: Mapping[str, Any]) -> None:
    write_text(path, render(study, name, telemetry))


def render(study: Study, name: str, telemetry: Mapping[str, Any]) -> str:
    """The page as text; `name` is that of the model."""
    detector = study.detector
    return render_page(
        "fit.html.j2",
        eyebrow="Fit report",
        name=name,
        headline=_headline(detector),
        promise=wording.threshold_promise(detector.calibration),
        choices=choices(detector.calibration),
        cautions=cautions(detector.calibration, detector.model.odd_images),
        tiles=_tiles(detector),
        figures=_figures(study),
        coverage_note=(
            "Coverage is the squared distance from training patches to the nearest row of the bank, image after image. "
            "A stretch that lies higher than the rest holds images the bank represents less well."
        ),
        suspects_note=_suspects_note(study),
        items=_items(study),
        telemetry=wording.telemetry_facts(telemetry),
        phases=wording.telemetry_phases(telemetry),
        provenance=wording.provenance(detector),
        settings=wording.settings(detector.config),
    )


def _headline(detector: Detector) -> str:
    n, excluded = detector.model.n_learnt, detector.model.excluded
    text = f"Learnt from {n} image{'s' if n > 1 else ''}"
    return text + (f", {len(excluded)} left out as suspicious" if excluded else "")


def _tiles(detector: Detector) -> list[Tile]:
    scales, calibration = detector.scales, detector.calibration
    patches = detector.model.patches
    grids = " and ".join("{1} × {0}".format(*scale.backbone.info.grid) for scale in scales)
    kept = " and ".join(str(scale.whitening.k) for scale in scales)
    retained = percent(min(scale.whitening.retained for scale in scales))
    tiles = [
        Tile("Images", str(detector.model.n_learnt), f"{patches} patches, {grids} each"),
        Tile(
            "Bank", str(detector.model.rows), f"rows, {percent(detector.model.rows / patches)} of all patches"
        ),
        Tile("Dimensions", kept, f"of {scales[0].backbone.info.dim}, with {retained} of the variance"),
    ]
    if not calibration.judges:
        return [*tiles, Tile("Threshold", "none", "the model is not calibrated, so it judges no image")]
    threshold = wording.number(calibration.threshold)
    return [
        *tiles,
        Tile("Image threshold", threshold, f"from {calibration.n} images, {calibration.method}"),
        Tile("False alarms", percent(calibration.expected_rate), "of good parts, judging by these images"),
    ]


def _figures(study: Study) -> list[tuple[str, bytes]]:
    """Descriptions and SVG files."""
    detector = study.detector
    scores, threshold = detector.calibration.scores, detector.threshold
    drawn = []
    if len(scores):
        text = f"Histogram of the scores of {len(scores)} calibration images, threshold {wording.number(threshold)}"
        drawn.append((text, histogram_figure(np.zeros(len(scores), bool), scores, threshold)))
    for scale in detector.scales:
        kept, where = scale.whitening.k, f" at {scale.size[0]} pixels" if len(detector.scales) > 1 else ""
        figure = variance_figure(scale.variances, kept, f"Retained variance{where}")
        drawn.append((f"Retained variance{where}: {kept} directions", figure))
    if study.coverage is not None:
        drawn.append(("Distances from training patches to the bank", coverage_figure(study.coverage)))
    return [(text, figure_bytes(figure, "svg")) for text, figure in drawn]


@rc_context(STYLE)
def variance_figure(variances: Doubles, kept: int, title: str = "Retained variance") -> Figure:
    """The share of the variance within the first directions, of variances (d,), and how many are kept."""
    figure, axes = plot((6.4, 4.0), title, "directions", "share of the variance")
    share = np.cumsum(variances) / max(float(variances.sum()), 1e-300)
    axes.plot(np.arange(1, len(share) + 1), share, color=BLUE)
    axes.axvline(kept, color=GREY, linestyle=":", linewidth=1)
    label = f"{kept} kept, {percent(float(share[kept - 1]))}"
    axes.plot(kept, share[kept - 1], "o", color=VERMILION, markeredgecolor="black", label=label)
    axes.set(ylim=(0, 1.03), xlim=(0, len(share) + 1))
    axes.yaxis.set_major_formatter(PercentFormatter(1, decimals=0, symbol=" %"))
    axes.legend(loc="lower right")
    return figure


def coverage_figure(coverage: Coverage) -> Figure:
    """Quantiles over the images in their order; neighbouring chunks are joined, by the worst, if there are many."""
    after = np.cumsum(coverage.images)
    groups = np.array_split(np.arange(len(after)), min(MAX_POINTS, len(after)))
    worst = np.stack([coverage.quantiles[group].max(axis=0) for group in groups])
    x = np.array([after[group[-1]] for group in groups])
    series = [Series(LEVEL_NAMES[level], x, worst[:, i]) for i, level in enumerate(LEVELS)]
    y_label = "squared distance to the bank within"
    # from zero, where distances begin, to where the legend finds room
    top = 1.6 * float(worst.max()) or None
    return lines_figure(series[::-1], "Coverage", "training images", y_label, bottom=0, top=top)


def _suspects_note(study: Study) -> str:
    excluded = len(study.detector.model.excluded)
    text = (
        "The training images that differ most from all others; the number compares each with the typical image. "
        "Nine in ten images stay below the mark on the heat scale. "
    )
    if excluded:
        return f"{text}The first {excluded} of them were left out of this fit."
    return (
        f"{text}If one of them shows a defect, take it out of the folder, or fit with --exclude-suspicious."
    )


def _items(study: Study) -> list[tuple[Suspect, Picture]]:
    """The most suspicious images with their pictures."""
    if not study.suspects:
        return []
    calm = float(np.quantile([suspect.score for suspect in study.suspects], CALM_SHARE)) or 1.0
    views = study.detector.config.views
    found = []
    for suspect in study.suspects[: max(MAX_SUSPECTS, len(study.detector.model.excluded))]:
        if suspect.views is None:
            continue
        try:
            photo = screen_pixels(suspect.source, views[0].window, PHOTO_SIDE)
        except ImageError:
            continue  # it has gone since it was read
        size = (photo.shape[0], photo.shape[1])
        whole = suspect.views[0].geometry
        box = (0, 0, whole.height, whole.width)
        shown = screen_size(*size, HEAT_SIDE)
        heat = combined_map(suspect.views, box, *shown)
        found.append((suspect, picture(size, photo, heat, calm, calm)))
    return found
