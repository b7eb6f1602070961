"""Fit: two passes over the normal images, in chunks of a fixed number of images.

    pass 1   images → descriptors → spool, and their moments → whitening
    pass 2   spool → whitened patches → bank
    then     each calibration image against the bank rows of the other images → threshold

Chunks are the unit of work and of rounding: each is computed on one thread and merged in order, so the model
does not depend on batch size, threads or whether there is a spool.

A model that grows is fitted in the same way, only that it does not begin with nothing (`past.py`): moments go on from
the old ones, old bank rows compete with the new chunks, old calibration images are scored again by their witnesses.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from mhpatchcore import shrinkage
from mhpatchcore.arrays import Array, Doubles
from mhpatchcore.backbone.session import Backbone
from mhpatchcore.bank import build_bank
from mhpatchcore.bank.patches import Patches, Stream, grid_origin
from mhpatchcore.calibration import Calibration, both_methods, calibration_by
from mhpatchcore.config import Config
from mhpatchcore.errors import UserError
from mhpatchcore.extraction import Chunk, Execution, Extraction
from mhpatchcore.images import ImageLike
from mhpatchcore.moments import Moments
from mhpatchcore.parallel import one_blas_thread
from mhpatchcore.past import Past
from mhpatchcore.scoring import Scorer
from mhpatchcore.whitening import Reduction, Whitening, fit_whitening, reduce_by, reduce_by_ipca
from mhpatchcore.witnesses import NOT_LEARNT, Statement, hear, hear_again

HELD_OUT_SHARE = 0.2


@dataclass(frozen=True, eq=False)
class Fitted:
    """What a fit finds out; `variances` (d,) are those of all principal directions.

    `images` are the indices of those that were learnt from (without the broken and the held-out ones).
    """

    moments: Moments
    variances: Doubles
    whitening: Whitening
    bank: Patches
    calibration: Calibration
    images: tuple[int, ...]


def fit(
    images: Sequence[ImageLike],
    backbone: Backbone,
    config: Config,
    execution: Execution,
    pasts: Sequence[Past] = (),
) -> Fitted:
    """Learn from normal images everything that scoring needs.

    With `pasts`, the first of `images` are the names of those that are gone; they are not read.
    """
    new = range(sum(len(past.images) for past in pasts), len(images))
    held_out = _held_out(
        new, config, calibration_shares(config, pasts, len(new) * backbone.patches_per_image)[-1]
    )
    taken = sorted(set(new) - set(held_out or ()))
    without_spool = replace(execution, spool="none")
    with one_blas_thread(), closing(Extraction(images, taken, backbone, config, execution)) as extraction:
        apart = Extraction(images, held_out, backbone, config, without_spool) if held_out else None
        return learn(extraction, apart, pasts)


def learn(extraction: Extraction, apart: Extraction | None = None, pasts: Sequence[Past] = ()) -> Fitted:
    """The model of what `extraction` reads, on top of `pasts`; `apart` are held-out images for the threshold."""
    config, grid = extraction.config, extraction.backbone.info.grid
    moments, reduction = _first_pass(extraction, pasts)
    lam = choose_shrinkage(
        config, moments, reduction, lambda: extraction.again("shrinkage", lambda chunk: chunk)
    )
    whitening = fit_whitening(moments, reduction, lam, config.floor, config.metric)
    bank = build_bank(_whitened(extraction, whitening, pasts), config)
    scorer = Scorer(bank.z, grid, config)
    *old_shares, new_share = calibration_shares(config, pasts, len(extraction.taken) * grid[0] * grid[1])
    statements = [
        hear_again(past.calibration.witnesses[i], whitening, bank, scorer)
        for past, share in zip(pasts, old_shares, strict=True)
        for i in spread(len(past.calibration.witnesses), share)
    ]
    methods = [past.calibration.method for past in pasts if past.calibration.witnesses]
    if held_out_settings(config):
        statements += held_out_statements(apart, whitening, scorer) if apart else []
        methods.append("held-out")
    elif extraction.members:
        statements += _cross_image_statements(extraction, whitening, bank, scorer, new_share)
        methods.append("cross-image")
    calibration = calibration_by(statements, config.false_alarm, both_methods(*methods))
    learnt = tuple(i for images in extraction.members for i in images)
    return Fitted(moments, reduction.variances, whitening, bank, calibration, learnt)


def held_out_settings(config: Config) -> bool:
    """Whether images are kept out of the bank for the threshold; centroids have no origin, so they need it."""
    return config.calibration == "held-out" or config.constructor == "kmeans"


def _held_out(new: Sequence[int], config: Config, most: int) -> list[int] | None:
    """Images that are not learnt from but kept for the threshold, evenly spread; None if it needs no such."""
    if not held_out_settings(config):
        return None
    n = len(new)
    return [new[i] for i in spread(n, min(most, max(1, round(HELD_OUT_SHARE * n))))] if n > 1 else []


def calibration_shares(config: Config, pasts: Sequence[Past], new_patches: int) -> list[int]:
    """How many calibration images each past contributes, and last the new images: in proportion to what was learnt.

    So a few parts that came back from the line weigh in the threshold as they do among all images, and the number of
    calibration images stays what it was. A past without witnesses cannot contribute.
    """
    room = max([config.calibration_images, *(past.calibration.n for past in pasts)])
    patches = [past.moments.n if past.calibration.witnesses else 0 for past in pasts] + [new_patches]
    return [round(room * n / max(sum(patches), 1)) for n in patches]


def _first_pass(extraction: Extraction, pasts: Sequence[Past]) -> tuple[Moments, Reduction]:
    """Run the backbone over everything; moments of all patches, and the principal directions."""
    config, d = extraction.config, extraction.backbone.info.dim
    total = Moments.of_all((past.moments for past in pasts), d)
    # the past has no IPCA to go on with, but its exact covariance gives the same directions
    ipca = _Ipca(d) if config.reduction == "ipca" and not pasts else None

    def look(chunk: Chunk) -> Moments:
        for past in pasts:
            check_unknown(chunk, past, extraction)
        return Moments.of(chunk.rows)

    for chunk, moments in extraction.first(look):
        total = total.merge(moments)
        if ipca is not None:
            ipca.add(chunk.rows)
    if extraction.taken and not extraction.members:
        raise UserError("none of the images could be read: check the folder")
    if ipca is not None:
        return total, reduce_by_ipca(ipca.finished(), config.variance, config.components)
    return total, reduction_of(total, config)


def reduction_of(moments: Moments, config: Config) -> Reduction:
    """The configured directions, from the exact covariance."""
    if config.reduction == "none":
        return Reduction(np.eye(moments.d), np.diag(moments.covariance).copy())
    return reduce_by(moments, config.variance, config.components)


class _Ipca:
    """scikit-learn's IncrementalPCA, fed with pieces of at least as many rows as it has components."""

    def __init__(self, dim: int) -> None:
        from sklearn.decomposition import IncrementalPCA

        self.dim = dim
        self.pca = IncrementalPCA()
        self.waiting: list[Array] = []

    def add(self, rows: Array) -> None:
        self.waiting.append(rows)
        # what is left over must suffice for a last piece of its own, so one full piece stays behind
        if sum(map(len, self.waiting)) >= 2 * self.dim:
            self._feed()

    def finished(self) -> Any:
        if self.waiting:
            self._feed()
        return self.pca

    def _feed(self) -> None:
        self.pca.partial_fit(np.concatenate(self.waiting).astype(np.float64))
        self.waiting = []


def choose_shrinkage(
    config: Config, moments: Moments, reduction: Reduction, again: Callable[[], Iterable[Chunk]]
) -> float:
    """λ by the configured policy, on the covariance in the reduced space; `again` reads the descriptors once more."""
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
    fourth = 0.0
    for chunk in again():
        squares = (((chunk.rows - moments.mean) @ W) ** 2).sum(axis=1)
        fourth += float(squares @ squares)
    return shrinkage.ledoit_wolf(eigenvalues, moments.n, fourth / moments.n)


def _whitened(extraction: Extraction, whitening: Whitening, pasts: Sequence[Past]) -> Stream:
    """The stream of whitened patches that constructors read."""
    grid = extraction.backbone.info.grid

    def read(index: int) -> Patches:
        chunk = extraction.read(index)
        return Patches(whitening(chunk.rows), chunk.rows, grid_origin(chunk.images, grid))

    execution = extraction.execution
    images = sum(map(len, extraction.members))

    def progress(phase: str, done: int, total: int) -> None:
        """Chunks are told as images; picks of a long selection stay what they are."""
        in_images = (done * images // total, images) if phase == "bank" else (done, total)
        execution.progress(phase, *in_images)

    past = tuple(past.summary(whitening) for past in pasts)
    return Stream(read, len(extraction.members), execution.workers, progress, past)


def _cross_image_statements(
    extraction: Extraction, whitening: Whitening, bank: Patches, scorer: Scorer, most: int
) -> list[Statement]:
    """Training images, each scored without the bank rows that come from itself."""
    read = [image for images in extraction.members for image in images]
    wanted = {read[i] for i in spread(len(read), most)}

    def score(chunk: Chunk) -> list[Statement]:
        found = []
        for image, rows in zip(chunk.images, _by_image(chunk), strict=True):
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
        return [hear(NOT_LEARNT, rows, whitening(rows), scorer) for rows in _by_image(chunk)]

    return [one for _, found in apart.first(score) for one in found]


def _by_image(chunk: Chunk) -> list[Array]:
    """The descriptors (h·w, d) of each of its images."""
    return np.split(chunk.rows, len(chunk.images)) if chunk.images else []


def check_unknown(chunk: Chunk, past: Past, extraction: Extraction) -> None:
    """Refuse images that the past has learnt from: learnt twice they weigh too much, and they score too low."""
    for image, rows in zip(chunk.images, _by_image(chunk), strict=True):
        if past.knows(rows, extraction.backbone.info.grid):
            name = extraction.images[image]
            raise UserError(
                f"the model has learnt from {name if isinstance(name, str | Path) else 'a given array'} already: "
                "give images that are new to it"
            )


def spread(n: int, size: int) -> list[int]:
    """At most `size` of n indices, evenly spread.

    >>> spread(10, 3)
    [1, 5, 8]
    """
    size = min(size, n)
    return [int((i + 0.5) * n / size) for i in range(size)]
