"""How well the bank covers the patches it was made from: what is left of their distance to the nearest row."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from mhpatchcore.fitting.extraction import Chunk, Extraction
from mhpatchcore.metric.distances import nearest_rows
from mhpatchcore.metric.whitening import Whitening
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


def measure_coverage(extraction: Extraction, whitening: Whitening, bank: Floats) -> Coverage:
    """Compare all training patches with the bank's whitened rows (K, k)."""

    def residuals(chunk: Chunk) -> tuple[int, Floats]:
        _, distances = nearest_rows(whitening(chunk.rows), bank)
        return len(chunk.images), np.quantile(distances, LEVELS).astype(np.float32)

    images, quantiles = zip(*extraction.again("coverage", residuals), strict=True)
    return Coverage(images, np.array(quantiles))
