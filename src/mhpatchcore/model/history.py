"""What was done to a model, when, and with which images; the fit is the first entry.

Times belong to the record, not to the model: the same images and settings give the same model at any time. Where the
files too must be equal, byte for byte, SOURCE_DATE_EPOCH gives the time, as it does in other reproducible builds.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from mhpatchcore import __version__
from mhpatchcore.backbone.device import current_device
from mhpatchcore.errors import UserError


@dataclass(frozen=True)
class Event:
    """One step of a model's life.

    `what` is fit, update, merge or calibrate; `images` how many were new to it (those learnt from, or those of the
    threshold), `total` how many the model has learnt from since. `source` is where they came from: the absolute path of
    their folder, so that evidence finds them again. Who gets the model file can read it, like the images' names.
    `who` did it and why (`note`) is known where somebody has said so. `threshold` is one that was set by hand,
    `device` what networks ran on.
    """

    what: str
    source: str
    images: int
    total: int
    false_alarm: float
    when: str
    version: str
    who: str = ""
    note: str = ""
    threshold: float | None = None
    device: str = "cpu"

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def event(
    what: str, source: str, images: int, total: int, false_alarm: float, threshold: float | None = None
) -> Event:
    """Something that happens now, by this version."""
    facts = (what, source, images, total, false_alarm, _now(), __version__)
    return Event(*facts, threshold=threshold, device=current_device())


def in_order(histories: Sequence[Sequence[Event]]) -> tuple[Event, ...]:
    """Several histories as one, by time."""
    return tuple(sorted((one for history in histories for one in history), key=lambda one: one.when))


def _now() -> str:
    given = os.environ.get("SOURCE_DATE_EPOCH", "").strip()
    try:
        seconds = int(given) if given else int(time.time())
        return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(seconds))
    except (ValueError, OverflowError, OSError) as error:
        raise UserError(f"SOURCE_DATE_EPOCH is a number of seconds, not '{given}'") from error
