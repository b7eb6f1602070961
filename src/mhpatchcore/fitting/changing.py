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
from itertools import chain, combinations, count
from pathlib import Path

import numpy as np

from mhpatchcore.calibration.threshold import Calibration
from mhpatchcore.config import Config
from mhpatchcore.errors import ImageError, UserError, in_one_line
from mhpatchcore.fitting.budget import within_budget
from mhpatchcore.fitting.calibrating import (
    banked,
    calibrated_by,
    duplicate_groups,
    one_of_each,
    scored_images,
)
from mhpatchcore.fitting.execution import Execution
from mhpatchcore.fitting.fit import extracted, gather_normals, learn
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
    names = (*model.images, *distinct_names(given.names, model.images, Path(given.source).name))
    with extracted(images, networks, model.config, execution, [model], not returned) as extraction:
        grown = learn(extraction, networks, names)
    learnt = grown.n_learnt - model.n_learnt
    happened = event("update", given.source, learnt, grown.n_learnt, model.config.false_alarm)
    kept = {name: getattr(model, name) for name in ("excluded", "product", "defects")}
    return replace(grown, history=(*model.history, happened), **kept)


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
        numbered = (f"{label} {i}/{name}" for i in count(2))
        return next(one for one in chain([name, f"{label}/{name}"], numbered) if one not in taken)

    return tuple(free(name) for name in names)


def merged(models: Sequence[Model], labels: Sequence[str] = ()) -> Model:
    """One model of what all have learnt, as if fitted on all their images.

    The models are put into an order of their own, so that the order in which they are given changes no bit. `labels`
    name them in messages, in the history and before image names that repeat.
    """
    if len(models) < 2:
        raise UserError("merging takes at least two models")
    order = sorted(range(len(models)), key=lambda i: _rank(models[i]))
    ordered = [(models[i], labels[i] if labels else f"model {at}") for at, i in enumerate(order, start=1)]
    first, _ = ordered[0]
    check_can_grow(first.config)
    for (one, label), (other, other_label) in combinations(ordered, 2):
        _check_alike(one, other, label, other_label)
    images: tuple[str, ...] = ()
    previous = []
    for one, label in ordered:
        previous.append(one.numbered_from(len(images)))
        images += distinct_names(one.images, images, label)
    networks = [replace(scale.backbone, threads=1) for scale in first.scales]
    with extracted([], networks, first.config, Execution(), previous) as extraction:
        model = learn(extraction, networks, images)
    source = ", ".join(sorted(label for _, label in ordered))
    happened = event("merge", source, 0, model.n_learnt, first.config.false_alarm)
    return replace(
        model,
        history=(*in_order([one.history for one in previous]), happened),
        excluded=tuple(name for one in previous for name in one.excluded),
        product=next((one.product for one in previous if one.product), ""),
        defects=reduce(KnownDefects.together, (one.defects for one in previous)),
    )


def _rank(model: Model) -> tuple[int, str]:
    """Larger models first, then by content."""
    first = model.scales[0]
    content = hashlib.sha256(first.raw.tobytes() + first.moments.M2.tobytes())
    return -first.moments.n, content.hexdigest()


def _check_alike(one: Model, other: Model, label: str, other_label: str) -> None:
    """Refuse models that do not measure in the same way, or that have images in common."""
    pair = f"{label} and {other_label}"
    if differ(one.product, other.product):
        raise OtherProductError(
            f"{pair} are of different products, {in_one_line(one.product)} and {in_one_line(other.product)}: merge "
            "models of one product; a fit gives them their name (`name=NAME`)"
        )
    theirs = _measured_by(other)
    for what, ours in _measured_by(one).items():
        if ours != theirs[what]:
            cure = (
                "calibrate one of them" if what == "false_alarm" else "fit one of them again like the other"
            )
            raise UserError(
                f"{pair} cannot be merged: {what} is {_shown(ours)} in the one and {_shown(theirs[what])} in the "
                f"other; {cure} first"
            )
    # images that could not be read have no hash
    thumbnails = (model.thumbnails[[bool(hash_) for hash_ in model.hashes]] for model in (one, other))
    shared = len(near_duplicates(*thumbnails)) / max(len(one.images), 1)
    if ({*one.hashes} & {*other.hashes}) - {""} or shared > MOST_SHARED:
        raise UserError(
            f"{pair} have learnt from the same images ({shared:.0%} of the one look like some of the other), which "
            "would count twice; update one of them with the images that only the other has seen"
        )


def _measured_by(model: Model) -> dict[str, object]:
    """All that models which are merged have in common, by its name."""
    info = model.scales[0].backbone.info
    backbone = {f"backbone's {name}": getattr(info, name) for name in OF_THE_BACKBONE}
    names = (field.name for field in fields(Config) if field.name not in DECIDED_BY_THE_GRAPH)
    settings = {name: getattr(model.config, name) for name in names}
    return {
        **backbone,
        **settings,
        "backbone's graph": [one.backbone.graph_sha256[:12] for one in model.scales],
    }


def _shown(value: object) -> str:
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
        scored = scored_images(extraction.store, banks, wanted, None, execution)
    if not scored:
        raise ImageError("none of the images could be read: check the folder")
    # the same model gives the same image the same two numbers
    pairs = set(zip(known.scores.tolist(), known.peaks.tolist(), strict=True)) if known else set()
    new = [one for one in scored if (float(np.float32(one.score)), float(np.float32(one.peak))) not in pairs]
    if not new:
        raise UserError("the threshold counts all of these images already: give images that are new to it")
    if len(new) < len(scored):
        execution.warn(
            f"{len(scored) - len(new)} of {len(scored)} images count in the threshold already: left out"
        )
    return calibrated_by(new, model.config, ["held-out"])
