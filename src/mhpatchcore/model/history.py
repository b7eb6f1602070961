"""A model's record: what it inspects, what was done to it, when, and with which images; the fit is the first entry.

Times belong to the record, not to the model: the same images and settings give the same model at any time. Where the
files too must be equal, byte for byte, SOURCE_DATE_EPOCH gives the time, as it does in other reproducible builds.
Models of different products do not take each other's place.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from mhpatchcore import __version__
from mhpatchcore.backbone.session import current_device
from mhpatchcore.errors import UserError
from mhpatchcore.inputs.sources import FROM_PYTHON, SEVERAL_PLACES

LONGEST = 200  # letters
GENERIC = {"good", "image", "images", "img", "normal", "normals", "ok", "train", "training"}
ARCHIVE = re.compile(r"\.(zip|tar|tar\.\w+|tgz|txt|csv|mp4|avi|mov|mkv|webm)$", re.IGNORECASE)


@dataclass(frozen=True)
class Event:
    """One step of a model's life.

    `what` is fit, update, merge or calibrate; `images` how many were new to it (those learnt from, or those of the
    threshold), `total` how many the model has learnt from since. `source` is where they came from: the absolute path of
    their folder, so that evidence finds them again. Anyone who has the model file can read it, like the images' names.
    `who` did it and why (`note`) is empty unless somebody has said so. `threshold` is one that was set by hand,
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


class OtherProductError(UserError):
    """A model would take the place of one of another product."""


def product_of(source: str) -> str:
    """A name for what is in the images of a place: that of the nearest folder whose name says something.

    >>> product_of("/data/bottle/train/good"), product_of("s3://plant/vial/images"), product_of("/data/caps.tar.gz")
    ('bottle', 'vial', 'caps')
    >>> product_of("/images/good"), product_of("given in Python")
    ('', '')
    """
    if source in (FROM_PYTHON, SEVERAL_PLACES):
        return ""
    _, _, path = source.rpartition("://")
    names = [ARCHIVE.sub("", name) for name in path.split("/")]
    return next((name[:LONGEST] for name in reversed(names) if name and name.lower() not in GENERIC), "")


def checked_product(name: str) -> str:
    """A name as somebody has given it."""
    if not name.strip() or len(name) > LONGEST or not name.isprintable():
        raise UserError(f"the name of a product is a line of 1 to {LONGEST} letters, such as bottle")
    return name.strip()


def differ(one: str, other: str) -> bool:
    """Whether two models are known to be of different products.

    >>> differ("bottle", "plate"), differ("bottle", "bottle"), differ("bottle", "")
    (True, False, False)
    """
    return bool(one and other and one != other)
