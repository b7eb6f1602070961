"""What commands say about a model's life."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from mhpatchcore.cli.console import counted, warn
from mhpatchcore.detector import Detector
from mhpatchcore.model.history import Event


def history_facts(detector: Detector) -> list[dict[str, Any]]:
    return [event.to_json() for event in detector.history]


def told(event: Event) -> str:
    """One line: when, what, how many images and from where.

    >>> told(Event("update", "parts/returned", 50, 1050, 0.01, "2026-11-16T08:30:00Z", "0.1.0"))
    '2026-11-16 08:30 UTC  update: 50 images from parts/returned, 1050 in all (mhpatchcore 0.1.0)'
    """
    when = event.when.replace("T", " ")[:16]
    if event.what == "merge":
        did = f"merge of {event.source}"
    elif event.what == "calibrate":
        images = f", {counted(event.images, 'image')} from {event.source}" if event.images else ""
        return f"{when} UTC  calibrate: rate {event.false_alarm:.2%}{images} (mhpatchcore {event.version})"
    else:
        did = f"{event.what}: {counted(event.images, 'image')} from {event.source}"
    total = f", {event.total} in all" if event.what != "fit" else ""
    return f"{when} UTC  {did}{total} (mhpatchcore {event.version})"


def threshold_before(detector: Detector) -> str:
    return f"it was {detector.threshold:.4g}" if detector.calibration.n else "there was none before"


def warn_of_lost_scores(model: Path, detector: Detector) -> None:
    """A file of format 1 has scores that cannot be taken again under another bank."""
    if detector.calibration.n and not detector.calibration.witnesses:
        warn(
            f"{model} was written by an older version, without what its threshold needs to live on: "
            "its calibration scores fall away; `calibrate --with` makes new ones"
        )
