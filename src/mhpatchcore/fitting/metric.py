"""The second pass: what patches are measured by, from their moments: reduction, shrinkage, whitening."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial, reduce
from typing import NamedTuple

import numpy as np

from mhpatchcore.backbone.stored import Located, aligned, views_at
from mhpatchcore.fitting.extraction import Extraction
from mhpatchcore.fitting.plan import cut
from mhpatchcore.metric import shrinkage
from mhpatchcore.metric.moments import Moments
from mhpatchcore.metric.reduction import (
    IncrementalPca,
    Reduction,
    no_reduction,
    reduce_by,
    reduce_by_correlation,
    reduce_by_ipca,
)
from mhpatchcore.metric.whitening import Whitening, fit_whitening
from mhpatchcore.runtime.arrays import Doubles
from mhpatchcore.runtime.store import Store


class Metric(NamedTuple):
    """What patches of one scale are measured by; `variances` (d,) are those of all principal directions."""

    moments: Moments
    variances: Doubles
    whitening: Whitening


def metric_at(extraction: Extraction, scale: int) -> Metric:
    """The metric of what was extracted, on top of the previous models."""
    config = extraction.config
    known = [one.scales[scale].moments for one in extraction.previous]
    moments = reduce(
        Moments.merge, [*known, *extraction.moments[scale : scale + 1]]
    )  # there may be no new images
    reduction = _reduction(extraction, moments, scale)
    lam = choose_shrinkage(extraction, moments, reduction, scale)
    floor = 0.0 if config.shrinkage == "none" else config.floor  # the paper's "jitter only"
    whitening = fit_whitening(moments, reduction, lam, floor, config.metric)
    return Metric(moments, reduction.variances, whitening)


def _reduction(extraction: Extraction, moments: Moments, scale: int) -> Reduction:
    config = extraction.config
    if config.reduction == "none":
        return no_reduction(moments)
    if config.reduction == "correlation":
        return reduce_by_correlation(moments, config.variance, config.components)
    # a model that grows has no IPCA to go on with, but its exact covariance gives the same directions
    if config.reduction == "pca" or extraction.previous:
        return reduce_by(moments, config.variance, config.components)
    pca = IncrementalPca(moments.d)
    for chunk in cut(views_at(scale, extraction.learnt), config.chunk_images):
        pca.add(aligned(extraction.store, chunk))
    return reduce_by_ipca(pca, config.variance, config.components)


def choose_shrinkage(extraction: Extraction, moments: Moments, reduction: Reduction, scale: int) -> float:
    """λ by the configured policy, on the covariance in the reduced space."""
    config = extraction.config
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
    directions = extraction.store.put_by_content("directions", {"W": W, "mean": moments.mean})
    task = partial(fourth_moment, extraction.store, directions)
    views = views_at(scale, extraction.learnt)
    fourth = sum(extraction.execution.runs_on.map(task, cut(views, config.chunk_images)))
    return shrinkage.ledoit_wolf(eigenvalues, moments.n, fourth / moments.n)


def fourth_moment(store: Store, directions: str, chunk: Sequence[Located]) -> float:
    """Σ ‖Wᵀ(u − mean)‖⁴ over all patches of some views, for Ledoit–Wolf; W and mean are an entry of the store."""
    known = store.get(directions)
    squares = (((aligned(store, chunk) - known["mean"]) @ known["W"]) ** 2).sum(axis=1)
    return float(squares @ squares)
