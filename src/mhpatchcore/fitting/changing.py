"""New models of fitted ones: updated with further images, merged with others, or with another threshold.

The old images are not needed. Moments and whitening of an updated or merged model become exactly those of a fit on all
images; the bank is chosen anew from the old rows and the new patches. Memory and time depend on the new images and K,
not on how much a model has learnt before.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import fields, replace
from functools import reduce
from itertools import chain, count
from pathlib import Path

import numpy as np

from mhpatchcore.calibration.threshold import Calibration
from mhpatchcore.config import Config
from mhpatchcore.errors import ImageError, UserError, in_one_line
from mhpatchcore.fitting.budget import within_budget
from mhpatchcore.fitting.calibrating import (
    ScoredImage,
    banked,
    calibrated_by,
    one_of_each,
    scored_with_progress,
)
from mhpatchcore.fitting.execution import Execution
from mhpatchcore.fitting.extraction import duplicate_groups, extracted
from mhpatchcore.fitting.fit import gather_normals, grow
from mhpatchcore.inputs.sources import ImageLike, Images
from mhpatchcore.model.duplicates import near_duplicates
from mhpatchcore.model.history import OtherProductError, differ, event, in_order
from mhpatchcore.model.value import Model
from mhpatchcore.scoring.known_defects import KnownDefects

MOST_SHARED = 0.1  # of the images of one model, that look like some of the other
OF_THE_BACKBONE = ("name", "weights_sha256", "layers", "descriptor", "height", "width", "precision")
DECIDED_BY_THE_GRAPH = ("backbone", "tag")


def updated(
    model: Model,
    normals: Images,
    returned: bool = False,
    all_good: bool = False,
    execution: Execution | None = None,
) -> Model:
    """The model of the old images and the new; see `Detector.updated`."""
    check_can_grow(model.config)
    if returned and not model.calibration.deciding:
        raise UserError(
            "the model has nothing to take its threshold from but the new images: leave `returned=True` out, "
            "or give it calibration images first"
        )
    execution = execution or Execution()
    # that returned parts are good has been said already, and their folder may well be called rejected
    given = gather_normals(normals, model.config, execution, all_good or returned)
    images = given.images
    networks = [replace(scale.backbone, threads=1) for scale in model.scales]
    execution = within_budget(execution, networks, model.config, images)
    previous = [model]
    fitted = grow(images, networks, model.config, execution, previous, representative=not returned)
    total = model.n_learnt + fitted.learnt
    happened = event("update", given.source, fitted.learnt, total, model.config.false_alarm)
    names = distinct_names(given.names, model.images, Path(given.source).name)
    images_now, history = (*model.images, *names), (*model.history, happened)
    return fitted.model(model.config, images_now, history, model.excluded, model.product, model.defects)


def check_can_grow(config: Config) -> None:
    """Refuse settings under which the old images would be needed again."""
    if config.constructor == "kmeans":
        raise UserError(
            "a k-means bank cannot grow: its centroids are averages over images that are gone; "
            "fit all images again, or use `constructor=always-full`"
        )
    if config.shrinkage == "ledoit-wolf" and config.metric == "mahalanobis":
        raise UserError(
            "Ledoit–Wolf shrinkage needs every patch again, and the old images are gone; "
            "fit all images again, or use `shrinkage=oas` or a number"
        )


def distinct_names(names: Sequence[str], known: Sequence[str], label: str) -> tuple[str, ...]:
    """Names that are taken already get the label of where they come from, numbered if that is taken too.

    >>> distinct_names(["1.png", "2.png"], ["1.png"], "returned")
    ('returned/1.png', '2.png')
    >>> distinct_names(["1.png"], ["1.png", "returned/1.png"], "returned")
    ('returned 2/1.png',)
    """
    taken = set(known)

    def free(name: str) -> str:
        labelled = (f"{label}{f' {i}' * (i > 1)}/{name}" for i in count(1))
        return next(one for one in chain([name], labelled) if one not in taken)

    return tuple(free(name) for name in names)


def merged(models: Sequence[Model], labels: Sequence[str] = ()) -> Model:
    """One model of what all have learnt, as if fitted on all their images.

    The models are put into an order of their own, so that the order in which they are given changes no bit. `labels`
    name them in messages, in the history and before image names that repeat.
    """
    if len(models) < 2:
        raise UserError("merging takes at least two models")
    order = sorted(range(len(models)), key=lambda i: _rank(models[i]))
    labels = [labels[i] for i in order] if labels else [f"model {i + 1}" for i in range(len(order))]
    ordered = [(models[i], label) for i, label in zip(order, labels, strict=True)]
    first, _ = ordered[0]
    check_can_grow(first.config)
    for i, (one, label) in enumerate(ordered):
        for other, other_label in ordered[i + 1 :]:
            _check_alike(one, other, label, other_label)
    images: tuple[str, ...] = ()
    previous = []
    for one, label in ordered:
        previous.append(one.numbered_from(len(images)))
        images += distinct_names(one.images, images, label)
    networks = [replace(scale.backbone, threads=1) for scale in first.scales]
    fitted = grow([], networks, first.config, Execution(), previous)
    total = sum(one.n_learnt for one, _ in ordered)
    source = ", ".join(sorted(labels))
    happened = event("merge", source, 0, total, first.config.false_alarm)
    history = (*in_order([one.history for one, _ in ordered]), happened)
    excluded = tuple(name for one, _ in ordered for name in one.excluded)
    product = next((one.product for one, _ in ordered if one.product), "")
    defects = reduce(KnownDefects.together, (one.defects for one, _ in ordered))
    return fitted.model(first.config, images, history, excluded, product, defects)


def _rank(model: Model) -> tuple[int, str]:
    """Larger models first, then by content."""
    first = model.scales[0]
    content = hashlib.sha256(first.raw.tobytes() + first.moments.M2.tobytes())
    return -first.moments.n, content.hexdigest()


def _check_alike(one: Model, other: Model, label: str, other_label: str) -> None:
    """Refuse models that do not measure in the same way, or that have images in common."""
    pair, both = f"{label} and {other_label}", (one, other)
    if differ(one.product, other.product):
        raise OtherProductError(
            f"{pair} are of different products, {in_one_line(one.product)} and {in_one_line(other.product)}: merge "
            "models of one product; a fit gives them their name (`name=NAME`)"
        )
    infos = [model.scales[0].backbone.info for model in both]
    same = {f"backbone's {name}": [getattr(info, name) for info in infos] for name in OF_THE_BACKBONE}
    names = (field.name for field in fields(Config) if field.name not in DECIDED_BY_THE_GRAPH)
    same |= {name: [getattr(model.config, name) for model in both] for name in names}
    graphs = [[scale.backbone.graph_sha256[:12] for scale in model.scales] for model in both]
    for what, (ours, theirs) in (same | {"backbone's graph": graphs}).items():
        if ours != theirs:
            cure = (
                "calibrate one of them" if what == "false_alarm" else "fit one of them again like the other"
            )
            raise UserError(
                f"{pair} cannot be merged: {what} is {_shown(ours)} in the one and {_shown(theirs)} in the other; "
                f"{cure} first"
            )
    # images that could not be read have no hash
    thumbnails = (model.thumbnails[[bool(hash_) for hash_ in model.hashes]] for model in both)
    shared = len(near_duplicates(*thumbnails)) / max(len(one.images), 1)
    if ({*one.hashes} & {*other.hashes}) - {""} or shared > MOST_SHARED:
        raise UserError(
            f"{pair} have learnt from the same images ({shared:.0%} of the one look like some of the other), which "
            "would count twice; update one of them with the images that only the other has seen"
        )


def _shown(value: object) -> str:
    """A setting in a message: sizes as they are given."""
    return ", ".join(map(str, value)) or "none" if isinstance(value, list | tuple) else str(value)


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
    return replace(model, config=config, calibration=calibration, history=(*model.history, happened))


def _held_out_calibration(
    model: Model, images: Sequence[ImageLike], execution: Execution, known: Calibration | None
) -> Calibration:
    """Scores of images that the model has not learnt from, and that are not among the `known` ones already."""
    networks = [replace(scale.backbone, threads=1) for scale in model.scales]
    # no image of these is to be held out, and none is learnt
    all_learnt = model.config.with_changes(calibration="none", augment="none")
    with extracted(images, networks, all_learnt, execution, [model]) as extraction:
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
