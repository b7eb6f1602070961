"""Fit: two passes over the normal images, in chunks of a fixed number of images.

    pass 1   images → descriptors → spool, and their moments → whitening
    pass 2   spool → whitened patches → bank, the images in random order
    then     each calibration image against the bank rows of the other images → threshold

If suspicious images are to be left out, they are found with that bank, and all of it runs again from the spool.

Chunks are the unit of work and of rounding: each is computed on one thread and merged in order, so the model
does not depend on batch size, threads or whether there is a spool.

A model that grows is fitted in the same way, only that it does not begin with nothing (`past.py`): moments go on from
the old ones, old bank rows compete with the new chunks, old calibration images are scored again by their witnesses.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from time import thread_time
from typing import Any

import numpy as np

from mhpatchcore.backbone.session import Backbone
from mhpatchcore.bank import build_bank
from mhpatchcore.bank.patches import Patches, Stream, grid_origin
from mhpatchcore.calibration.conformal import Calibration
from mhpatchcore.calibration.cross_image import calibration_of, check_unknown, held_out_images
from mhpatchcore.config import Config
from mhpatchcore.errors import ImageError
from mhpatchcore.fitting.extraction import Chunk, Execution, Extraction, mixed_chunks
from mhpatchcore.fitting.past import Past
from mhpatchcore.inputs.images import ImageLike
from mhpatchcore.inspection.coverage import Coverage, measure_coverage
from mhpatchcore.inspection.suspicion import Ranking, Scrutiny, rank_images
from mhpatchcore.metric import shrinkage
from mhpatchcore.metric.moments import Moments
from mhpatchcore.metric.whitening import (
    Reduction,
    Whitening,
    fit_whitening,
    reduce_by,
    reduce_by_ipca,
    with_place,
)
from mhpatchcore.runtime.arrays import Array, Doubles
from mhpatchcore.runtime.memory import give_back
from mhpatchcore.runtime.parallel import one_blas_thread


@dataclass(frozen=True, eq=False)
class Fitted:
    """What a fit finds out; `variances` (d,) are those of all principal directions.

    `images` are the indices of those that were learnt from (without the broken and the held-out ones), and
    `excluded` of those that were left out as suspicious: all other indices count without these. `ranking` (whose
    indices are those of all images) and `coverage` are there if they were asked for.
    """

    moments: Moments
    variances: Doubles
    whitening: Whitening
    bank: Patches
    calibration: Calibration
    images: tuple[int, ...]
    excluded: tuple[int, ...] = ()
    ranking: Ranking | None = None
    coverage: Coverage | None = None


def fit(
    images: Sequence[ImageLike],
    backbone: Backbone,
    config: Config,
    execution: Execution,
    pasts: Sequence[Past] = (),
    fair: bool = True,
    scrutiny: Scrutiny | None = None,
) -> Fitted:
    """Learn from normal images everything that scoring needs, and what `scrutiny` asks for besides.

    With `pasts`, the first of `images` are the names of those that are gone; they are not read. The threshold then
    comes from old and new images, or from the old alone where the new ones are no `fair` sample.
    """
    new = range(sum(len(past.images) for past in pasts), len(images))
    held_out = held_out_images(new, config, pasts, backbone.patches_per_image) if fair else []
    taken = sorted(set(new) - set(held_out))
    if scrutiny is not None:
        scrutiny.to_exclude(len(taken))  # too many are refused before the work
    without_spool = replace(execution, spool="none")
    with one_blas_thread(), closing(Extraction(images, taken, backbone, config, execution)) as extraction:
        apart = Extraction(images, held_out, backbone, config, without_spool) if held_out else None
        fitted = learn(extraction, apart, pasts, fair)
        return fitted if scrutiny is None else _scrutinised(fitted, extraction, apart, scrutiny)


def learn(
    extraction: Extraction, apart: Extraction | None = None, pasts: Sequence[Past] = (), fair: bool = True
) -> Fitted:
    """The model of what `extraction` reads, on top of `pasts`; `apart` are held-out images for the threshold."""
    config = extraction.config
    moments, reduction = _first_pass(extraction, pasts)
    whitening = whitening_by(
        moments, reduction, config, lambda: extraction.again("shrinkage", lambda chunk: chunk)
    )
    give_back()
    extraction.execution.progress("moments", 1, 1)
    extraction.execution.progress("bank", 0, sum(map(len, extraction.members)))
    bank = build_bank(_whitened(extraction, whitening, pasts), config)
    give_back()
    calibration = calibration_of(extraction, apart, pasts, whitening, bank, fair)
    learnt = tuple(i for images in extraction.members for i in images)
    return Fitted(moments, reduction.variances, whitening, bank, calibration, learnt)


def _scrutinised(
    fitted: Fitted, extraction: Extraction, apart: Extraction | None, scrutiny: Scrutiny
) -> Fitted:
    """With what is asked about the images; learnt anew if some of them are to be left out."""
    ranking = rank_images(extraction, fitted.whitening, fitted.bank) if scrutiny.ranks else None
    excluded = () if ranking is None else ranking.images[: scrutiny.to_exclude(len(extraction.taken))]
    if excluded:
        extraction = extraction.without(excluded)
        fitted = learn(extraction, apart)
    coverage = measure_coverage(extraction, fitted.whitening, fitted.bank.z) if scrutiny.coverage else None
    return replace(fitted, excluded=tuple(sorted(excluded)), ranking=ranking, coverage=coverage)


def _first_pass(extraction: Extraction, pasts: Sequence[Past]) -> tuple[Moments, Reduction]:
    """Run the backbone over everything; moments of all patches, and the principal directions."""
    config, info = extraction.config, extraction.backbone.info
    total = Moments.of_all((past.moments for past in pasts), info.columns)
    # the past has no IPCA to go on with, but its exact covariance gives the same directions
    ipca = _Ipca(info.dim) if config.reduction == "ipca" and not pasts else None

    def look(chunk: Chunk) -> tuple[Moments, float]:
        """Moments of the chunk, and the CPU seconds of this thread that they took."""
        started = thread_time()
        for past in pasts:
            check_unknown(chunk, past, extraction)
        return Moments.of(chunk.rows), thread_time() - started

    for chunk, (moments, seconds) in extraction.first(look):
        total = total.merge(moments)
        extraction.execution.spent("moments", seconds, 0)
        if ipca is not None:
            ipca.add(chunk.rows[:, : info.dim])
    if extraction.taken and not extraction.members:
        raise ImageError("none of the images could be read: check the folder")
    extraction.execution.progress("moments", 0, 1)
    if ipca is not None:
        return total, reduce_by_ipca(ipca.finished(), config.variance, config.components)
    return total, reduction_of(total.leading(info.dim), config)


def reduction_of(moments: Moments, config: Config) -> Reduction:
    """The configured directions, from the exact covariance."""
    if config.reduction == "none":
        return Reduction(np.eye(moments.d), np.diag(moments.covariance).copy())
    return reduce_by(moments, config.variance, config.components)


class _Ipca:
    """scikit-learn's IncrementalPCA, which keeps as many components as its first piece has rows."""

    def __init__(self, dim: int) -> None:
        from sklearn.decomposition import IncrementalPCA

        self.dim = dim
        self.pca = IncrementalPCA()
        self.waiting: list[Array] = []

    def add(self, rows: Array) -> None:
        self.waiting.append(rows)
        if sum(map(len, self.waiting)) >= self.dim:
            self._feed()

    def finished(self) -> Any:
        if self.waiting:
            self._feed()
        return self.pca

    def _feed(self) -> None:
        self.pca.partial_fit(np.concatenate(self.waiting).astype(np.float64))
        self.waiting = []


def whitening_by(
    moments: Moments, reduction: Reduction, config: Config, again: Callable[[], Iterable[Chunk]]
) -> Whitening:
    """Looks whitened as configured, then places, if the moments have two columns more than the reduction."""
    looks = moments.leading(len(reduction.W))
    lam = choose_shrinkage(config, looks, reduction, again)
    whitening = fit_whitening(looks, reduction, lam, config.floor, config.metric)
    return with_place(whitening, moments, config.place) if moments.d > looks.d else whitening


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
        squares = (((chunk.rows[:, : moments.d] - moments.mean) @ W) ** 2).sum(axis=1)
        fourth += float(squares @ squares)
    return shrinkage.ledoit_wolf(eigenvalues, moments.n, fourth / moments.n)


def _whitened(extraction: Extraction, whitening: Whitening, pasts: Sequence[Past]) -> Stream:
    """The stream of whitened patches that constructors read."""
    grid = extraction.backbone.info.grid
    chunks = mixed_chunks(extraction.members, extraction.config)

    def read(index: int) -> Patches:
        chunk = extraction.read(chunks[index])
        return Patches(whitening(chunk.rows), chunk.rows, grid_origin(chunk.images, grid))

    execution = extraction.execution
    images = sum(map(len, extraction.members))

    def progress(phase: str, done: int, total: int) -> None:
        """Chunks are told as images; picks of a long selection stay what they are."""
        in_images = (done * images // total, images) if phase == "bank" else (done, total)
        execution.progress(phase, *in_images)

    past = tuple(past.summary(whitening) for past in pasts)
    return Stream(read, len(chunks), execution.workers, progress, past)
