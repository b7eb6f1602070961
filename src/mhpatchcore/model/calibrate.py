"""Another threshold for a fitted model: at another rate, at a number, or from further normal images."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from mhpatchcore.calibration.threshold import Calibration
from mhpatchcore.errors import ImageError, UserError
from mhpatchcore.fitting.calibrating import (
    ScoredImage,
    banked,
    calibrated_by,
    one_of_each,
    scored_with_progress,
)
from mhpatchcore.fitting.execution import Execution
from mhpatchcore.fitting.extraction import extracted
from mhpatchcore.fitting.given import gather_normals
from mhpatchcore.fitting.passes import duplicate_groups
from mhpatchcore.inputs.sources import ImageLike, Images
from mhpatchcore.model.history import event
from mhpatchcore.model.value import Model


def calibrated(
    model: Model,
    false_alarm: float | str | None = None,
    images: Images | None = None,
    add: bool = False,
    threshold: float | None = None,
    all_good: bool = False,
    execution: Execution | None = None,
) -> Model:
    """The same model with another threshold; see `Detector.calibrated`."""
    if threshold is not None and false_alarm is not None:
        raise UserError("give a false-alarm rate or a threshold: one follows from the other")
    by_hand = model.calibration.by_hand if threshold is None and false_alarm is None else threshold
    asked = model.calibration.false_alarm if false_alarm is None else false_alarm
    config = model.config.with_changes(false_alarm=asked)
    calibration, source, n = model.calibration.at_rate(config.false_alarm), "", 0
    if images is not None:
        execution = execution or Execution()
        given = gather_normals(images, config, execution, all_good)
        known = model.calibration if add else None
        fresh = _held_out_calibration(replace(model, config=config), given.images, execution, known)
        calibration = calibration.together(fresh) if add else fresh
        source, n = given.source, fresh.n
    if by_hand is not None:
        calibration = calibration.at_threshold(by_hand)
    happened = event("calibrate", source, n, model.n_learnt, config.false_alarm, by_hand)
    return replace(
        model,
        config=config,
        calibration=calibration,
        history=(*model.history, happened),
    )


def _held_out_calibration(
    model: Model, images: Sequence[ImageLike], execution: Execution, known: Calibration | None
) -> Calibration:
    """Scores of images that the model has not learnt from, and that are not among the `known` ones already."""
    networks = [replace(scale.backbone, threads=1) for scale in model.scales]
    # no image of these is to be held out, and none is learnt
    all_learnt = model.config.with_changes(calibration="none", augment="none")
    with extracted(images, networks, all_learnt, execution, [model.previous]) as extraction:
        banks = [banked(scale, model.config) for scale in model.scales]
        wanted = one_of_each(extraction.learnt, duplicate_groups(extraction, ()), execution)
        scored = scored_with_progress(extraction.store, banks, wanted, None, execution)
    if not scored:
        raise ImageError("none of the images could be read: check the folder")
    scored = scored if known is None else _without_known(scored, known, execution)
    return calibrated_by(scored, model.config, ["held-out"])


def _without_known(scored: list[ScoredImage], known: Calibration, execution: Execution) -> list[ScoredImage]:
    """Images that were not added before: the same model gives the same image the same two numbers."""
    pairs = set(zip(known.scores.tolist(), known.peaks.tolist(), strict=True))
    new = [one for one in scored if (float(np.float32(one.score)), float(np.float32(one.peak))) not in pairs]
    if not new:
        raise UserError("the threshold counts all of these images already: give images that are new to it")
    if len(new) < len(scored):
        execution.warn(
            f"{len(scored) - len(new)} of {len(scored)} images count in the threshold already: left out"
        )
    return new
