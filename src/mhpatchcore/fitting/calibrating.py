"""The last pass: scores for the threshold, of normal images that are compared with a bank without their own rows.

cross-image   images that were learnt from, each without the bank rows that come from itself
held-out      images that were not learnt from
earlier       images that are gone, by the patches that decided their scores (`deciding_patches.py`)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from mhpatchcore.backbone.session import make_session
from mhpatchcore.backbone.stored import StoredImage, StoredView, raw_rows
from mhpatchcore.calibration.deciding_patches import NOT_LEARNT, DecidingPatches, deciding_cells
from mhpatchcore.calibration.threshold import MOST_DECIDING, Calibration, both_methods, calibrate
from mhpatchcore.config import Config
from mhpatchcore.fitting.execution import Execution
from mhpatchcore.fitting.extraction import Extraction
from mhpatchcore.inputs.regions import AreaOfEach
from mhpatchcore.inputs.sources import spread
from mhpatchcore.inputs.views import views_of
from mhpatchcore.model.duplicates import SIDE, near_duplicate_groups
from mhpatchcore.model.value import Model, Scale
from mhpatchcore.runtime.arrays import Array, Floats, Indices
from mhpatchcore.runtime.parallel import ordered_map
from mhpatchcore.runtime.store import Store
from mhpatchcore.scoring.graph import EXCLUDED, Head
from mhpatchcore.scoring.maps import ViewScores, contributions, surroundings
from mhpatchcore.scoring.score import (
    Peak,
    Rule,
    Scored,
    ScoredView,
    are_plain,
    blended_peak,
    combined_peak,
    combined_score,
    put_head,
    score_stored,
    scored_by,
)

RUNNER_UP = 1e-6
HELD_OUT_SHARE = 0.2


@dataclass(frozen=True, eq=False)
class ScoredImage:
    """A calibration image: its score, its map's peak, and the patches that decided both, where they are kept."""

    score: float
    peak: float
    deciding: DecidingPatches | None


@dataclass(frozen=True, eq=False)
class ScaleBank:
    """A head and where its bank rows come from: raw descriptors (K, d) and origins (K, 4)."""

    head: Head
    raw: Array
    origin: Indices


def banked(scale: Scale, config: Config) -> ScaleBank:
    return ScaleBank(scale.head(config), scale.raw, scale.origin)


def _row_groups(bank: ScaleBank, groups: Indices | None) -> Indices:
    """The group (K,) of the image that each bank row comes from; that of a centroid is its own."""
    images = bank.origin[:, 0]
    return images if groups is None else np.where(images >= 0, groups[images], images)


def _scored_image(
    store: Store, heads: tuple[str, ...], rule: Rule, wanted: tuple[StoredImage, int | None]
) -> ScoredImage | None:
    image, group = wanted
    scales = score_stored(store, heads, wanted)
    if scales is None:
        return None
    every = _Views.of([one for views in scales for one in views], rule)
    found = [_deciding(store, every, scale, stored) for scale, stored in enumerate(image.scales)]
    own = NOT_LEARNT if group is None else image.image
    deciding = DecidingPatches(own, image.size, *zip(*found, strict=True))
    return ScoredImage(every.score, every.peak, deciding)


@dataclass(frozen=True, eq=False)
class _Views:
    """All views of an image, with the distances of the image score and with those of the map, and what they say.

    Where they are blended, `at` are the places of both maps' peaks.
    """

    judged: list[ViewScores]
    nearest: list[ViewScores]
    score: float
    peak: float
    at: tuple[Peak, Peak] | None = None

    @staticmethod
    def of(views: Sequence[ScoredView], rule: Rule) -> _Views:
        judged, nearest = (
            [rule.view(one.scale, one.where, one.inside, getattr(one.scored, name)) for one in views]
            for name in ("judged", "nearest")
        )
        scores = [one.scored.score for one in views]
        if are_plain(judged):
            return _Views(judged, nearest, combined_score(rule.score, scores, judged), combined_peak(nearest))
        at = blended_peak(judged), blended_peak(nearest)
        score = at[0].value if rule.score == "map-max" else combined_score(rule.score, scores, judged)
        return _Views(judged, nearest, score, at[1].value, at)


def _deciding(store: Store, views: _Views, scale: int, stored: Sequence[StoredView]) -> tuple[Indices, Array]:
    """The cells (t,) of an image at one scale that decided its scores, and their raw descriptors (t, d)."""
    judged, nearest = (
        [view for view in every if view.scale == scale] for every in (views.judged, views.nearest)
    )
    if views.at is None:
        ((first,), (second,)) = judged, nearest
        chosen = deciding_cells(surroundings(first.distances), surroundings(second.distances))
    else:
        maps = (_deciding_at(judged, views.at[0]), _deciding_at(nearest, views.at[1]))
        everywhere = np.ones(judged[0].distances.shape, bool)
        inside = np.stack([everywhere if view.inside is None else view.inside for view in judged])
        chosen = deciding_cells(*maps, inside)
    patches = judged[0].distances.size
    of_view, cells = np.divmod(chosen, patches)
    rows = [raw_rows(store, (stored[i], cells[of_view == i])) for i in np.unique(of_view)]
    numbers = np.array([view.view for view in stored], np.int32)
    return numbers[of_view] * np.int32(patches) + cells, np.concatenate(rows)


def _deciding_at(views: Sequence[ViewScores], peak: Peak) -> Floats:
    """How much the cells (n, h, w) of n views decide: by what they add to the peak; the highest may decide alone."""
    high = np.stack([view.counted for view in views])
    added = np.stack([contributions(view, peak.y, peak.x) for view in views])
    relevance: Floats = (
        added + np.float32(RUNNER_UP) * high
    )  # where few add to it, what is high elsewhere comes next
    relevance.flat[high.argmax()] = np.inf
    return relevance


def rescored_images(
    calibration: Calibration,
    count: int,
    banks: Sequence[ScaleBank],
    groups: Indices,
    config: Config,
    workers: int,
) -> list[ScoredImage]:
    """Some of the images of a calibration, which are gone, scored again under these banks.

    Those of the tail by the patches that decided them. The others, which do not make the threshold, change in the
    same proportion.
    """
    if not (calibration.deciding and count):
        return []
    sessions = [make_session(bank.head.rows_graph, 1) for bank in banks]
    task = partial(_rescored, sessions, banks, groups, config)
    places = spread(calibration.n, count)
    tail = [place for place in places if place < len(calibration.deciding)] or [0]
    found = list(ordered_map(task, [calibration.deciding[place] for place in tail], workers))
    pairs = [(one, place) for one, place in zip(found, tail, strict=True) if one is not None]
    if not pairs:
        return []
    before = {"score": calibration.scores, "peak": calibration.peaks}
    change = {
        name: float(np.median([getattr(one, name) / max(values[place], 1e-12) for one, place in pairs]))
        for name, values in before.items()
    }
    others = [place for place in places if place >= len(calibration.deciding)]
    scaled = ({name: change[name] * float(values[i]) for name, values in before.items()} for i in others)
    return [*(one for one, _ in pairs), *(ScoredImage(**both, deciding=None) for both in scaled)]


def _rescored(
    sessions: list[Any],
    banks: Sequence[ScaleBank],
    groups: Indices,
    config: Config,
    deciding: DecidingPatches,
) -> ScoredImage | None:
    own_group = NOT_LEARNT if deciding.image == NOT_LEARNT else groups[deciding.image]
    area = None if isinstance(config.roi, AreaOfEach) else config.roi  # an image's own region is gone with it
    views = []
    for scale, (session, bank) in enumerate(zip(sessions, banks, strict=True)):
        own = _row_groups(bank, groups) == own_group
        if own.all():
            return None
        as_normal = bank.raw[[(~own).argmax()]]
        penalty = np.where(own, EXCLUDED, np.float32(0))
        patches, grid = bank.head.backbone.info.patches, bank.head.grid
        numbers, cells = np.divmod(deciding.cells[scale], patches)
        calm = Scored(0.0, 0.0, *np.zeros((2, *grid), np.float32))
        for view in views_of(deciding.size, config.views[scale], grid, area):
            scored, here = calm, numbers == view.number
            if here.any():
                raw = np.repeat(as_normal, patches, axis=0)
                raw[cells[here]] = deciding.rows[scale][here]
                z = np.ascontiguousarray(bank.head.whitening(raw).T)
                scored = scored_by(session, {"z": z, "penalty": penalty}, grid, view.inside)
            views.append(ScoredView(scale, view.where, view.inside, scored))
    every = _Views.of(views, Rule.of([bank.head for bank in banks]))
    return ScoredImage(every.score, every.peak, deciding)


def calibrated_by(images: Sequence[ScoredImage], config: Config, methods: Sequence[str]) -> Calibration:
    scores, peaks, deciding = (
        [getattr(one, name) for one in images] for name in ("score", "peak", "deciding")
    )
    return calibrate(np.array(scores), np.array(peaks), config.false_alarm, both_methods(*methods), deciding)


def calibration_of(extraction: Extraction, banks: Sequence[ScaleBank]) -> Calibration:
    """The threshold of the new metric and bank; unless the new images are representative, by the old ones alone.

    Near-duplicates count once, and none is compared with another.
    """
    config, execution, previous = extraction.config, extraction.execution, extraction.previous
    if config.calibration == "none":
        return calibrate(np.empty(0), np.empty(0), config.false_alarm, "")
    groups = duplicate_groups(extraction, previous)
    shares = calibration_shares(config, previous, len(extraction.learnt) if extraction.representative else 0)
    images = [
        image
        for one, share in zip(previous, shares, strict=False)
        for image in rescored_images(one.calibration, share, banks, groups, config, execution.workers)
    ]
    methods = [one.calibration.method for one in previous if one.calibration.deciding]
    if extraction.representative:
        crossing = config.calibration == "cross-image"
        every = extraction.learnt if crossing else extraction.held_out
        candidates = one_of_each(every, groups, execution)
        wanted = [candidates[i] for i in spread(len(candidates), shares[-1] if crossing else len(candidates))]
        images += scored_images(extraction.store, banks, wanted, groups if crossing else None, execution)
        methods += [config.calibration] if wanted else []
    by_hand = {one.calibration.by_hand for one in previous}
    calibration = calibrated_by(images, config, methods)
    return replace(calibration, by_hand=by_hand.pop()) if len(by_hand) == 1 else calibration


def held_out_images(new: Sequence[int], config: Config, previous: Sequence[Model]) -> tuple[int, ...]:
    """Of the new images those that are not learnt from but kept for the threshold, evenly spread."""
    if config.calibration != "held-out" or len(new) < 2:
        return ()
    most = calibration_shares(config, previous, len(new))[-1]
    return tuple(new[i] for i in spread(len(new), min(most, max(1, round(HELD_OUT_SHARE * len(new))))))


def calibration_shares(config: Config, previous: Sequence[Model], new: int) -> list[int]:
    """How many calibration images each model contributes, and last the new images: in proportion to what was learnt.

    So a few parts that came back from the line weigh in the threshold as they do among all images. A model without
    deciding patches cannot contribute.
    """
    images = [*(one.n_learnt if one.calibration.deciding else 0 for one in previous), new]
    known = [*(one.calibration.n for one in previous), new]
    room = max(config.calibration_images, *known[:-1]) if previous else config.calibration_images
    share = min([room / max(sum(images), 1), *(n / of for n, of in zip(known, images, strict=True) if of)])
    return [round(share * n) for n in images]


def duplicate_groups(extraction: Extraction, previous: Sequence[Model]) -> Indices:
    """Which images are near-duplicates of each other: a number for each image of the whole model."""
    first = sum(len(one.hashes) for one in previous)
    new = sorted(extraction.images, key=lambda one: one.image)
    numbers = [*range(first), *(one.image for one in new)]
    known = np.concatenate([np.empty((0, SIDE**2), np.float16), *(one.thumbnails for one in previous)])
    fresh = [one.thumbnail for one in new]
    found = near_duplicate_groups(np.concatenate([known, np.array(fresh).reshape(-1, SIDE**2)]))
    groups = np.arange(max(numbers, default=-1) + 1)
    groups[numbers] = np.array(numbers)[found]
    return groups


def one_of_each(images: Sequence[StoredImage], groups: Indices, execution: Execution) -> list[StoredImage]:
    """The first image of every group of near-duplicates."""
    first = {int(groups[image.image]): image for image in reversed(images)}
    kept = [image for image in images if first[int(groups[image.image])] is image]
    if len(kept) < len(images):
        execution.warn(
            f"{len(images) - len(kept)} of {len(images)} images are near-duplicates of others "
            "(copies, or frames of one part): each group counts once in the threshold"
        )
    return kept


def scored_images(
    store: Store,
    banks: Sequence[ScaleBank],
    images: Sequence[StoredImage],
    groups: Indices | None,
    execution: Execution,
) -> list[ScoredImage]:
    """Stored images against the bank; with `groups` without the rows of their own group of near-duplicates.

    Images for which no other rows are left are passed over.
    """
    rows = [_row_groups(bank, groups) for bank in banks]
    heads = tuple(put_head(store, bank.head.head_graph, of) for bank, of in zip(banks, rows, strict=True))
    wanted = [(image, None if groups is None else int(groups[image.image])) for image in images]
    task = partial(_scored_image, store, heads, Rule.of([bank.head for bank in banks]))
    found: list[ScoredImage] = []
    results = execution.track("calibrate", execution.runs_on.map(task, wanted), len(wanted))
    for done, one in enumerate(results, start=1):
        found += [one] if one is not None else []
        if found and done % MOST_DECIDING == 0:
            # only those keep their deciding patches that may make the threshold: memory stays flat
            least = sorted((one.score for one in found), reverse=True)[:MOST_DECIDING][-1]
            found = [one if one.score >= least else replace(one, deciding=None) for one in found]
    return found
