"""Scores for the threshold: normal images, each compared with a bank that has not profited from it.

cross-image   images that were learnt from, each without the bank rows that come from itself
held-out      images that were not learnt from
the past      images that are gone, by the patches that decided their scores (`witnesses.py`)
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from mhpatchcore.bank.patches import Patches
from mhpatchcore.calibration.conformal import Calibration, both_methods, calibration_by
from mhpatchcore.calibration.deciding_patches import NOT_LEARNT, Statement, hear, hear_again
from mhpatchcore.config import Config
from mhpatchcore.errors import UserError
from mhpatchcore.fitting.extraction import Chunk, Extraction
from mhpatchcore.fitting.past import Past
from mhpatchcore.inputs.images import spread
from mhpatchcore.metric.whitening import Whitening
from mhpatchcore.runtime.arrays import Array
from mhpatchcore.runtime.parallel import ordered_map
from mhpatchcore.scoring.rules import Scorer

HELD_OUT_SHARE = 0.2


def calibration_of(
    extraction: Extraction,
    apart: Extraction | None,
    pasts: Sequence[Past],
    whitening: Whitening,
    bank: Patches,
    fair: bool = True,
) -> Calibration:
    """The threshold of a new whitening and bank, by images of `extraction` or `apart` from it, and of the past.

    Unless the new images are a `fair` sample of what comes, the past alone decides.
    """
    config, backbone = extraction.config, extraction.backbone
    scorer = Scorer(bank.z, backbone.info.grid, config)
    new_patches = len(extraction.taken) * backbone.patches_per_image if fair else 0
    shares = calibration_shares(config, pasts, new_patches)
    statements = past_statements(pasts, shares, whitening, bank, scorer, extraction.execution.workers)
    methods = {past.calibration.method for past in pasts if past.calibration.witnesses}
    if needs_held_out(config):
        statements += held_out_statements(apart, whitening, scorer) if apart is not None else []
    else:
        statements += cross_image_statements(extraction, whitening, bank, scorer, shares[-1])
    if extraction.taken and fair:
        methods.add("held-out" if needs_held_out(config) else "cross-image")
    return calibration_by(statements, config.false_alarm, both_methods(*methods))


def needs_held_out(config: Config) -> bool:
    """Whether images are kept out of the bank for the threshold; centroids have no origin, so they need it."""
    return config.calibration == "held-out" or config.constructor == "kmeans"


def held_out_images(
    new: Sequence[int], config: Config, pasts: Sequence[Past], patches_per_image: int
) -> list[int]:
    """Of the new images those that are not learnt from but kept for the threshold, evenly spread."""
    if not needs_held_out(config) or len(new) < 2:
        return []
    most = calibration_shares(config, pasts, len(new) * patches_per_image)[-1]
    return [new[i] for i in spread(len(new), min(most, max(1, round(HELD_OUT_SHARE * len(new)))))]


def calibration_shares(config: Config, pasts: Sequence[Past], new_patches: int) -> list[int]:
    """How many calibration images each past contributes, and last the new images: in proportion to what was learnt.

    So a few parts that came back from the line weigh in the threshold as they do among all images, and the number of
    calibration images stays what it was. A past without witnesses cannot contribute.
    """
    room = max([config.calibration_images, *(past.calibration.n for past in pasts)])
    patches = [past.moments.n if past.calibration.witnesses else 0 for past in pasts] + [new_patches]
    return [round(room * n / max(sum(patches), 1)) for n in patches]


def past_statements(
    pasts: Sequence[Past],
    shares: Sequence[int],
    whitening: Whitening,
    bank: Patches,
    scorer: Scorer,
    workers: int,
) -> list[Statement]:
    """Images that are gone, scored again by their witnesses: of each past its share, evenly spread."""
    chosen = [
        past.calibration.witnesses[i]
        for past, share in zip(pasts, shares, strict=False)
        for i in spread(len(past.calibration.witnesses), share)
    ]
    comparable = [witness for witness in chosen if (bank.origin[:, 0] != witness.image).any()]
    return list(ordered_map(lambda one: hear_again(one, whitening, bank, scorer), comparable, workers))


def cross_image_statements(
    extraction: Extraction, whitening: Whitening, bank: Patches, scorer: Scorer, most: int
) -> list[Statement]:
    """At most so many training images, each scored without the bank rows that come from itself."""
    read = [image for images in extraction.members for image in images]
    wanted = {read[i] for i in spread(len(read), most)}

    def score(chunk: Chunk) -> list[Statement]:
        found = []
        for image, rows in zip(chunk.images, by_image(chunk), strict=True):
            others = bank.origin[:, 0] != image
            if image in wanted and others.any():
                found.append(hear(image, rows, whitening(rows), scorer, others))
        return found

    return [one for found in extraction.again("calibrate", score) for one in found]


def held_out_statements(
    apart: Extraction, whitening: Whitening, scorer: Scorer, past: Past | None = None
) -> list[Statement]:
    """Images that take no part in the fit, nor in `past`, scored against the whole bank."""

    def score(chunk: Chunk) -> list[Statement]:
        if past is not None:
            check_unknown(chunk, past, apart)
        return [hear(NOT_LEARNT, rows, whitening(rows), scorer) for rows in by_image(chunk)]

    return [one for _, found in apart.first(score, "calibrate") for one in found]


def check_unknown(chunk: Chunk, past: Past, extraction: Extraction) -> None:
    """Refuse images that the past has learnt from: learnt twice they weigh too much, and they score too low."""
    for image, rows in zip(chunk.images, by_image(chunk), strict=True):
        if past.knows(rows, extraction.backbone.info.grid):
            name = extraction.images[image]
            raise UserError(
                f"the model has learnt from {name if isinstance(name, str | Path) else 'a given array'} already: "
                "give images that are new to it"
            )


def by_image(chunk: Chunk) -> list[Array]:
    """The descriptors (h·w, d) of each image of a chunk."""
    return np.split(chunk.rows, len(chunk.images)) if chunk.images else []
