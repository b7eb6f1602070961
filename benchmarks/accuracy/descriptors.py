"""Descriptors of a category, computed once per backbone and view and kept on disk as they would be spooled."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import numpy as np

from benchmarks.accuracy.trials import Trial
from benchmarks.cached import cached_descriptors
from mhpatchcore import backbone as backbones
from mhpatchcore.backbone.descriptors import place_columns
from mhpatchcore.backbone.session import Backbone
from mhpatchcore.config import Config
from mhpatchcore.inputs.datasets import Dataset, load_dataset
from mhpatchcore.inputs.images import spread
from mhpatchcore.runtime.arrays import Array


@dataclass(frozen=True)
class Source:
    """Where descriptors come from and are kept: a weights file per backbone, a cache folder, limits of images."""

    weights: dict[str, str]
    cache: Path
    limit: int | None = None
    tests: int | None = None


@dataclass(frozen=True)
class Descriptors:
    """Training and test images as memory maps (n, h·w, d), one for each backbone; `mirrored` are the test images."""

    dataset: Dataset
    grid: tuple[int, int]
    train: tuple[Array, ...]
    test: tuple[Array, ...]
    mirrored: tuple[Array, ...]
    scaling: str
    place: bool

    @property
    def n_train(self) -> int:
        return len(self.train[0])

    def rows(self, images: tuple[Array, ...], index: int) -> Array:
        """Descriptors (h·w, Σd) of one image, backbones side by side and scaled; with their places, if those count."""
        parts = [maps[index] for maps in images]
        if len(parts) > 1:
            parts = [part / scale for part, scale in zip(parts, self._scales, strict=True)]
        rows = np.concatenate(parts, axis=1)
        if self.scaling == "l2":
            rows = rows / np.maximum(np.linalg.norm(rows.astype(np.float32), axis=1, keepdims=True), 1e-6)
        return np.concatenate([rows, place_columns(self.grid)], axis=1) if self.place else rows

    @cached_property
    def _scales(self) -> list[np.float32]:
        """Root mean square of each backbone's descriptors of the first image."""
        return [np.sqrt(np.mean(np.square(maps[0], dtype=np.float32))) for maps in self.train]


def load_descriptors(folder: Path, trial: Trial, source: Source) -> Descriptors:
    """From the cache, or through the backbones."""
    dataset = load_dataset(folder)
    if source.limit and source.limit < len(dataset.train):
        dataset = dataset.subset(source.limit)
    if source.tests:
        dataset = replace(
            dataset, test=tuple(dataset.test[i] for i in spread(len(dataset.test), source.tests))
        )
    networks = [
        _network(name, trial.config, source) for name in (trial.config.backbone, trial.second) if name
    ]
    test = [sample.path for sample in dataset.test]

    def load(split: str, paths: Sequence[Path], mirror: bool = False) -> tuple[Array, ...]:
        name = f"{dataset.name}-{split}"
        return tuple(
            cached_descriptors(paths, name, net, trial.config, source.cache, mirror) for net in networks
        )

    train = load("train", dataset.train)
    if trial.flips == "train":
        pairs = zip(train, load("train", dataset.train, mirror=True), strict=True)
        train = tuple(np.concatenate(pair) for pair in pairs)
    mirrored = load("test", test, mirror=True) if trial.flips == "test" else ()
    return Descriptors(
        dataset,
        networks[0].info.grid,
        train,
        load("test", test),
        mirrored,
        trial.scaling,
        trial.config.place > 0,
    )


def _network(name: str, config: Config, source: Source) -> Backbone:
    own = name == config.backbone
    return backbones.load(
        name,
        weights=source.weights.get(name),
        height=config.size,
        width=config.size,
        layers=config.layers if own else (),
        descriptor=config.descriptor if own else "",
        threads=1,
    )
