"""Descriptors of a category, computed once per backbone and view and kept on disk as float16."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from mhpatchcore import backbone as backbones
from mhpatchcore.arrays import Array
from mhpatchcore.config import Config
from mhpatchcore.datasets import Dataset, load_dataset
from mhpatchcore.extraction import stored_descriptors
from mhpatchcore.images import load_view
from mhpatchcore.parallel import available_cores, ordered_map


@dataclass(frozen=True)
class Descriptors:
    """Rows of the training images (n, h·w, d) and of the test images (m, h·w, d), as memory maps."""

    dataset: Dataset
    train: Array
    test: Array
    grid: tuple[int, int]


def load_descriptors(
    folder: Path, config: Config, weights: str | None, cache: Path, limit: int | None
) -> Descriptors:
    """From the cache, or through the backbone; `limit` takes a fixed subset of the training images."""
    dataset = load_dataset(folder)
    if limit and limit < len(dataset.train):
        dataset = dataset.subset(limit)
    network = backbones.load(
        config.backbone,
        weights=weights,
        height=config.size,
        width=config.size,
        layers=config.layers,
        descriptor=config.descriptor,
        threads=1,
    )
    what = [str(folder), network.graph_sha256, config.resize, len(dataset.train)]
    key = hashlib.sha256(json.dumps(what).encode()).hexdigest()[:16]
    arrays = []
    for split, paths in (("train", dataset.train), ("test", [sample.path for sample in dataset.test])):
        path = cache / f"{dataset.name}-{split}-{key}.npy"
        if not path.is_file():
            cache.mkdir(parents=True, exist_ok=True)
            shape = (len(paths), network.patches_per_image, network.info.dim)
            out = np.lib.format.open_memmap(path.with_suffix(".part"), "w+", np.float16, shape)

            def extract(image: Path) -> Array:
                return stored_descriptors([load_view(image, config.preprocessing)[0]], network, config)

            for i, rows in enumerate(ordered_map(extract, paths, available_cores())):
                out[i] = rows
            out.flush()
            path.with_suffix(".part").rename(path)
        arrays.append(np.load(path, mmap_mode="r"))
    return Descriptors(dataset, arrays[0], arrays[1], network.info.grid)
