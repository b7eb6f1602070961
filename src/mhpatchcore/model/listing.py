"""A model lists its images, names and hashes, in the header of its file, which has a largest size."""

from __future__ import annotations

import json
from collections.abc import Sequence

from mhpatchcore.errors import UserError
from mhpatchcore.model.file import MOST_HEADER

HASH = 72  # bytes of the header for the hash of an image, and what separates it
THE_REST = 1_000_000


def check_can_be_listed(names: Sequence[str], most: int = MOST_HEADER) -> None:
    """Refuse more images than a model file can list, before the work and not after it.

    >>> check_can_be_listed(["1.png", "2.png"])
    """
    size = THE_REST + len(json.dumps(json.dumps(list(names)))) + HASH * len(names)
    if size > most:
        fit = int(len(names) * most / size)
        raise UserError(
            f"{len(names):,} images are too many for one model, which lists them in a header of at most "
            f"{most / 1e6:.0f} MB: learn from about {fit:,} of them"
        )
