"""The page about a fit: what was learnt, how well the bank covers it, which images look as if they do not belong.

A notebook shows the short form of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from html import escape
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
from mhpatchcore.report import figures, page
from mhpatchcore.report.drawing import heat_layer, screen_pixels, screen_size
from mhpatchcore.report.figures import Series, histogram_figure, lines_figure
from mhpatchcore.report.page import HEAT_SIDE, PHOTO_SIDE, Picture, Tile, encoded, percent, threshold_promise
from mhpatchcore.runtime.arrays import Doubles
from mhpatchcore.runtime.files import write_text
from mhpatchcore.runtime.texts import number
from mhpatchcore.scoring.maps import combined_map

MAX_SUSPECTS = 12
MAX_POINTS = 48
CALM_SHARE = 0.9
LEVEL_NAMES = {0.5: "half of the patches", 0.9: "90 %", 0.99: "99 %", 1.0: "all of them"}


def write_fit_report(study: Study, name: str, path: str | Path, costs: Mapping[str, Any]) -> None:
    """`name` is that of the model."""
    detector, excluded = study.detector, len(study.detector.model.excluded)
    learnt = f"Learnt from {detector.model.n_learnt} image{'s' if detector.model.n_learnt > 1 else ''}"
    html = page.render_page(
        "fit.html.j2",
        eyebrow="Fit report",
        name=name,
        headline=learnt + (f", {excluded} left out as suspicious" if excluded else ""),
        promise=threshold_promise(detector.calibration),
        choices=choices(detector.calibration),
        cautions=cautions(detector.calibration, detector.model.odd_images),
        tiles=_tiles(detector),
        figures=_figures(study),
        excluded=excluded,
        items=_items(study),
        **page.about_model(detector, costs),
    )
    write_text(path, html)


def detector_html(detector: Detector) -> str:
    """A detector as a notebook shows it: the promise of its threshold, the scores behind it, and what it learnt."""
    drawn = _scores_figure(detector)
    image = f'<img alt="scores of good parts" src="{page.svg(drawn)}">' if drawn else ""
    rows = "".join(
        f"<tr><th>{escape(name)}</th><td>{escape(value)}</td></tr>"
        for name, value in page.provenance(detector)
    )
    title = escape(detector.model.product or "Detector")
    return f"<h4>{title}</h4><p>{escape(threshold_promise(detector.calibration))}</p>{image}<table>{rows}</table>"


def _tiles(detector: Detector) -> list[Tile]:
    scales, calibration = detector.scales, detector.calibration
    patches, rows = detector.model.patches, detector.model.rows
    grids = " and ".join("{1} × {0}".format(*scale.backbone.info.grid) for scale in scales)
    kept = " and ".join(str(scale.whitening.k) for scale in scales)
    retained = percent(min(scale.whitening.retained for scale in scales))
    tiles = [
        Tile("Images", str(detector.model.n_learnt), f"{patches} patches, {grids} each"),
        Tile("Bank", str(rows), f"rows, {percent(rows / patches)} of all patches"),
        Tile("Dimensions", kept, f"of {scales[0].backbone.info.dim}, with {retained} of the variance"),
    ]
    if not calibration.judges:
        return [*tiles, Tile("Threshold", "none", "the model is not calibrated, so it judges no image")]
    threshold = number(calibration.threshold)
    return [
        *tiles,
        Tile("Image threshold", threshold, f"from {calibration.n} images, {calibration.method}"),
        Tile("False alarms", percent(calibration.expected_rate), "of good parts, judging by these images"),
    ]


def _figures(study: Study) -> list[tuple[str, Figure]]:
    """With their descriptions."""
    detector, drawn = study.detector, list[tuple[str, Figure]]()
    if histogram := _scores_figure(detector):
        n, threshold = len(detector.calibration.scores), number(detector.threshold)
        drawn.append((f"Histogram of the scores of {n} calibration images, threshold {threshold}", histogram))
    for scale in detector.scales:
        kept, where = scale.whitening.k, f" at {scale.size[0]} pixels" if len(detector.scales) > 1 else ""
        figure = variance_figure(scale.variances, kept, f"Retained variance{where}")
        drawn.append((f"Retained variance{where}: {kept} directions", figure))
    if study.coverage is not None:
        drawn.append(("Distances from training patches to the bank", coverage_figure(study.coverage)))
    return drawn


def _scores_figure(detector: Detector) -> Figure | None:
    scores = detector.calibration.scores
    return histogram_figure(np.zeros(len(scores), bool), scores, detector.threshold) if len(scores) else None


@rc_context(figures.STYLE)
def variance_figure(variances: Doubles, kept: int, title: str = "Retained variance") -> Figure:
    """The share of the variance within the first directions, of variances (d,), and how many are kept."""
    figure, axes = figures.plot((6.4, 4.0), title, "directions", "share of the variance")
    share = np.cumsum(variances) / max(float(variances.sum()), 1e-300)
    axes.plot(np.arange(1, len(share) + 1), share, color=figures.BLUE)
    axes.axvline(kept, color=figures.GREY, linestyle=":", linewidth=1)
    label = f"{kept} kept, {percent(float(share[kept - 1]))}"
    axes.plot(kept, share[kept - 1], "o", color=figures.VERMILION, markeredgecolor="black", label=label)
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


def _items(study: Study) -> list[tuple[Suspect, Picture]]:
    """The most suspicious images with their pictures."""
    scores = [suspect.score for suspect in study.suspects]
    calm = float(np.quantile(scores, CALM_SHARE)) if scores else 0.0
    window = study.detector.config.views[0].window
    found = []
    for suspect in study.suspects[: max(MAX_SUSPECTS, len(study.detector.model.excluded))]:
        with suppress(ImageError):  # it has gone since it was read
            if suspect.views is not None:
                photo = screen_pixels(suspect.source, window, PHOTO_SIDE)
                height, width = photo.shape[:2]
                whole = suspect.views[0].geometry
                box = (0, 0, whole.height, whole.width)
                heat = combined_map(suspect.views, box, *screen_size(height, width, HEAT_SIDE))
                layer = encoded(heat_layer(heat, calm or 1.0), "WEBP")
                found.append((suspect, Picture(width, height, encoded(photo, "JPEG"), layer)))
    return found
