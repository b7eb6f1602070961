"""One trial on one category: the fit's own functions over cached descriptors, then metrics."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from PIL import Image
from scipy.ndimage import maximum_filter

from benchmarks.accuracy.descriptors import Descriptors
from benchmarks.accuracy.trials import Trial
from mhpatchcore.bank import build_bank
from mhpatchcore.bank.patches import Patches, Stream, grid_origin
from mhpatchcore.config import Config
from mhpatchcore.errors import ImageError
from mhpatchcore.evaluation.metrics import auroc
from mhpatchcore.evaluation.pixel_metrics import PixelMetrics
from mhpatchcore.fitting.extraction import Chunk, mixed_chunks
from mhpatchcore.fitting.passes import reduction_of, whitening_by
from mhpatchcore.inputs.datasets import read_mask
from mhpatchcore.metric.distances import search_queries, search_targets
from mhpatchcore.metric.moments import Moments
from mhpatchcore.runtime.arrays import Array, Floats, Mask
from mhpatchcore.runtime.parallel import available_cores, one_blas_thread, ordered_map
from mhpatchcore.scoring.maps import original_map
from mhpatchcore.scoring.rules import PatchScores, Scorer

TOP_SHARE = 0.01


@dataclass(frozen=True)
class Quality:
    """Image AUROC, pixel AUROC and AUPRO (NaN without masks), rows and dimensions of the bank.

    `found` is the image AUROC where a defective image counts by what is on its defect alone (NaN without masks). An
    image score may also be high for another reason, such as a background that differs between good and defective
    images: whatever raises `image` and lowers `found` does not find defects.
    """

    image: float
    pixel: float
    aupro: float
    found: float
    rows: int
    k: int


def judge(data: Descriptors, trial: Trial, order: Array | None = None) -> Quality:
    """Fit the trial on the training rows (in the given order of images) and score the test rows."""
    images = np.arange(data.n_train) if order is None else order
    config, workers = trial.config, available_cores()
    chunks = [
        tuple(int(i) for i in images[start : start + config.chunk_images])
        for start in range(0, len(images), config.chunk_images)
    ]
    mixed = mixed_chunks(chunks, config)

    def rows(chunk: tuple[int, ...]) -> Array:
        return np.concatenate([data.rows(data.train, i) for i in chunk])

    with one_blas_thread():
        parts = ordered_map(lambda chunk: Moments.of(rows(chunk)), chunks, workers)
        moments = Moments.of_all(parts, rows(chunks[0]).shape[1])
        reduction = reduction_of(moments.leading(moments.d - 2 * data.place), config)
        whitening = whitening_by(
            moments, reduction, config, lambda: (Chunk(chunk, rows(chunk)) for chunk in chunks)
        )

        def read(index: int) -> Patches:
            raw = rows(mixed[index])
            return Patches(whitening(raw), raw, grid_origin(mixed[index], data.grid))

        bank = build_bank(Stream(read, len(mixed), workers), config)
        scorer = Scorer(bank.z, data.grid, config)

        def score(index: int) -> PatchScores:
            scored = _score(whitening(data.rows(data.test, index)), scorer, trial)
            if not data.mirrored:
                return scored
            return _average(scored, _score(whitening(data.rows(data.mirrored, index)), scorer, trial))

        scored = list(ordered_map(score, range(len(data.dataset.test)), workers))
    labels = np.array([sample.is_anomalous for sample in data.dataset.test])
    image = auroc(labels, np.array([one.score for one in scored]))
    return Quality(image, *by_masks(data, scored, config), len(bank), whitening.k)


def _score(z: Floats, scorer: Scorer, trial: Trial) -> PatchScores:
    scored = scorer(z)
    if trial.rule == "knn":
        distances = search_queries(z) @ search_targets(scorer.bank).T
        for_image, for_map = (_mean_of_three(d) for d in (distances * scorer.weights, distances))
        peaks = scorer.map_peak(for_image), scorer.map_peak(for_map)
        return PatchScores(for_map.reshape(scorer.grid), for_image.reshape(scorer.grid), *peaks)
    if trial.rule == "top":
        top = np.sort(scored.nearest, axis=None)[-max(1, round(TOP_SHARE * scored.nearest.size)) :]
        return replace(scored, score=float(top.mean()))
    return scored


def _mean_of_three(distances: Floats) -> Floats:
    """The mean of the three least distances in each row of (n, K)."""
    least: Floats = np.maximum(np.partition(distances, 3, axis=1)[:, :3], 0).mean(axis=1)
    return least


def _average(scored: PatchScores, mirrored: PatchScores) -> PatchScores:
    """Of an image and its mirror image."""
    heat, nearest = (scored.a + mirrored.a[:, ::-1]) / 2, (scored.nearest + mirrored.nearest[:, ::-1]) / 2
    return replace(scored, a=heat, nearest=nearest, score=(scored.score + mirrored.score) / 2)


def by_masks(data: Descriptors, scored: list[PatchScores], config: Config) -> tuple[float, float, float]:
    """Pixel AUROC, AUPRO and `found` over the original images; unusable masks are passed over, as in an evaluation."""
    if not data.dataset.has_masks:
        return float("nan"), float("nan"), float("nan")
    metrics, labels, peaks = PixelMetrics(), [], []
    for sample, one in zip(data.dataset.test, scored, strict=True):
        if sample.is_anomalous and not sample.mask:
            continue
        with Image.open(sample.path) as image:
            where = config.preprocessing.geometry(image.height, image.width)
        whole = np.ones((where.height, where.width), bool)
        try:
            mask = read_mask(sample.mask, *whole.shape) if sample.mask else ~whole
        except ImageError:
            continue
        shown, judged = (
            original_map(a, config.size, config.size, config.sigma, where) for a in (one.a, one.nearest)
        )
        metrics.update(shown, mask)
        labels.append(sample.is_anomalous)
        peaks.append(judged[_grown(mask, data.grid) if sample.is_anomalous else whole].max(initial=0))
    result = metrics.result()
    return result.auroc, result.aupro, auroc(np.array(labels), np.array(peaks))


def _grown(mask: Mask, grid: tuple[int, int]) -> Mask:
    """The mask (H, W) with all that is within one patch of it."""
    patch = (mask.shape[0] // grid[0], mask.shape[1] // grid[1])
    grown: Mask = maximum_filter(mask, (2 * patch[0] + 1, 2 * patch[1] + 1))
    return grown
