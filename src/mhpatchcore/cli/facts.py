"""What commands say about a model: its facts, its threshold, its history."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from mhpatchcore.calibration.choices import Choice, better_choice, cautions, choices, share
from mhpatchcore.cli.console import counted, printable, warn
from mhpatchcore.detector import Detector
from mhpatchcore.inputs.views import TURNS
from mhpatchcore.model.history import Event
from mhpatchcore.runtime.urls import shown


def summary(detector: Detector, path: Path, defects: Sequence[float] | None = None) -> dict[str, Any]:
    """The facts about a model that `fit`, `info` and others print; `defects` are scores of known ones."""
    model, calibration = detector.model, detector.calibration
    info = model.scales[0].backbone.info
    return {
        "model": shown(path),
        "product": model.product,
        "images": model.n_learnt,
        "backbone": info.name,
        "weights_source": info.weights_source,
        "weights_sha256": info.weights_sha256,
        "precision": info.precision,
        "augment": model.config.augment,
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
        "expected_false_alarm": calibration.expected_rate,
        "calibration_images": calibration.n,
        "calibration": calibration.method,
        "false_alarm_interval": calibration.interval if calibration.judges else None,
        "threshold_by_hand": calibration.by_hand is not None,
        "odd_images": model.odd_images,
        "choices": [asdict(one) for one in choices(calibration, defects)],
        "excluded": list(model.excluded),
        "defects": dict(zip(model.defects.names, model.defects.images, strict=True)),
        "history": [event.to_json() for event in detector.history],
    }


def bank_note(detector: Detector) -> str:
    """The bank in words: 5000 rows of 173 dimensions at 224, 5000 rows of 160 dimensions at 448"""
    model = detector.model
    notes = [f"{len(scale.raw)} rows of {scale.whitening.k} dimensions" for scale in model.scales]
    if len(notes) > 1:
        notes = [f"{note} at {size}" for note, size in zip(notes, model.config.sizes, strict=True)]
    return ", ".join(notes)


def defects_note(detector: Detector) -> str:
    """The known defects in words, and what they cost: crack (12 images); 0.3% of good parts will look like one …"""
    defects = detector.model.defects
    every = zip(defects.names, defects.images, strict=True)
    named = ", ".join(f"{name} ({counted(images, 'image')})" for name, images in every)
    if not named or detector.calibration.n == 0:
        return named
    rate = share(detector.calibration.for_likeness * detector.calibration.expected_rate)
    return f"{named}; {rate} of good parts will look like one, which the stated rate includes"


def copies_note(detector: Detector) -> str:
    """Which turned copies of the images were learnt as well, and what they cost."""
    augment = detector.config.augment
    views = len(TURNS[augment])
    if views == 1:
        return "none: the images are learnt as they lie"
    return (
        f"{augment}: each image is learnt in {views} views, which takes as long as {views} times the images"
    )


def threshold_note(detector: Detector) -> str:
    """The threshold and what it promises, in words."""
    calibration = detector.calibration
    if not calibration.judges:
        return "none: the model scores images, but does not judge them"
    by_hand = " (set by hand)" if calibration.by_hand is not None else ""
    if calibration.n == 0:
        return f"{calibration.threshold:.4g}{by_hand}: how many good parts exceed it is not known"
    low, high = calibration.interval
    return (
        f"{calibration.threshold:.4g}{by_hand}: about {share(calibration.expected_rate)} of good parts will exceed it, "
        f"{share(low)} to {share(high)} in nine of ten cases"
    )


def threshold_lines(detector: Detector, defects: Sequence[float] | None = None) -> list[str]:
    """The threshold, the table of other rates, and what to know about odd images."""
    calibration = detector.calibration
    offered = choices(calibration, defects)
    lines = [threshold_note(detector), *_choice_lines(offered)]
    lines += cautions(calibration, detector.model.odd_images)
    better = better_choice(offered)
    if better is not None:
        lines.append(
            f"{better.found} of {better.of} defects would be found at {share(better.false_alarm)}: "
            f"mhpatchcore calibrate MODEL --false-alarm {share(better.false_alarm)} -o MODEL"
        )
    return lines


def _choice_lines(offered: Sequence[Choice]) -> list[str]:
    """A small table: rates, their thresholds, and where defects are known how many each finds."""
    if not offered:
        return []
    rows = {
        "good parts rejected": [f"{share(one.false_alarm)}{'*' * one.in_use}" for one in offered],
        "threshold": [f"{one.threshold:.4g}" for one in offered],
    }
    if offered[0].of is not None:
        rows["defects found"] = [f"{one.found} of {one.of}" for one in offered]
    width = max(len(cell) for cells in rows.values() for cell in cells)
    lines = [f"{name:<21}" + "  ".join(f"{cell:>{width}}" for cell in cells) for name, cells in rows.items()]
    return [f"{lines[0]}   (* in use)", *lines[1:]]


def warn_without_threshold(detector: Detector, path: Path) -> bool:
    """Warn of a model without a threshold, with the cure; returns whether it is one."""
    why = detector.model.no_threshold
    if why:
        warn(
            f"{shown(path)} has no threshold, because {why}: give it good parts that it does not know, "
            f"`mhpatchcore calibrate {shown(path)} --with IMAGES -o {shown(path)}`, or a number, `--threshold 20`"
        )
    return bool(why)


def threshold_before(detector: Detector) -> str:
    return f"it was {detector.threshold:.4g}" if detector.calibration.judges else "there was none before"


def describe(event: Event) -> str:
    """One line: when, what, how many images and from where, by whom and why.

    >>> describe(Event("update", "/parts/returned", 50, 1050, 0.01, "2026-11-16T08:30:00Z", "0.1.0"))
    '2026-11-16 08:30 UTC  update: 50 images from /parts/returned, 1050 in all (mhpatchcore 0.1.0)'
    >>> describe(Event("calibrate", "", 0, 1050, 0.02, "2026-11-16T08:30:00Z", "0.1.0", "Ada", "too strict"))
    '2026-11-16 08:30 UTC  calibrate: rate 2.00% (mhpatchcore 0.1.0), by Ada: too strict'
    """
    images = counted(event.images, "image")
    if event.what == "calibrate":
        at = f"rate {event.false_alarm:.2%}" if event.threshold is None else f"{event.threshold:.4g} by hand"
        deed = f"calibrate: {at}"
        deed += f", {images} from {event.source}" if event.images else ""
    else:
        of = " of" if event.what == "merge" else f": {images} from"
        total = "" if event.what == "fit" else f", {event.total} in all"
        deed = f"{event.what}{of} {event.source}{total}"
    on = f", on {event.device}" if event.device != "cpu" else ""
    return f"{when(event.when)} UTC  {deed} (mhpatchcore {event.version}{on}){by(event.who, event.note)}"


def by(who: str, note: str) -> str:
    return (f", by {printable(who)}" if who else "") + (f": {printable(note)}" if note else "")


def when(at: str) -> str:
    return at.replace("T", " ")[:16]
