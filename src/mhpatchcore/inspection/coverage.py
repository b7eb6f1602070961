"""How well the bank covers the patches it was made from: what is left of their distance to the nearest row."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from mhpatchcore.bank.patches import Patches
from mhpatchcore.config import Config
from mhpatchcore.fitting.calibrating import Banked
from mhpatchcore.fitting.execution import Execution
from mhpatchcore.fitting.plan import StoredImage, cut, images_at_once, views_at
from mhpatchcore.fitting.store import Store
from mhpatchcore.fitting.tasks import load_patches, put_metric, put_patches, whitened
from mhpatchcore.metric.distances import distances_to_nearest
from mhpatchcore.runtime.arrays import Floats

LEVELS = (0.5, 0.9, 0.99, 1.0)


@dataclass(frozen=True, eq=False)
class Coverage:
    """Quantiles (chunks, len(LEVELS)) of the squared distances from a chunk's patches to their nearest bank row.

    `images` (chunks,) counts the training images of each chunk, in the order in which they were read.
    """

    images: tuple[int, ...]
    quantiles: Floats

    def to_json(self) -> dict[str, Any]:
        return {"levels": list(LEVELS), "images": list(self.images), "quantiles": self.quantiles.tolist()}


def measure_coverage(
    store: Store, images: Sequence[StoredImage], bank: Banked, config: Config, execution: Execution
) -> Coverage:
    """Compare all training patches with the bank, at the first scale."""
    metric = put_metric(store, bank.head.whitening)
    rows = put_patches(store, Patches(bank.head.bank, bank.origin))
    chunks = cut(images, images_at_once(config))
    found = []
    with execution.phase("coverage", len(images)) as advance:
        done = 0
        task = partial(_residuals, store, metric, rows, config.chunk_images)
        for chunk, quantiles in zip(chunks, execution.runs_on.map(task, chunks), strict=True):
            found.append(quantiles)
            done += len(chunk)
            advance(done)
    return Coverage(tuple(map(len, chunks)), np.array(found))


def _residuals(store: Store, metric: str, rows: str, views: int, chunk: tuple[StoredImage, ...]) -> Floats:
    """Of a chunk of images, of which so many views are compared at a time."""
    bank = load_patches(store, rows).z
    distances = [
        distances_to_nearest(whitened(store, metric, some).z, bank) for some in cut(views_at(0, chunk), views)
    ]
    quantiles: Floats = np.quantile(np.concatenate(distances), LEVELS).astype(np.float32)
    return quantiles
