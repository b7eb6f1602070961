"""One variant on one category: the fit's own functions over cached descriptors, then metrics."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from PIL import Image

from benchmarks.accuracy.descriptors import Descriptors
from mhpatchcore.arrays import Array
from mhpatchcore.bank import build_bank
from mhpatchcore.bank.patches import Patches, Stream, grid_origin
from mhpatchcore.config import Config
from mhpatchcore.datasets import read_mask
from mhpatchcore.errors import ImageError
from mhpatchcore.extraction import Chunk
from mhpatchcore.fitting import choose_shrinkage
from mhpatchcore.maps import original_map
from mhpatchcore.metrics import auroc
from mhpatchcore.moments import Moments
from mhpatchcore.parallel import available_cores, one_blas_thread, ordered_map
from mhpatchcore.pixel_metrics import PixelMetrics
from mhpatchcore.scoring import PatchScores, Scorer
from mhpatchcore.whitening import Reduction, fit_whitening, reduce_by


@dataclass(frozen=True)
class Quality:
    """Image AUROC, pixel AUROC and AUPRO (NaN without masks), rows and dimensions of the bank."""

    image: float
    pixel: float
    aupro: float
    rows: int
    k: int


def judge(data: Descriptors, config: Config, order: Array | None = None) -> Quality:
    """Fit the variant on the training rows (in the given order of images) and score the test rows."""
    images = np.arange(len(data.train)) if order is None else order
    workers = available_cores()
    chunks = [images[i : i + config.chunk_images] for i in range(0, len(images), config.chunk_images)]

    def rows(index: int) -> Array:
        return np.concatenate([data.train[i] for i in chunks[index]])

    with one_blas_thread():
        parts = ordered_map(lambda i: Moments.of(rows(i)), range(len(chunks)), workers)
        moments = Moments.of_all(parts, data.train.shape[2])
        if config.reduction == "none":
            reduction = Reduction(np.eye(moments.d), np.diag(moments.covariance).copy())
        else:
            reduction = reduce_by(moments, config.variance, config.components)
        lam = choose_shrinkage(
            config, moments, reduction, lambda: (Chunk(tuple(chunks[i]), rows(i)) for i in range(len(chunks)))
        )
        whitening = fit_whitening(moments, reduction, lam, config.floor, config.metric)

        def read(index: int) -> Patches:
            raw = rows(index)
            return Patches(whitening(raw), raw, grid_origin([int(i) for i in chunks[index]], data.grid))

        bank = build_bank(Stream(read, len(chunks), workers), config)
        scorer = Scorer(bank.z, data.grid, config)
        _ = scorer.parts
        scored = list(ordered_map(lambda u: scorer(whitening(u)), data.test, workers))
    labels = np.array([sample.is_anomalous for sample in data.dataset.test])
    pixel = _pixel(data, scored, config)
    image = auroc(labels, np.array([one.score for one in scored]))
    return Quality(image, pixel[0], pixel[1], len(bank), whitening.k)


def _pixel(data: Descriptors, scored: list[PatchScores], config: Config) -> tuple[float, float]:
    """Pixel AUROC and AUPRO over the original images; unusable masks are passed over, as in an evaluation."""
    if not data.dataset.has_masks:
        return float("nan"), float("nan")
    metrics = PixelMetrics()
    for sample, one in zip(data.dataset.test, scored, strict=True):
        with Image.open(sample.path) as image:
            where = config.preprocessing.geometry(image.height, image.width)
        try:
            mask = (
                read_mask(sample.mask, where.height, where.width)
                if sample.mask
                else np.zeros((where.height, where.width), bool)
            )
        except ImageError:
            continue
        if sample.mask or not sample.is_anomalous:
            metrics.update(original_map(one.a, config.size, config.size, config.sigma, where), mask)
    result = metrics.result()
    return result.auroc, result.aupro
