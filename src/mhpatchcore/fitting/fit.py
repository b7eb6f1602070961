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

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from math import nan
from pathlib import Path
from typing import NamedTuple

import numpy as np

from mhpatchcore import backbone as backbones
from mhpatchcore.backbone.session import Backbone
from mhpatchcore.backbone.stored import StoredImage
from mhpatchcore.config import Config, Size
from mhpatchcore.errors import UserError
from mhpatchcore.fitting.banking import bank_at, load_metric, load_patches, metric_at, raw_rows_of
from mhpatchcore.fitting.budget import within_budget
from mhpatchcore.fitting.calibrating import banked, calibration_of, held_out_images
from mhpatchcore.fitting.checks import (
    Coverage,
    ImageChecks,
    Ranked,
    Suspect,
    copies_to_try,
    measure_coverage,
    named_suspects,
    rank_images,
    with_chosen_copies,
)
from mhpatchcore.fitting.execution import Execution
from mhpatchcore.fitting.extraction import Extraction, extract, load_network, number_of_views
from mhpatchcore.fitting.storekeeping import keep_within, opened_store
from mhpatchcore.inputs.checks import normals_among, odd_images, refuse_defects, seen_headers
from mhpatchcore.inputs.files import absolute_name
from mhpatchcore.inputs.loading import MEASURES
from mhpatchcore.inputs.sources import Gathered, ImageLike, Images, gather, spread
from mhpatchcore.inputs.views import STRIDE, shape_like
from mhpatchcore.inputs.window import learnt_window
from mhpatchcore.model.duplicates import SIDE, near_duplicates
from mhpatchcore.model.file import check_can_be_listed
from mhpatchcore.model.history import checked_product, event, product_of
from mhpatchcore.model.value import Model, Scale
from mhpatchcore.runtime.parallel import one_blas_thread
from mhpatchcore.runtime.system import give_back
from mhpatchcore.scoring.local import spacing_weights
from mhpatchcore.scoring.score import load_head

ASPECT_IMAGES = 100  # whose shapes decide the aspect of the views


class Fit(NamedTuple):
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
    config = config.with_changes(augment=copies_to_try(config, len(images)))
    execution = within_budget(execution, networks, config, images)

    ranking, coverage, excluded = list[Ranked](), None, set[int]()
    with extracted(images, networks, config, execution) as extraction:
        extraction = with_chosen_copies(extraction)
        model = learn(extraction, networks, names)
        if checks.rank or checks.exclude:
            ranking = rank_images(extraction, [banked(scale, model.config) for scale in model.scales])
            excluded = {one.image for one in ranking[: checks.to_exclude(len(extraction.learnt))]}
        if excluded:
            kept = tuple(one for i, one in enumerate(names) if i not in excluded)
            extraction = extraction.without(excluded)
            model = learn(extraction, networks, kept)
        if checks.coverage:
            coverage = measure_coverage(extraction, banked(model.scales[0], model.config))

    model = replace(
        model,
        history=(event("fit", given.source, model.n_learnt, model.n_learnt, config.false_alarm),),
        excluded=tuple(names[i] for i in sorted(excluded)),
        product=product or product_of(given.source),
    )
    suspects = named_suspects(ranking, images, names, excluded)
    return Fit(model, suspects, coverage, given.passed_over)


@contextmanager
def extracted(
    images: Sequence[ImageLike],
    backbones: Sequence[Backbone],
    config: Config,
    execution: Execution,
    previous: Sequence[Model] = (),
    representative: bool = True,
) -> Iterator[Extraction]:
    """The descriptors of all images, for as long as the block lasts; new ones are numbered behind `previous` ones.

    Within the block BLAS uses one thread, as every pass of a fit needs it.
    """
    first = sum(len(one.hashes) for one in previous)
    sources = dict(enumerate(images, start=first))
    held_out = held_out_images(list(sources), config, previous) if representative else ()
    counts = number_of_views(images, config)
    expected = 2 * sum(n * backbone.info.stored for n, backbone in zip(counts, backbones, strict=True))
    folder = None if execution.store is None else absolute_name(execution.store)  # the same for all workers
    with one_blas_thread(), opened_store(folder, expected) as store:
        try:
            if execution.runs_on.remote:
                sources = {
                    i: absolute_name(source) if isinstance(source, str | Path) else source
                    for i, source in sources.items()
                }
            execution.runs_on.check(store, sources[first] if sources else None, execution.warn)
            extraction = extract(sources, held_out, backbones, config, execution, store)
            extraction = replace(extraction, previous=previous, representative=representative)
            check_unknown(extraction, sources)
            keep_within(store, execution.store_limit, execution.warn)  # by now it is known what is needed
            yield extraction
            keep_within(store, execution.store_limit, execution.warn)
        finally:
            for loaded in (load_network, load_metric, load_head, load_patches):
                loaded.forget()
            give_back()


def check_unknown(extraction: Extraction, sources: Mapping[int, ImageLike]) -> None:
    """Refuse images that a model has learnt from: learnt twice they weigh too much, and they score too low.

    There is a warning about images that only look like learnt ones: they may be the same, saved again.
    """
    previous, images = extraction.previous, extraction.images
    known = {hash_ for one in previous for hash_ in one.hashes}

    def named(image: StoredImage) -> str:
        source = sources[image.image]
        return "a given array" if isinstance(source, np.ndarray) else str(source)

    for one in images:
        if one.sha256 in known:
            raise UserError(f"the model has learnt from {named(one)} already: give images that are new to it")
    if images and previous:
        seen = np.concatenate([one.thumbnails for one in previous])
        alike = near_duplicates(np.stack([one.thumbnail for one in images]), seen)
        if len(alike):
            extraction.execution.warn(
                f"{len(alike)} of {len(images)} images look as if the model had learnt from them already, "
                f"for example {named(images[alike[0]])}"
            )


def learn(extraction: Extraction, backbones: Sequence[Backbone], images: tuple[str, ...]) -> Model:
    """The model of what was extracted, on top of the previous models, whose images are the first of `images`."""
    config, old = extraction.config, extraction.previous
    scales = tuple(_learn_scale(extraction, *one) for one in enumerate(backbones))
    calibration = calibration_of(extraction, [banked(scale, config) for scale in scales])
    new = len(images) - sum(len(one.images) for one in old)  # some of which could not be read
    hashes = [*(hash_ for one in old for hash_ in one.hashes), *[""] * new]
    nothing = np.zeros((new, SIDE**2), np.float16), np.full((new, len(MEASURES)), nan, np.float32)
    thumbnails = np.concatenate([*(one.thumbnails for one in old), nothing[0]])
    measures = np.concatenate([*(one.measures for one in old), nothing[1]])
    for one in extraction.images:
        hashes[one.image] = one.sha256
        thumbnails[one.image], measures[one.image] = one.thumbnail, one.measures
    n_learnt = sum(one.n_learnt for one in old) + len(extraction.learnt)
    return Model(config, scales, calibration, images, tuple(hashes), thumbnails, measures, n_learnt)


def _learn_scale(extraction: Extraction, scale: int, backbone: Backbone) -> Scale:
    execution = extraction.execution
    metric = metric_at(extraction, scale)
    give_back()
    with execution.phase("bank", len(extraction.learnt)) as phase:
        bank = bank_at(extraction, metric, scale, phase)
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
    networks = [_network(config, size, images, weights) for size in config.sizes]
    info = networks[0].info
    sizes = [
        Size(one.info.height, one.info.width, one.info.pool, size.zoom)
        for one, size in zip(networks, config.sizes, strict=True)
    ]
    by_network = config.reduction == "auto"
    reduction = backbones.reduction_of(config.backbone) if by_network else config.reduction
    decided = {name: getattr(info, name) for name in ("layers", "descriptor", "precision")}
    return tuple(networks), config.with_changes(sizes=sizes, reduction=reduction, **decided)


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


def _network(config: Config, size: Size, images: Sequence[ImageLike], weights: str | Path | None) -> Backbone:
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
    if config.precision == "fp32":
        return network
    from mhpatchcore.backbone.quantising import at_precision  # the quantiser takes half a second to import

    view = replace(config.views[0], height=network.info.height, width=network.info.width, zoom=size.zoom)
    return at_precision(network, config.precision, images, view, config.roi)
