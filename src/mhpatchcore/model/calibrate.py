"""Another threshold for a fitted model: at another rate, or from further normal images."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from mhpatchcore.calibration.conformal import Calibration, calibration_by
from mhpatchcore.calibration.cross_image import held_out_statements
from mhpatchcore.detector import Detector
from mhpatchcore.errors import ImageError
from mhpatchcore.fitting.extraction import Execution, Extraction
from mhpatchcore.fitting.past import Past
from mhpatchcore.inputs.images import ImageLike, list_images, source_name
from mhpatchcore.model.history import event
from mhpatchcore.runtime.parallel import one_blas_thread


def calibrated(
    detector: Detector,
    false_alarm: float | None = None,
    images: str | Path | Sequence[ImageLike] | None = None,
    add: bool = False,
    execution: Execution | None = None,
) -> Detector:
    """The same model with another threshold; see `Detector.calibrated`."""
    rate = detector.calibration.false_alarm if false_alarm is None else false_alarm
    calibration = detector.calibration.at_rate(rate)
    if images is not None:
        fresh = _held_out_calibration(detector, list_images(images), rate, execution or Execution())
        calibration = calibration.together(fresh) if add else fresh
    source, n = ("", 0) if images is None else (source_name(images), fresh.n)
    return replace(
        detector,
        config=detector.config.with_changes(false_alarm=rate),
        calibration=calibration,
        history=(*detector.history, event("calibrate", source, n, detector.n_learnt, rate)),
    )


def _held_out_calibration(
    detector: Detector, images: Sequence[ImageLike], rate: float, execution: Execution
) -> Calibration:
    """Scores of images that the model has not learnt from."""
    extraction = Extraction(
        images, range(len(images)), replace(detector.backbone, threads=1), detector.config,
        replace(execution, spool="none"),
    )  # fmt: skip
    with one_blas_thread():
        statements = held_out_statements(extraction, detector.whitening, detector.scorer, Past.of(detector))
    if not statements:
        raise ImageError("none of the images could be read: check the folder")
    return calibration_by(statements, rate, "held-out")
