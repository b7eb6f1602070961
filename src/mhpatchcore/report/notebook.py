"""A detector as a notebook shows it: what it learnt, what its threshold holds, and the scores that say so."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

import numpy as np

from mhpatchcore.report import wording
from mhpatchcore.report.figures import figure_bytes, histogram_figure
from mhpatchcore.report.page import data_uri

if TYPE_CHECKING:
    from mhpatchcore.detector import Detector


def detector_html(detector: Detector) -> str:
    """A piece of HTML: the promise of the threshold, the calibration's scores, and where the model comes from."""
    scores = detector.calibration.scores
    figure = ""
    if len(scores):
        drawn = histogram_figure(np.zeros(len(scores), bool), scores, detector.threshold)
        figure = (
            f'<img alt="scores of good parts" src="{data_uri(figure_bytes(drawn, "svg"), "image/svg+xml")}">'
        )
    facts = wording.provenance(detector)
    rows = "".join(f"<tr><th>{escape(name)}</th><td>{escape(value)}</td></tr>" for name, value in facts)
    title = escape(detector.model.product or "Detector")
    promise = escape(wording.threshold_promise(detector.calibration))
    return f"<h4>{title}</h4><p>{promise}</p>{figure}<table>{rows}</table>"
