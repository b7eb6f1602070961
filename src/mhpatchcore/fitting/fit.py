"""A fit, from images to a model: passes over the normal images, in chunks of a fixed number of images.

    load        images and networks (`loading.py`), and how the work fits into memory (`budget.py`)
    extract     images → descriptors → store, and their moments (`extraction.py`)
    metric      moments → reduction, shrinkage, whitening (`metric.py`)
    bank        store → whitened patches → bank (`banking.py`)
    calibrate   each calibration image against the bank rows of the other images → threshold (`calibrating.py`)
    check       if asked for: images that stand apart are found, and left out (`checks.py`)

Every pass maps tasks over chunks and puts the results together in a fixed order. A model that grows is fitted in the
same way, only that it does not begin with nothing (`Previous`): moments go on from the old ones, old bank rows
compete with the new chunks, old calibration images are scored again by the patches that decided them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import nan
from pathlib import Path

import numpy as np

from mhpatchcore.backbone.session import Backbone
from mhpatchcore.backbone.stored import StoredImage
from mhpatchcore.calibration.threshold import Calibration
from mhpatchcore.config import Config
from mhpatchcore.fitting.augmenting import decided, to_be_tried
from mhpatchcore.fitting.banking import bank_at, raw_rows_of
from mhpatchcore.fitting.budget import within_budget
from mhpatchcore.fitting.calibrating import banked, calibration_of
from mhpatchcore.fitting.checks import (
    Coverage,
    ImageChecks,
    Suspect,
    measure_coverage,
    named_suspects,
    rank_images,
)
from mhpatchcore.fitting.execution import Execution
from mhpatchcore.fitting.extraction import Extraction, duplicate_groups, extracted, without
from mhpatchcore.fitting.loading import gather_normals, load_networks
from mhpatchcore.fitting.metric import metric_at
from mhpatchcore.inputs.camera import MEASURES
from mhpatchcore.inputs.sources import ImageLike, Images
from mhpatchcore.model.duplicates import SIDE
from mhpatchcore.model.file import check_can_be_listed
from mhpatchcore.model.history import Event, event
from mhpatchcore.model.product import checked_product, product_of
from mhpatchcore.model.value import Model, Previous, Scale
from mhpatchcore.runtime.parallel import give_back
from mhpatchcore.scoring.known_defects import NO_DEFECTS, KnownDefects
from mhpatchcore.scoring.local import spacing_weights


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

    ranking, coverage, excluded = None, None, set[int]()
    with extracted(images, networks, config, execution) as extraction:
        extraction = decided(extraction)
        config = extraction.config
        fitted = learn(extraction, networks)
        if checks.ranks:
            banks = [banked(scale, config) for scale in fitted.scales]
            ranking = rank_images(extraction.store, extraction.learnt, banks, execution)
            excluded = set(ranking.images[: checks.to_exclude(len(extraction.learnt))])
        if excluded:
            extraction = without(extraction, excluded)
            fitted = learn(extraction, networks)
        if checks.coverage:
            bank = banked(fitted.scales[0], config)
            coverage = measure_coverage(extraction.store, extraction.learnt, bank, config, execution)

    learnt = fitted.learnt
    model = fitted.model(
        config,
        images=tuple(one for i, one in enumerate(names) if i not in excluded),
        history=(event("fit", given.source, learnt, learnt, config.false_alarm),),
        excluded=tuple(names[i] for i in sorted(excluded)),
        product=product or product_of(given.source),
    )
    suspects = () if ranking is None else named_suspects(ranking, images, names, excluded)
    return Fit(model, suspects, coverage, given.passed_over)


def grow(
    images: Sequence[ImageLike],
    backbones: Sequence[Backbone],
    config: Config,
    execution: Execution,
    previous: Sequence[Previous],
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
    previous: Sequence[Previous]

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
        thumbnails = np.zeros((len(images), SIDE**2), np.float16)
        measures = np.full((len(images), len(MEASURES)), nan, np.float32)
        hashes = [hash_ for one in self.previous for hash_ in one.hashes]
        thumbnails[: len(hashes)] = np.concatenate(
            [thumbnails[:0], *(one.thumbnails for one in self.previous)]
        )
        measures[: len(hashes)] = np.concatenate([measures[:0], *(one.measures for one in self.previous)])
        hashes += [""] * (len(images) - len(hashes))  # those of images that could not be read stay so
        for one in self.read:
            hashes[one.image], thumbnails[one.image] = one.sha256, one.thumbnail
            measures[one.image] = one.measures
        n_learnt = sum(one.learnt for one in self.previous) + self.learnt
        known = (images, tuple(hashes), thumbnails, measures, n_learnt)
        return Model(config, self.scales, self.calibration, *known, history, excluded, product, defects)


def learn(extraction: Extraction, backbones: Sequence[Backbone]) -> Fitted:
    """Metric, bank and threshold of what was extracted, on top of the previous models."""
    config, previous = extraction.config, extraction.previous
    scales = tuple(_learn_scale(extraction, *one) for one in enumerate(backbones))
    calibration = calibration_of(
        extraction.store,
        extraction.learnt,
        extraction.held_out,
        duplicate_groups(extraction, previous),
        [banked(scale, config) for scale in scales],
        config,
        extraction.execution,
        previous,
        extraction.representative,
    )
    return Fitted(scales, calibration, extraction.images, len(extraction.learnt), previous)


def _learn_scale(extraction: Extraction, scale: int, backbone: Backbone) -> Scale:
    execution = extraction.execution
    with execution.phase("moments", 1) as advance:
        metric = metric_at(extraction, scale)
        advance(1)
    give_back()
    with execution.phase("bank", len(extraction.learnt)) as advance:
        bank = bank_at(extraction, metric, scale, advance)
        give_back()
        raw = raw_rows_of(bank, extraction, metric.whitening, scale, backbone.info.grid)
        weights = spacing_weights(metric.whitening(raw), execution.workers)
    return Scale(backbone, *metric, raw, bank.origin, weights)
