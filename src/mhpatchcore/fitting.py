"""Fit: two passes over the normal images, in chunks of a fixed number of images.

    pass 1   images → descriptors → spool, and their moments → whitening
    pass 2   spool → whitened patches → bank
    then     each calibration image against the bank rows of the other images → threshold

Chunks are the unit of work and of rounding: each is computed on one thread and merged in order, so the model
does not depend on batch size, threads or whether there is a spool.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from mhpatchcore import shrinkage
from mhpatchcore.arrays import Array, Doubles, Floats
from mhpatchcore.backbone.session import Backbone
from mhpatchcore.bank import build_bank
from mhpatchcore.bank.patches import Patches, Stream, grid_origin
from mhpatchcore.calibration import Calibration, calibrate
from mhpatchcore.config import Config
from mhpatchcore.errors import UserError
from mhpatchcore.extraction import Chunk, Execution, Extraction
from mhpatchcore.images import ImageLike
from mhpatchcore.moments import Moments
from mhpatchcore.parallel import one_blas_thread
from mhpatchcore.scoring import Scorer
from mhpatchcore.whitening import Reduction, Whitening, fit_whitening, reduce_by, reduce_by_ipca

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


def fit(images: Sequence[ImageLike], backbone: Backbone, config: Config, execution: Execution) -> Fitted:
    """Learn from normal images everything that scoring needs."""
    held_out = _held_out(len(images), config)
    taken = sorted(set(range(len(images))) - set(held_out or ()))
    with one_blas_thread(), closing(Extraction(images, taken, backbone, config, execution)) as extraction:
        moments, reduction = _first_pass(extraction, backbone, config)
        lam = choose_shrinkage(
            config, moments, reduction, lambda: extraction.again("shrinkage", lambda chunk: chunk)
        )
        whitening = fit_whitening(moments, reduction, lam, config.floor, config.metric)
        bank = build_bank(_whitened(extraction, whitening), config)
        scorer = Scorer(bank.z, backbone.info.grid, config)
        scores = (
            _held_out_scores(images, held_out, whitening, scorer, backbone, config, execution)
            if held_out is not None
            else _cross_image_scores(extraction, whitening, bank, scorer, config)
        )
    method = "cross-image" if held_out is None else "held-out"
    calibration = calibrate(scores[:, 0], scores[:, 1], config.false_alarm, method)
    return Fitted(
        moments,
        reduction.variances,
        whitening,
        bank,
        calibration,
        tuple(i for images in extraction.members for i in images),
    )


def _held_out(n: int, config: Config) -> list[int] | None:
    """Images that are not learnt from but kept for the threshold, evenly spread; None if it needs no such."""
    if config.calibration == "cross-image" and config.constructor != "kmeans":  # centroids have no origin
        return None
    return _spread(n, min(config.calibration_images, max(1, round(HELD_OUT_SHARE * n)))) if n > 1 else []


def _first_pass(extraction: Extraction, backbone: Backbone, config: Config) -> tuple[Moments, Reduction]:
    """Run the backbone over everything; moments of all patches, and the principal directions."""
    d = backbone.info.dim
    total = Moments.empty(d)
    ipca = _Ipca(d) if config.reduction == "ipca" else None
    for chunk, moments in extraction.first(lambda chunk: Moments.of(chunk.rows)):
        total = total.merge(moments)
        if ipca is not None:
            ipca.add(chunk.rows)
    if total.n == 0:
        raise UserError("none of the images could be read: check the folder")
    if config.reduction == "none":
        return total, Reduction(np.eye(d), np.diag(total.covariance).copy())
    if ipca is not None:
        return total, reduce_by_ipca(ipca.finished(), config.variance, config.components)
    return total, reduce_by(total, config.variance, config.components)


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


def _whitened(extraction: Extraction, whitening: Whitening) -> Stream:
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

    return Stream(read, len(extraction.members), execution.workers, progress)


def _cross_image_scores(
    extraction: Extraction, whitening: Whitening, bank: Patches, scorer: Scorer, config: Config
) -> Floats:
    """Score and map peak (n, 2) of training images, each without the bank rows that come from itself."""
    read = [image for images in extraction.members for image in images]
    wanted = {read[i] for i in _spread(len(read), config.calibration_images)}
    per_image = extraction.backbone.patches_per_image

    def score(chunk: Chunk) -> list[tuple[float, float]]:
        found = []
        for i, image in enumerate(chunk.images):
            others = bank.origin[:, 0] != image
            if image in wanted and others.any():
                z = whitening(chunk.rows[i * per_image : (i + 1) * per_image])
                scored = scorer(z, among=others)
                found.append((scored.score, scored.peak))
        return found

    pairs = [pair for found in extraction.again("calibrate", score) for pair in found]
    return np.array(pairs, np.float32).reshape(-1, 2)


def _held_out_scores(
    images: Sequence[ImageLike],
    held_out: Sequence[int],
    whitening: Whitening,
    scorer: Scorer,
    backbone: Backbone,
    config: Config,
    execution: Execution,
) -> Floats:
    """Score and map peak (n, 2) of images that took no part in the fit."""
    pairs = []
    apart = Extraction(images, held_out, backbone, config, replace(execution, spool="none"))
    for chunk, _ in apart.first(lambda chunk: None):
        for z in np.split(whitening(chunk.rows), len(chunk.images)):
            scored = scorer(z)
            pairs.append((scored.score, scored.peak))
    return np.array(pairs, np.float32).reshape(-1, 2)


def _spread(n: int, size: int) -> list[int]:
    """At most `size` of n indices, evenly spread.

    >>> _spread(10, 3)
    [1, 5, 8]
    """
    size = min(size, n)
    return [int((i + 0.5) * n / size) for i in range(size)]
