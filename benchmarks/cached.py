"""Descriptors of normal images, computed once and read by as many fits as a study needs."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from mhpatchcore import backbone as backbones
from mhpatchcore.backbone.session import Backbone
from mhpatchcore.config import Config
from mhpatchcore.fitting.extraction import Chunk, Execution, Extraction, stored_descriptors
from mhpatchcore.inputs.images import ImageLike, load_view
from mhpatchcore.runtime.arrays import Array
from mhpatchcore.runtime.parallel import available_cores, ordered_map


class CachedExtraction(Extraction):
    """The images `taken` of descriptors (h·w, d) by number, for `fitting.learn`."""

    def __init__(
        self,
        descriptors: Array | Mapping[int, Array],
        taken: Sequence[int],
        backbone: Backbone,
        config: Config,
    ) -> None:
        super().__init__([], taken, backbone, config, Execution(spool="none"))
        self.descriptors = descriptors

    def _extract(self, members: Sequence[int], warn: object) -> Chunk:
        return Chunk(tuple(members), np.concatenate([self.descriptors[i] for i in members]))


def network(config: Config, weights: str | None = None) -> Backbone:
    size = config.size
    return backbones.load(
        config.backbone,
        weights=weights,
        height=size,
        width=size,
        layers=config.layers,
        place=config.place > 0,
        threads=1,
    )


def cached_descriptors(
    images: Sequence[ImageLike],
    name: str,
    backbone: Backbone,
    config: Config,
    cache: Path,
    mirror: bool = False,
) -> Array:
    """Descriptors (n, h·w, d) as a memory map in the folder `cache`; `name` tells sets of arrays apart."""
    files = [str(image) for image in images if not isinstance(image, np.ndarray)]
    what = [name, len(images), files, backbone.graph_sha256, config.resize, config.stored_as, mirror]
    key = hashlib.sha256(json.dumps(what).encode()).hexdigest()
    path = cache / f"{Path(name).name}-{key[:16]}.npy"
    if not path.is_file():
        cache.mkdir(parents=True, exist_ok=True)
        shape = (len(images), backbone.patches_per_image, backbone.info.columns)
        out = np.lib.format.open_memmap(path.with_suffix(".part"), "w+", config.stored_as, shape)

        def extract(image: ImageLike) -> Array:
            view = load_view(image, config.preprocessing)[0]
            return stored_descriptors([view[:, ::-1] if mirror else view], backbone, config)

        for i, rows in enumerate(ordered_map(extract, images, available_cores())):
            out[i] = rows
        out.flush()
        path.with_suffix(".part").rename(path)
    result: Array = np.load(path, mmap_mode="r")
    return result
