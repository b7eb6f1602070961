"""A fit, from images to a model: passes over the normal images, in chunks of a fixed number of images.

    load        images and networks, and how the work fits into memory (`budget.py`)
    extract     images → descriptors → store, and their moments (`extraction.py`)
    metric      moments → reduction, shrinkage, whitening (`banking.py`)
    bank        store → whitened patches → bank (`banking.py`)
    calibrate   each calibration image against the bank rows of the other images → threshold (`calibrating.py`)
    check       if asked for: images that stand apart are found, and left out (`checks.py`)

Every pass maps tasks over chunks and puts the results together in a fixed order. A model that grows is fitted in the
same way, only that it does not begin with nothing (`previous`): moments go on from the old ones, old bank rows
compete with the new chunks, old calibration images are scored again by the patches that decided them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import nan
from pathlib import Path

import numpy as np

from mhpatchcore import backbone as backbones
from mhpatchcore.backbone.session import Backbone
from mhpatchcore.backbone.stored import StoredImage
from mhpatchcore.calibration.threshold import Calibration
from mhpatchcore.config import Config, Size
from mhpatchcore.errors import UserError
from mhpatchcore.fitting.augmenting import decided, to_be_tried
from mhpatchcore.fitting.banking import bank_at, metric_at, raw_rows_of
from mhpatchcore.fitting.budget import within_budget
from mhpatchcore.fitting.calibrating import banked, calibration_of
from mhpatchcore.fitting.checks import (
    Coverage,
    ImageChecks,
    Ranked,
    Suspect,
    measure_coverage,
    named_suspects,
    rank_images,
)
from mhpatchcore.fitting.execution import Execution
from mhpatchcore.fitting.extraction import Extraction, extracted, without
from mhpatchcore.inputs.checks import normals_among, odd_images, refuse_defects, seen_headers
from mhpatchcore.inputs.loading import MEASURES
from mhpatchcore.inputs.sources import Gathered, ImageLike, Images, gather, spread
from mhpatchcore.inputs.views import STRIDE, shape_like
from mhpatchcore.inputs.window import learnt_window
from mhpatchcore.model.duplicates import SIDE
from mhpatchcore.model.file import check_can_be_listed
from mhpatchcore.model.history import Event, checked_product, event, product_of
from mhpatchcore.model.value import Model, Scale
from mhpatchcore.runtime.system import give_back
from mhpatchcore.scoring.known_defects import NO_DEFECTS, KnownDefects
from mhpatchcore.scoring.local import spacing_weights

ASPECT_IMAGES = 100  # whose shapes decide the aspect of the views


@dataclass(frozen=True, eq=False)
class Fit:
    """A model, and what was asked about its images: all of them by suspicion, and how well the bank covers them.

    `passed_over` are files among the images that are none.
    """

    model: Model
    suspects: tuple[Suspect, ...]
    coverage: Coverage | None
    passed_over: tuple[str, ...]


def fit(
    normals: Images,
    config: Config,
    checks: ImageChecks,
    execution: Execution,
    weights: str | Path | None = None,
    name: str | None = None,
    all_good: bool = False,
) -> Fit:
    """Learn a model from normal images; see `Detector.fit`."""
    product = None if name is None else checked_product(name)
    given = gather_normals(normals, config, execution, all_good)
    images, names = given.images, given.names
    check_can_be_listed(names)
    checks.to_exclude(len(images))  # too many are refused before the work
    networks, config = load_networks(config, images, weights)
    config = config.with_changes(augment=to_be_tried(config, len(images)))
    execution = within_budget(execution, networks, config, images)

    ranking, coverage, excluded = list[Ranked](), None, set[int]()
    with extracted(images, networks, config, execution) as extraction:
        extraction = decided(extraction)
        config = extraction.config
        fitted = learn(extraction, networks)
        if checks.ranks:
            banks = [banked(scale, config) for scale in fitted.scales]
            ranking = rank_images(extraction, banks)
            excluded = {one.image for one in ranking[: checks.to_exclude(len(extraction.learnt))]}
        if excluded:
            extraction = without(extraction, excluded)
            fitted = learn(extraction, networks)
        if checks.coverage:
            coverage = measure_coverage(extraction, banked(fitted.scales[0], config))

    learnt = fitted.learnt
    model = fitted.model(
        config,
        images=tuple(one for i, one in enumerate(names) if i not in excluded),
        history=(event("fit", given.source, learnt, learnt, config.false_alarm),),
        excluded=tuple(names[i] for i in sorted(excluded)),
        product=product or product_of(given.source),
    )
    suspects = named_suspects(ranking, images, names, excluded)
    return Fit(model, suspects, coverage, given.passed_over)


def grow(
    images: Sequence[ImageLike],
    backbones: Sequence[Backbone],
    config: Config,
    execution: Execution,
    previous: Sequence[Model],
    representative: bool = True,
) -> Fitted:
    """Learn from images on top of `previous` models.

    The threshold comes from old and new images, or from the old alone where the new ones are not `representative` of
    what comes.
    """
    with extracted(images, backbones, config, execution, previous, representative) as extraction:
        return learn(extraction, backbones)


@dataclass(frozen=True, eq=False)
class Fitted:
    """What was learnt from images, on top of `previous` models.

    `read` are the images that could be read, of which `learnt` were learnt from: all but the held-out ones.
    """

    scales: tuple[Scale, ...]
    calibration: Calibration
    read: tuple[StoredImage, ...]
    learnt: int
    previous: Sequence[Model]

    def model(
        self,
        config: Config,
        images: tuple[str, ...],
        history: tuple[Event, ...],
        excluded: tuple[str, ...],
        product: str,
        defects: KnownDefects = NO_DEFECTS,
    ) -> Model:
        """The model, of which the first `images` are those of the previous ones."""
        old = self.previous
        new = len(images) - sum(len(one.images) for one in old)  # some of which could not be read
        hashes = [*(hash_ for one in old for hash_ in one.hashes), *[""] * new]
        nothing = np.zeros((new, SIDE**2), np.float16), np.full((new, len(MEASURES)), nan, np.float32)
        thumbnails = np.concatenate([*(one.thumbnails for one in old), nothing[0]])
        measures = np.concatenate([*(one.measures for one in old), nothing[1]])
        for one in self.read:
            hashes[one.image] = one.sha256
            thumbnails[one.image], measures[one.image] = one.thumbnail, one.measures
        n_learnt = sum(one.n_learnt for one in old) + self.learnt
        known = (images, tuple(hashes), thumbnails, measures, n_learnt)
        return Model(config, self.scales, self.calibration, *known, history, excluded, product, defects)


def learn(extraction: Extraction, backbones: Sequence[Backbone]) -> Fitted:
    """Metric, bank and threshold of what was extracted, on top of the previous models."""
    scales = tuple(_learn_scale(extraction, *one) for one in enumerate(backbones))
    calibration = calibration_of(extraction, [banked(scale, extraction.config) for scale in scales])
    return Fitted(scales, calibration, extraction.images, len(extraction.learnt), extraction.previous)


def _learn_scale(extraction: Extraction, scale: int, backbone: Backbone) -> Scale:
    execution = extraction.execution
    metric = metric_at(extraction, scale)
    give_back()
    with execution.phase("bank", len(extraction.learnt)) as advance:
        bank = bank_at(extraction, metric, scale, advance)
        give_back()
        raw = raw_rows_of(bank, extraction, metric.whitening, scale, backbone.info.grid)
        weights = spacing_weights(metric.whitening(raw), execution.workers)
    return Scale(backbone, *metric, raw, bank.origin, weights)


def gather_normals(source: Images, config: Config, execution: Execution, all_good: bool = False) -> Gathered:
    """`gather`, for images of good parts.

    Of a whole data set the normal training images are taken, and defects and masks are refused by their names, unless
    `all_good` says that there are none. What else looks like a mistake is warned of.
    """
    given = gather(source, as_given=not config.shuffle)
    if not given.images:
        raise UserError("there are no images to learn from")
    if not all_good:
        given = normals_among(given, execution.warn)
        refuse_defects(given)
    for one in odd_images(seen_headers(given.images, given.names), config.roi, config.sees_whole):
        execution.warn(str(one))
    return given


def load_networks(
    config: Config, images: Sequence[ImageLike], weights: str | Path | None
) -> tuple[tuple[Backbone, ...], Config]:
    """The network for every scale, and the configuration with what images and network decide of it: sizes, window,
    layers, descriptor, reduction.
    """
    config = shaped(config, images).with_changes(window=learnt_window(images, config.window))
    networks = []
    for size in config.sizes:
        network = backbones.load(
            config.backbone,
            weights=weights,
            tag=config.tag,
            height=size.height,
            width=size.width,
            layers=config.layers,
            descriptor=config.descriptor,
            pool=size.pool,
            threads=1,
        )
        networks.append(_at_precision(network, size, images, config))
    info = networks[0].info
    sizes = [
        Size(one.info.height, one.info.width, one.info.pool, size.zoom)
        for one, size in zip(networks, config.sizes, strict=True)
    ]
    by_network = config.reduction == "auto"
    changed = config.with_changes(
        layers=info.layers,
        descriptor=info.descriptor,
        sizes=sizes,
        precision=info.precision,
        reduction=backbones.reduction_of(config.backbone) if by_network else config.reduction,
    )
    return tuple(networks), changed


def shaped(config: Config, images: Sequence[ImageLike]) -> Config:
    """The configuration with square views in the aspect of the images, unless it stretches, crops or tiles them."""
    if config.aspect == "stretch" or config.resize is not None:
        return config
    some = [images[i] for i in spread(len(images), ASPECT_IMAGES)]
    multiple, sizes = backbones.multiple_of(config.backbone), []
    for size in config.sizes:
        step = STRIDE if multiple == 1 else multiple * size.pool
        adapts = size.height == size.width and not size.zoom
        sides = shape_like(some, size.height, size.width, step) if adapts else size[:2]
        sizes.append(Size(*sides, size.pool, size.zoom))
    return config.with_changes(sizes=sizes)


def _at_precision(network: Backbone, size: Size, images: Sequence[ImageLike], config: Config) -> Backbone:
    if config.precision == "fp32":
        return network
    from mhpatchcore.backbone.quantising import at_precision  # the quantiser takes half a second to import

    view = replace(config.views[0], height=network.info.height, width=network.info.width, zoom=size.zoom)
    return at_precision(network, config.precision, images, view, config.roi)
