"""The last pass: scores for the threshold, of normal images that are compared with a bank without their own rows.

cross-image   images that were learnt from, each without the bank rows that come from itself
held-out      images that were not learnt from
earlier       images that are gone, by the patches that decided their scores (`deciding_patches.py`)
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from mhpatchcore.backbone.session import Backbone, make_session
from mhpatchcore.calibration.conformal import Calibration, both_methods, calibrate
from mhpatchcore.calibration.deciding_patches import NOT_LEARNT, DecidingPatches, deciding_cells
from mhpatchcore.config import Config
from mhpatchcore.fitting.execution import Execution
from mhpatchcore.fitting.plan import Located
from mhpatchcore.fitting.previous import Previous
from mhpatchcore.fitting.scale import Scale
from mhpatchcore.fitting.store import Store
from mhpatchcore.fitting.tasks import Scored, put_head, raw_rows, score_stored, scored_by
from mhpatchcore.inputs.sources import spread
from mhpatchcore.runtime.arrays import Array, Indices
from mhpatchcore.runtime.parallel import ordered_map
from mhpatchcore.scoring.combining import combined_peak, combined_score
from mhpatchcore.scoring.graph import EXCLUDED, Head

HELD_OUT_SHARE = 0.2


@dataclass(frozen=True, eq=False)
class ScoredImage:
    """A calibration image: what every scale says of it, and the patches that decided it."""

    scales: tuple[Scored, ...]
    deciding: DecidingPatches

    @property
    def scores(self) -> tuple[float, ...]:
        return tuple(scored.score for scored in self.scales)


@dataclass(frozen=True, eq=False)
class Banked:
    """A head and where its bank rows come from: raw descriptors (K, d) and origins (K, 4)."""

    head: Head
    raw: Array
    origin: Indices


def banked(scale: Scale, config: Config) -> Banked:
    return Banked(scale.head(config), scale.raw, scale.origin)


def scored_images(
    store: Store,
    banks: Sequence[Banked],
    images: Sequence[Located],
    groups: Indices | None,
    execution: Execution,
) -> Iterator[ScoredImage | None]:
    """Stored images against the bank; with `groups` without the rows of their own group of near-duplicates.

    None for an image where no other rows are left.
    """
    rows = [_row_groups(bank, groups) for bank in banks]
    heads = tuple(put_head(store, bank.head.head_graph, of) for bank, of in zip(banks, rows, strict=True))
    wanted = [(image, None if groups is None else int(groups[image.image])) for image in images]
    yield from execution.runs_on.map(partial(_scored_image, store, heads), wanted)


def _row_groups(bank: Banked, groups: Indices | None) -> Indices:
    """The group (K,) of the image that each bank row comes from; that of a centroid is its own."""
    images = bank.origin[:, 0]
    return images if groups is None else np.where(images >= 0, groups[images], images)


def _scored_image(
    store: Store, heads: tuple[str, ...], wanted: tuple[Located, int | None]
) -> ScoredImage | None:
    image, group = wanted
    scales = score_stored(store, heads, wanted)
    if scales is None:
        return None
    cells = tuple(deciding_cells(scored.judged, scored.nearest) for scored in scales)
    rows = tuple(raw_rows(store, scale, (image, chosen)) for scale, chosen in enumerate(cells))
    return ScoredImage(scales, DecidingPatches(NOT_LEARNT if group is None else image.image, cells, rows))


def rescored_images(
    deciding: Sequence[DecidingPatches], banks: Sequence[Banked], groups: Indices, workers: int
) -> list[ScoredImage]:
    """Images that are gone, scored again by the patches that decided them, under these banks."""
    if not deciding:
        return []
    sessions = [make_session(bank.head.rows_graph, 1) for bank in banks]
    task = partial(_rescored, sessions, banks, groups)
    return [one for one in ordered_map(task, deciding, workers) if one is not None]


def _rescored(
    sessions: list[Any], banks: Sequence[Banked], groups: Indices, deciding: DecidingPatches
) -> ScoredImage | None:
    own_group = NOT_LEARNT if deciding.image == NOT_LEARNT else groups[deciding.image]
    scales = []
    for session, bank, cells, rows in zip(sessions, banks, deciding.cells, deciding.rows, strict=True):
        own = _row_groups(bank, groups) == own_group
        if own.all():
            return None
        raw = np.repeat(bank.raw[[(~own).argmax()]], bank.head.backbone.info.patches, axis=0)
        raw[cells] = rows
        z = np.ascontiguousarray(bank.head.whitening(raw).T)
        feed = {"z": z, "penalty": np.where(own, EXCLUDED, np.float32(0))}
        scales.append(scored_by(session, feed, bank.head.grid))
    return ScoredImage(tuple(scales), deciding)


def calibrated_by(
    images: Sequence[ScoredImage], banks: Sequence[Banked], config: Config, methods: Sequence[str]
) -> Calibration:
    """The calibration of these images."""
    sizes = [(bank.head.backbone.info.height, bank.head.backbone.info.width) for bank in banks]
    head = banks[0].head
    scores = [
        combined_score(head.score, one.scores, [scored.judged for scored in one.scales], sizes, head.sigma)
        for one in images
    ]
    peaks = [combined_peak([scored.nearest for scored in one.scales], sizes, head.sigma) for one in images]
    deciding = tuple(one.deciding for one in images)
    method, rule = both_methods(*methods), config.threshold
    return calibrate(np.array(scores), np.array(peaks), config.false_alarm, method, deciding, rule)


def held_out_images(
    new: Sequence[int], config: Config, previous: Sequence[Previous], backbones: Sequence[Backbone]
) -> tuple[int, ...]:
    """Of the new images those that are not learnt from but kept for the threshold, evenly spread."""
    if config.calibration != "held-out" or len(new) < 2:
        return ()
    most = calibration_shares(config, previous, len(new) * backbones[0].info.patches)[-1]
    return tuple(new[i] for i in spread(len(new), min(most, max(1, round(HELD_OUT_SHARE * len(new))))))


def calibration_shares(config: Config, previous: Sequence[Previous], new_patches: int) -> list[int]:
    """How many calibration images each model contributes, and last the new images: in proportion to what was learnt.

    So a few parts that came back from the line weigh in the threshold as they do among all images, and the number of
    calibration images stays what it was. A model without deciding patches cannot contribute.
    """
    room = max([config.calibration_images, *(one.calibration.n for one in previous)])
    learnt = [one.scales[0].moments.n if one.calibration.deciding else 0 for one in previous]
    patches = [*learnt, new_patches]
    return [round(room * n / max(sum(patches), 1)) for n in patches]


def calibration_of(
    store: Store,
    learnt: Sequence[Located],
    held_out: Sequence[Located],
    groups: Indices,
    banks: Sequence[Banked],
    config: Config,
    execution: Execution,
    previous: Sequence[Previous],
    representative: bool,
) -> Calibration:
    """The threshold of the new metric and bank; unless the new images are representative, by the old ones alone.

    Images with the same number in `groups` are near-duplicates: they count once, and none is compared with another.
    """
    if config.calibration == "none":
        return calibrate(np.empty(0), np.empty(0), config.false_alarm, "", rule=config.threshold)
    new = len(learnt) * banks[0].head.backbone.info.patches if representative else 0
    shares = calibration_shares(config, previous, new)
    chosen = [
        one.calibration.deciding[i]
        for one, share in zip(previous, shares, strict=False)
        for i in spread(len(one.calibration.deciding), share)
    ]
    images = rescored_images(chosen, banks, groups, execution.workers)
    methods = [one.calibration.method for one in previous if one.calibration.deciding]
    if representative:
        crossing = config.calibration == "cross-image"
        candidates = _one_of_each([*learnt] if crossing else [*held_out], groups, execution)
        wanted = [candidates[i] for i in spread(len(candidates), shares[-1] if crossing else len(candidates))]
        images += scored_with_progress(store, banks, wanted, groups if crossing else None, execution)
        methods += [config.calibration] if wanted else []
    return calibrated_by(images, banks, config, methods)


def _one_of_each(images: Sequence[Located], groups: Indices, execution: Execution) -> list[Located]:
    """The first image of every group of near-duplicates."""
    first = {int(groups[image.image]): image for image in reversed(images)}
    kept = [image for image in images if first[int(groups[image.image])] is image]
    if len(kept) < len(images):
        execution.warn(
            f"{len(images) - len(kept)} of {len(images)} images are near-duplicates of others "
            "(copies, or frames of one part): each group counts once in the threshold"
        )
    return kept


def scored_with_progress(
    store: Store,
    banks: Sequence[Banked],
    wanted: Sequence[Located],
    groups: Indices | None,
    execution: Execution,
) -> list[ScoredImage]:
    images = []
    with execution.phase("calibrate", len(wanted)) as advance:
        for done, one in enumerate(scored_images(store, banks, wanted, groups, execution), start=1):
            if one is not None:
                images.append(one)
            advance(done)
    return images
