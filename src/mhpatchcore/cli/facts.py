"""What commands say about a model: its facts, its threshold, its history."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from mhpatchcore.cli.console import counted, printable, warn
from mhpatchcore.detector import Detector
from mhpatchcore.model.history import Event
from mhpatchcore.runtime.urls import shown


def summary(detector: Detector, path: Path) -> dict[str, Any]:
    """The facts about a model that `fit`, `info` and others print."""
    model, calibration = detector.model, detector.calibration
    info = model.scales[0].backbone.info
    return {
        "model": shown(path),
        "images": model.n_learnt,
        "backbone": info.name,
        "weights_source": info.weights_source,
        "weights_sha256": info.weights_sha256,
        "precision": info.precision,
        "rows": model.rows,
        "scales": [
            {
                "size": str(size),
                "rows": len(scale.raw),
                "dimensions": scale.whitening.k,
                "retained_variance": scale.whitening.retained,
                "shrinkage": scale.whitening.lam,
            }
            for size, scale in zip(model.config.sizes, model.scales, strict=True)
        ],
        "threshold": calibration.threshold,
        "pixel_threshold": calibration.pixel_threshold,
        "false_alarm": calibration.false_alarm,
        "supported_false_alarm": calibration.supported_rate,
        "calibration_images": calibration.n,
        "calibration": calibration.method,
        "decided_alone": _decided_alone(detector),
        "excluded": list(model.excluded),
    }


def bank_note(detector: Detector) -> str:
    """The bank in words, for one scale or several.

    For example: 5000 rows of 173 dimensions at 224, 5000 rows of 160 dimensions at 448
    """
    model = detector.model
    notes = [f"{len(scale.raw)} rows of {scale.whitening.k} dimensions" for scale in model.scales]
    if len(notes) > 1:
        notes = [f"{note} at {size}" for note, size in zip(notes, model.config.sizes, strict=True)]
    return ", ".join(notes)


def threshold_note(detector: Detector) -> str:
    """The threshold and what it promises, in words."""
    calibration = detector.calibration
    if calibration.n == 0:
        return "none: the model scores images, but does not judge them"
    note = f"{calibration.threshold:.4g}: about {calibration.supported_rate:.2%} of good parts will exceed it"
    if calibration.rule == "rank":
        low, high = calibration.interval
        note += f", {low:.1%} to {high:.1%} in nine of ten cases"
    if calibration.supported_rate > calibration.false_alarm:
        note += (
            f" ({counted(calibration.n, 'calibration image')} support no smaller rate; "
            f"{calibration.false_alarm:.2%} needs {calibration.needed})"
        )
    return note


def print_threshold(detector: Detector, label: str) -> None:
    """The threshold, and a line more where a single image decides it."""
    print(f"{label}{threshold_note(detector)}")
    alone = _decided_alone(detector)
    if alone is not None:
        which, without = printable(alone["image"] or "a single image"), alone["threshold_without"]
        print(
            f"{'':{len(label)}}decided by {which} alone, {without:.4g} without it: is that a good part? "
            "--threshold tail depends less on it"
        )


def warn_without_threshold(detector: Detector, path: Path) -> bool:
    """Say what to do about a model without a threshold; whether it is one."""
    why = detector.model.no_threshold
    if not why:
        return False
    warn(
        f"{shown(path)} has no threshold, because {why}: give it good parts that it does not know, "
        f"`mhpatchcore calibrate {shown(path)} --with IMAGES -o {shown(path)}`"
    )
    return True


def _decided_alone(detector: Detector) -> dict[str, Any] | None:
    alone = detector.model.decided_alone
    return None if alone is None else {"image": alone[0], "threshold_without": alone[1]}


def threshold_before(detector: Detector) -> str:
    return f"it was {detector.threshold:.4g}" if detector.calibration.n else "there was none before"


def history_facts(detector: Detector) -> list[dict[str, Any]]:
    return [event.to_json() for event in detector.history]


def told(event: Event) -> str:
    """One line: when, what, how many images and from where, by whom and why.

    >>> told(Event("update", "/parts/returned", 50, 1050, 0.01, "2026-11-16T08:30:00Z", "0.1.0"))
    '2026-11-16 08:30 UTC  update: 50 images from /parts/returned, 1050 in all (mhpatchcore 0.1.0)'
    >>> told(Event("calibrate", "", 0, 1050, 0.02, "2026-11-16T08:30:00Z", "0.1.0", "Ada", "too strict"))
    '2026-11-16 08:30 UTC  calibrate: rate 2.00% (mhpatchcore 0.1.0), by Ada: too strict'
    """
    when = event.when.replace("T", " ")[:16]
    who = f", by {event.who}" if event.who else ""
    note = f": {event.note}" if event.note else ""
    return f"{when} UTC  {_deed(event)} (mhpatchcore {event.version}){who}{note}"


def _deed(event: Event) -> str:
    if event.what == "calibrate":
        images = f", {counted(event.images, 'image')} from {event.source}" if event.images else ""
        return f"calibrate: rate {event.false_alarm:.2%}{images}"
    images = f": {counted(event.images, 'image')} from" if event.what != "merge" else " of"
    total = f", {event.total} in all" if event.what != "fit" else ""
    return f"{event.what}{images} {event.source}{total}"
