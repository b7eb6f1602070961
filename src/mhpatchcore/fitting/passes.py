"""Fit: passes over the normal images, in chunks of a fixed number of images.

    extract     images → descriptors → store, and their moments (`extraction.py`)
    metric      moments → reduction, shrinkage, whitening
    bank        store → whitened patches → bank
    calibrate   each calibration image against the bank rows of the other images → threshold (`calibrating.py`)

Every pass maps tasks over chunks and puts the results together in a fixed order. A model that grows is fitted in the
same way, only that it does not begin with nothing (`previous.py`): moments go on from the old ones, old bank rows
compete with the new chunks, old calibration images are scored again by the patches that decided them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial, reduce
from typing import NamedTuple

import numpy as np

from mhpatchcore.backbone.session import Backbone
from mhpatchcore.bank import build_bank
from mhpatchcore.bank.patches import Patches, Stream
from mhpatchcore.calibration.threshold import Calibration
from mhpatchcore.config import Config
from mhpatchcore.fitting import tasks
from mhpatchcore.fitting.calibrating import banked, calibration_of
from mhpatchcore.fitting.duplicates import SIDE, near_duplicate_groups
from mhpatchcore.fitting.execution import Execution
from mhpatchcore.fitting.extraction import Extraction, extracted
from mhpatchcore.fitting.growing import grown
from mhpatchcore.fitting.plan import bank_chunks, cut, views_at
from mhpatchcore.fitting.previous import Previous
from mhpatchcore.fitting.scale import Scale
from mhpatchcore.fitting.summing import fourth_moment
from mhpatchcore.inputs.sources import ImageLike
from mhpatchcore.metric import shrinkage
from mhpatchcore.metric.moments import Moments
from mhpatchcore.metric.reduction import IncrementalPca, Reduction, no_reduction, reduce_by, reduce_by_ipca
from mhpatchcore.metric.whitening import Whitening, fit_whitening
from mhpatchcore.runtime.arrays import Array, Doubles, Floats, Indices
from mhpatchcore.runtime.memory import give_back
from mhpatchcore.scoring.local import spacing_weights


@dataclass(frozen=True, eq=False)
class Fitted:
    """What a fit finds out.

    `images` are the indices of those that were learnt from (without the broken and the held-out ones); `hashes` and
    `thumbnails` and `measures` are of all that could be read.
    """

    scales: tuple[Scale, ...]
    calibration: Calibration
    images: tuple[int, ...]
    hashes: dict[int, str]
    thumbnails: dict[int, Floats]
    measures: dict[int, Floats]


def fit(
    images: Sequence[ImageLike],
    backbones: Sequence[Backbone],
    config: Config,
    execution: Execution,
    previous: Sequence[Previous] = (),
    representative: bool = True,
) -> Fitted:
    """Learn from normal images everything that scoring needs; with one backbone for each scale.

    With `previous` models the threshold comes from old and new images, or from the old alone where the new ones are
    not `representative` of what comes.
    """
    with extracted(images, backbones, config, execution, previous, representative) as extraction:
        return learn(extraction, backbones, config, execution, previous, representative)


def learn(
    extraction: Extraction,
    backbones: Sequence[Backbone],
    config: Config,
    execution: Execution,
    previous: Sequence[Previous] = (),
    representative: bool = True,
) -> Fitted:
    """The model of what was extracted, on top of `previous` ones."""
    scales = []
    for scale in range(len(backbones)):
        with execution.phase("moments", 1) as advance:
            metric = metric_at(extraction, scale, config, execution, previous)
            advance(1)
        give_back()
        whitening, patches = metric.whitening, metric.moments.n
        with execution.phase("bank", len(extraction.learnt)) as advance:
            bank = _bank(extraction, whitening, patches, scale, config, execution, previous, advance)
            give_back()
            grid = backbones[scale].info.grid
            raw = _raw_rows(extraction, bank, whitening, scale, grid, execution, previous)
            weights = spacing_weights(whitening(raw), execution.workers)
        scales.append(Scale(backbones[scale], *metric, raw, bank.origin, weights))
    banks = [banked(scale, config) for scale in scales]
    calibration = calibration_of(
        extraction.store,
        extraction.learnt,
        extraction.held_out,
        duplicate_groups(extraction, previous),
        banks,
        config,
        execution,
        previous,
        representative,
    )
    learnt = tuple(image.image for image in extraction.learnt)
    told = (extraction.hashes, extraction.thumbnails, extraction.measures)
    return Fitted(tuple(scales), calibration, learnt, *told)


class Metric(NamedTuple):
    """What patches of one scale are measured by; `variances` (d,) are those of all principal directions."""

    moments: Moments
    variances: Doubles
    whitening: Whitening


def metric_at(
    extraction: Extraction,
    scale: int,
    config: Config,
    execution: Execution,
    previous: Sequence[Previous] = (),
) -> Metric:
    """The metric of what was extracted, on top of `previous` models."""
    moments = _with_previous(extraction.moments, previous, scale)
    reduction = _reduction(extraction, moments, scale, config, bool(previous))
    lam = choose_shrinkage(extraction, moments, reduction, scale, config, execution)
    floor = 0.0 if config.shrinkage == "none" else config.floor  # the paper's "jitter only"
    whitening = fit_whitening(moments, reduction, lam, floor, config.metric)
    return Metric(moments, reduction.variances, whitening)


def duplicate_groups(extraction: Extraction, previous: Sequence[Previous]) -> Indices:
    """Which images are near-duplicates of each other: a number for each image of the whole model."""
    first = sum(len(one.hashes) for one in previous)
    count = max([first, *(image + 1 for image in extraction.thumbnails)])
    known = np.concatenate([np.empty((0, SIDE**2), np.float16), *(one.thumbnails for one in previous)])
    numbers = [*range(first), *sorted(extraction.thumbnails)]
    fresh = [extraction.thumbnails[image] for image in sorted(extraction.thumbnails)]
    found = near_duplicate_groups(np.concatenate([known, np.array(fresh).reshape(-1, SIDE**2)]))
    groups = np.arange(count)
    groups[numbers] = np.array(numbers)[found]
    return groups


def _with_previous(new: tuple[Moments, ...], previous: Sequence[Previous], scale: int) -> Moments:
    """The moments of all that was learnt before and of the new images, of which there may be none."""
    moments = [one.scales[scale].moments for one in previous] + list(new[scale : scale + 1])
    return reduce(Moments.merge, moments)


def _reduction(
    extraction: Extraction, moments: Moments, scale: int, config: Config, grows: bool
) -> Reduction:
    if config.reduction == "none":
        return no_reduction(moments)
    # a model that grows has no IPCA to go on with, but its exact covariance gives the same directions
    if config.reduction == "pca" or grows:
        return reduce_by(moments, config.variance, config.components)
    pca = IncrementalPca(moments.d)
    for chunk in cut(views_at(scale, extraction.learnt), config.chunk_images):
        pca.add(tasks.aligned(extraction.store, chunk))
    return reduce_by_ipca(pca, config.variance, config.components)


def choose_shrinkage(
    extraction: Extraction,
    moments: Moments,
    reduction: Reduction,
    scale: int,
    config: Config,
    execution: Execution,
) -> float:
    """λ by the configured policy, on the covariance in the reduced space."""
    policy = config.shrinkage
    if not isinstance(policy, str):
        return float(policy)
    if policy == "none" or config.metric == "euclidean":
        return 0.0
    W = reduction.W
    eigenvalues = np.linalg.eigvalsh(W.T @ moments.covariance @ W)
    if policy == "oas":
        return shrinkage.oas(eigenvalues, moments.n)
    if policy == "rblw":
        return shrinkage.rblw(eigenvalues, moments.n)
    directions = tasks.put_arrays(extraction.store, "directions", {"W": W, "mean": moments.mean})
    task = partial(fourth_moment, extraction.store, directions)
    views = views_at(scale, extraction.learnt)
    fourth = sum(execution.runs_on.map(task, cut(views, config.chunk_images)))
    return shrinkage.ledoit_wolf(eigenvalues, moments.n, fourth / moments.n)


def _bank(
    extraction: Extraction,
    whitening: Whitening,
    patches: int,
    scale: int,
    config: Config,
    execution: Execution,
    previous: Sequence[Previous],
    advance: Callable[[int], None],
) -> Patches:
    """The constructor over the whitened patches of all images."""
    images = len(extraction.learnt)
    chunks = bank_chunks(views_at(scale, extraction.learnt), config)
    metric = tasks.put_metric(extraction.store, whitening)
    earlier = tuple(one.scales[scale].patches(whitening) for one in previous)

    def progress(phase: str, done: int, total: int) -> None:
        if phase == "bank":  # chunks are told as images
            advance(done * images // total)
        else:
            execution.progress(phase, done, total)

    read = partial(tasks.whitened, extraction.store, metric)
    trees = partial(grown, extraction.store, metric, chunks, execution.runs_on)
    return build_bank(Stream(read, chunks, earlier, execution.workers, progress, trees), config, patches)


def _raw_rows(
    extraction: Extraction,
    bank: Patches,
    whitening: Whitening,
    scale: int,
    grid: tuple[int, int],
    execution: Execution,
    previous: Sequence[Previous],
) -> Array:
    """The raw descriptors (K, d) of the bank's rows, from the store or from the models that grew; halves.

    Centroids come from no single patch: theirs are those that whiten to them, in float32.
    """
    if (bank.origin[:, 0] < 0).any():
        return whitening.inverse(bank.z)
    raw = np.empty((len(bank), len(whitening.mean)), np.float16)
    for one in previous:
        old = {tuple(origin): row for row, origin in enumerate(one.scales[scale].origin.tolist())}
        kept = [(i, old[tuple(o)]) for i, o in enumerate(bank.origin.tolist()) if tuple(o) in old]
        if kept:
            places, old_rows = zip(*kept, strict=True)
            raw[list(places)] = one.scales[scale].raw[list(old_rows)]
    _, columns = grid
    wanted, places_of = [], []
    by_view = {(view.image, view.view): view for view in views_at(scale, extraction.learnt)}
    origins, views = bank.origin, np.unique(bank.origin[:, :2], axis=0)
    for image, number in views.tolist():
        if (image, number) in by_view:
            rows = np.flatnonzero((origins[:, 0] == image) & (origins[:, 1] == number))
            wanted.append((by_view[image, number], origins[rows, 2] * columns + origins[rows, 3]))
            places_of.append(rows)
    found = execution.runs_on.map(partial(tasks.raw_rows, extraction.store), wanted)
    for rows, values in zip(places_of, found, strict=True):
        raw[rows] = values
    return raw
