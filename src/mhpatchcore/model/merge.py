"""Models of the same product that were fitted apart become one, as if fitted on all their images.

The models are first put into an order of their own, so that the order in which they are named changes no bit.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import fields

from mhpatchcore.config import Config
from mhpatchcore.detector import Detector
from mhpatchcore.errors import UserError
from mhpatchcore.fitting.extraction import Execution
from mhpatchcore.fitting.passes import fit
from mhpatchcore.fitting.past import Past, check_can_grow
from mhpatchcore.model.history import event, in_order
from mhpatchcore.model.update import told_apart
from mhpatchcore.runtime.arrays import Array

SHARED_ROWS = 0.1
DECIDED_BY_THE_GRAPH = ("backbone", "tag")


def merged(detectors: Sequence[Detector], labels: Sequence[str] = ()) -> Detector:
    """One model of all; `labels` name the models in messages, in the history and before image names that repeat."""
    if len(detectors) < 2:
        raise UserError("merging takes at least two models")
    order = sorted(range(len(detectors)), key=lambda i: _rank(detectors[i]))
    labels = [labels[i] for i in order] if labels else [f"model {i + 1}" for i in range(len(order))]
    ordered = [(detectors[i], label) for i, label in zip(order, labels, strict=True)]
    first, _ = ordered[0]
    check_can_grow(first.config)
    for i, (one, label) in enumerate(ordered):
        for other, other_label in ordered[i + 1 :]:
            _check_alike(one, other, label, other_label)
    images: tuple[str, ...] = ()
    pasts = []
    for one, label in ordered:
        pasts.append(Past.of(one, len(images)))
        images += told_apart(one.images, images, label)
    fitted = fit(images, first.backbone, first.config, Execution(), pasts)
    total = fitted.moments.n // first.backbone.patches_per_image
    source = ", ".join(sorted(labels))
    happened = event("merge", source, 0, total, first.config.false_alarm)
    history = (*in_order([one.history for one, _ in ordered]), happened)
    excluded = tuple(name for one, _ in ordered for name in one.excluded)
    return Detector.of(first.config, first.backbone, fitted, images, history, excluded)


def _rank(detector: Detector) -> tuple[int, str]:
    """Larger models first, then by content."""
    content = hashlib.sha256(detector.bank_raw.tobytes() + detector.moments.M2.tobytes())
    return -detector.moments.n, content.hexdigest()


def _check_alike(one: Detector, other: Detector, label: str, other_label: str) -> None:
    """Refuse models that do not measure in the same way, or that have images in common."""
    pair = f"{label} and {other_label}"
    for name in ("name", "weights_sha256", "layers", "descriptor", "height", "width", "precision"):
        _check_equal(pair, f"backbone's {name}", *(getattr(d.backbone.info, name) for d in (one, other)))
    for field in fields(Config):
        if field.name not in DECIDED_BY_THE_GRAPH:
            _check_equal(pair, field.name, *(getattr(d.config, field.name) for d in (one, other)))
    _check_equal(pair, "backbone's graph", one.backbone.graph_sha256[:12], other.backbone.graph_sha256[:12])
    if _shared_rows(one.bank_raw, other.bank_raw) > SHARED_ROWS:
        raise UserError(
            f"{pair} have learnt from the same images, which would count twice; "
            "update one of them with the images that only the other has seen"
        )


def _check_equal(pair: str, what: str, ours: object, theirs: object) -> None:
    if ours != theirs:
        cure = (
            "calibrate one of them first" if what == "false_alarm" else "fit one of them again like the other"
        )
        raise UserError(
            f"{pair} cannot be merged: {what} is {ours} in the one and {theirs} in the other; {cure}"
        )


def _shared_rows(ours: Array, theirs: Array) -> float:
    """Share of the smaller bank's rows that stand in the other too, bit for bit."""
    known = {row.tobytes() for row in theirs}
    shared = sum(row.tobytes() in known for row in ours)
    return shared / max(min(len(ours), len(theirs)), 1)
