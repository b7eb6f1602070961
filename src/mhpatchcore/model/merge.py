"""Models of the same product that were fitted apart become one, as if fitted on all their images.

The models are first put into an order of their own, so that the order in which they are named changes no bit.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import fields, replace
from functools import reduce

from mhpatchcore.config import Config
from mhpatchcore.errors import UserError, in_one_line
from mhpatchcore.fitting.duplicates import near_duplicates
from mhpatchcore.fitting.execution import Execution
from mhpatchcore.fitting.passes import fit
from mhpatchcore.fitting.previous import check_can_grow
from mhpatchcore.model.history import event, in_order
from mhpatchcore.model.product import OtherProductError, differ
from mhpatchcore.model.update import distinct_names
from mhpatchcore.model.value import Model
from mhpatchcore.runtime.arrays import Floats
from mhpatchcore.scoring.known_defects import KnownDefects

MOST_SHARED = 0.1  # of the images of one model, that look like some of the other
DECIDED_BY_THE_GRAPH = ("backbone", "tag")


def merged(models: Sequence[Model], labels: Sequence[str] = ()) -> Model:
    """One model of all; `labels` name the models in messages, in the history and before image names that repeat."""
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
        previous.append(one.previous.numbered_from(len(images)))
        images += distinct_names(one.images, images, label)
    networks = [replace(scale.backbone, threads=1) for scale in first.scales]
    fitted = fit([], networks, first.config, Execution(), previous)
    total = sum(one.n_learnt for one, _ in ordered)
    source = ", ".join(sorted(labels))
    happened = event("merge", source, 0, total, first.config.false_alarm)
    history = (*in_order([one.history for one, _ in ordered]), happened)
    excluded = tuple(name for one, _ in ordered for name in one.excluded)
    product = next((one.product for one, _ in ordered if one.product), "")
    defects = reduce(KnownDefects.together, (one.defects for one, _ in ordered))
    return Model.of(first.config, fitted, images, previous, history, excluded, product, defects)


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
            "models of one product; `fit --name` gives them their name"
        )
    for name in ("name", "weights_sha256", "layers", "descriptor", "height", "width", "precision"):
        _check_equal(
            pair, f"backbone's {name}", *(getattr(d.scales[0].backbone.info, name) for d in (one, other))
        )
    for field in fields(Config):
        if field.name not in DECIDED_BY_THE_GRAPH:
            _check_equal(pair, field.name, *(getattr(d.config, field.name) for d in (one, other)))
    graphs = ([scale.backbone.graph_sha256[:12] for scale in model.scales] for model in (one, other))
    _check_equal(pair, "backbone's graph", *graphs)
    shared = len(near_duplicates(*map(_read_thumbnails, (one, other)))) / max(len(one.images), 1)
    if _shared_images(one, other) or shared > MOST_SHARED:
        raise UserError(
            f"{pair} have learnt from the same images ({shared:.0%} of the one look like some of the other), which "
            "would count twice; update one of them with the images that only the other has seen"
        )


def _shared_images(one: Model, other: Model) -> bool:
    return bool({hash_ for hash_ in one.hashes if hash_} & set(other.hashes))


def _told(value: object) -> str:
    """A setting in a message: sizes as they are given."""
    return ", ".join(map(str, value)) or "none" if isinstance(value, list | tuple) else str(value)


def _check_equal(pair: str, what: str, ours: object, theirs: object) -> None:
    if ours != theirs:
        cure = (
            "calibrate one of them first" if what == "false_alarm" else "fit one of them again like the other"
        )
        raise UserError(
            f"{pair} cannot be merged: {what} is {_told(ours)} in the one and {_told(theirs)} in the other; {cure}"
        )


def _read_thumbnails(model: Model) -> Floats:
    """Those of the images that could be read."""
    return model.thumbnails[[bool(hash_) for hash_ in model.hashes]]
