"""The first pass: images become descriptors in the store, chunk by chunk, and their moments are added up."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TypeVar

import numpy as np

from mhpatchcore.backbone.session import Backbone
from mhpatchcore.config import Config
from mhpatchcore.errors import ImageError, UserError
from mhpatchcore.fitting import describing, tasks
from mhpatchcore.fitting.calibrating import held_out_images
from mhpatchcore.fitting.dask_executor import DaskExecutor
from mhpatchcore.fitting.describing import Chunk, Extracted, Job
from mhpatchcore.fitting.duplicates import near_duplicates
from mhpatchcore.fitting.execution import Execution
from mhpatchcore.fitting.plan import StoredImage, cut, images_at_once, make_plan, runs_of, turns_of
from mhpatchcore.fitting.previous import Previous
from mhpatchcore.fitting.store import Store
from mhpatchcore.fitting.storekeeping import keep_within, opened_store
from mhpatchcore.fitting.summing import MOMENTS_FAN_IN, ScaleMoments, run_moments, total_moments
from mhpatchcore.inputs.decode import size_of
from mhpatchcore.inputs.files import absolute_name
from mhpatchcore.inputs.sources import ImageLike
from mhpatchcore.inputs.turns import AUTO, PLAIN
from mhpatchcore.runtime.arrays import Floats
from mhpatchcore.runtime.parallel import one_blas_thread

Told = TypeVar("Told")


@dataclass(frozen=True, eq=False)
class Extraction:
    """The images that could be read, where they are in the store, what tells them apart, and moments of each scale."""

    store: Store
    learnt: tuple[StoredImage, ...]
    held_out: tuple[StoredImage, ...]
    hashes: dict[int, str]
    thumbnails: dict[int, Floats]
    measures: dict[int, Floats]
    moments: ScaleMoments


@contextmanager
def extracted(
    images: Sequence[ImageLike],
    backbones: Sequence[Backbone],
    config: Config,
    execution: Execution,
    previous: Sequence[Previous] = (),
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
    with one_blas_thread(), opened_store(_store_folder(execution), expected) as store:
        try:
            if isinstance(execution.runs_on, DaskExecutor):
                sources = {i: absolute_source(source) for i, source in sources.items()}
                execution.runs_on.check(store, sources[first] if sources else None, execution.warn)
            extraction = extract(sources, held_out, backbones, config, execution, store)
            check_unknown(extraction, sources, previous, execution.warn)
            keep_within(store, execution.store_limit, execution.warn)  # by now it is known what is needed
            yield extraction
            keep_within(store, execution.store_limit, execution.warn)
        finally:
            tasks.forget()


def _store_folder(execution: Execution) -> Path | None:
    """Where the store is kept, by a name that is the same for all workers."""
    return None if execution.store is None else Path(absolute_name(execution.store))


def absolute_source(source: ImageLike) -> ImageLike:
    """An image by a name that leads to it from any working folder."""
    return absolute_name(source) if isinstance(source, str | Path) else source


def number_of_views(images: Sequence[ImageLike], config: Config) -> list[int]:
    """How many views these images have at each scale; those whose size cannot be read count as one."""
    turns = len(turns_of(config))
    if not config.tiled:
        return [turns * len(images)] * len(config.sizes)
    sizes = [size_of(image) for image in images]
    return [turns * sum(view.count(*size) if size else 1 for size in sizes) for view in config.views]


def extract(
    sources: dict[int, ImageLike],
    held_out: Sequence[int],
    backbones: Sequence[Backbone],
    config: Config,
    execution: Execution,
    store: Store,
) -> Extraction:
    """Run the networks over everything; moments of all patches that are learnt from."""
    plan = make_plan(list(sources), held_out, config)
    networks = tuple(tasks.put_network(store, backbone) for backbone in backbones)
    job = Job(
        store,
        config.views,
        networks,
        config.roi,
        block=config.chunk_images,
        batch=execution.batch,
        skip_broken=execution.skip_broken,
        learns=config.augment != AUTO,  # otherwise it is not known yet what is learnt
        turns=turns_of(config),
    )
    learnt, held = (
        runs_of(
            [tuple((i, sources[i]) for i in chunk) for chunk in chunks], MOMENTS_FAN_IN, execution.runs_on
        )
        for chunks in (plan.learnt, plan.held_out)
    )
    with execution.phase("extract", len(sources)) as advance:
        told = _Told(execution, advance)
        moments = total_moments(
            (result.moments for result in told.of(job, learnt)), [level for level, _ in learnt]
        )
        learnt_images = tuple(told.images)
        held_images = tuple(
            image for one in told.of(replace(job, learns=False, turns=(PLAIN,)), held) for image in one.images
        )
    tasks.forget_networks()
    if sources and not told.images:
        raise ImageError("none of the images could be read: check the folder")
    return Extraction(store, learnt_images, held_images, told.hashes, told.thumbnails, told.measures, moments)


class _Told:
    """What the tasks of the first pass have told so far, in the order of the images."""

    def __init__(self, execution: Execution, advance: Callable[[int], None]) -> None:
        self._execution, self._advance, self._done = execution, advance, 0
        self.images: list[StoredImage] = []
        self.hashes: dict[int, str] = {}
        self.thumbnails: dict[int, Floats] = {}
        self.measures: dict[int, Floats] = {}

    def of(self, job: Job, runs: Sequence[tuple[int, Sequence[Chunk]]]) -> Iterator[Extracted]:
        """Carry out the tasks over some runs of chunks; what each has told."""
        execution = self._execution
        results = execution.runs_on.map(partial(describing.extract, job), [run for _, run in runs])
        for (_, run), result in zip(runs, results, strict=True):
            for message in result.skipped:
                execution.warn(message)
            numbers = [image.image for image in result.images]
            self.images += result.images
            self.hashes.update(zip(numbers, result.hashes, strict=True))
            self.thumbnails.update(zip(numbers, result.thumbnails, strict=True))
            self.measures.update(zip(numbers, result.measures, strict=True))
            if execution.telemetry is not None:
                execution.telemetry.move(result.moments_seconds, "extract", "moments")
                execution.telemetry.stored("extract", result.stored)
            yield result
            self._done += sum(map(len, run))
            self._advance(self._done)


def without(extraction: Extraction, left_out: set[int], config: Config, execution: Execution) -> Extraction:
    """As if some images had never been there: the others are numbered and cut into chunks anew."""
    everyone = (*extraction.learnt, *extraction.held_out)
    # broken images keep their number: they are gone from the store, not from the list of names
    number = {
        one.image: one.image - sum(out < one.image for out in left_out)
        for one in everyone
        if one.image not in left_out
    }

    def renumbered(images: Sequence[StoredImage]) -> tuple[StoredImage, ...]:
        return tuple(one.renumbered(number[one.image]) for one in images if one.image in number)

    learnt = renumbered(extraction.learnt)
    moments = moments_over(extraction.store, learnt, config, execution)

    def kept(told: dict[int, Told]) -> dict[int, Told]:
        return {number[old]: one for old, one in told.items() if old in number}

    return Extraction(
        extraction.store,
        learnt,
        renumbered(extraction.held_out),
        kept(extraction.hashes),
        kept(extraction.thumbnails),
        kept(extraction.measures),
        moments,
    )


def moments_over(
    store: Store, images: Sequence[StoredImage], config: Config, execution: Execution
) -> ScaleMoments:
    """Moments of images that are in the store, the same as if these had just been extracted."""
    with execution.phase("moments", len(images)):
        runs = runs_of(cut(images, images_at_once(config)), MOMENTS_FAN_IN, execution.runs_on)
        task = partial(run_moments, store, config.chunk_images)
        return total_moments(
            execution.runs_on.map(task, [run for _, run in runs]), [level for level, _ in runs]
        )


def check_unknown(
    extraction: Extraction,
    sources: dict[int, ImageLike],
    previous: Sequence[Previous],
    warn: Callable[[str], None],
) -> None:
    """Refuse images that a model has learnt from: learnt twice they weigh too much, and they score too low.

    Images that only look like learnt ones are told: they may be the same, saved again.
    """
    known = {hash_ for one in previous for hash_ in one.hashes}
    images = [image.image for image in (*extraction.learnt, *extraction.held_out)]
    for image in images:
        if extraction.hashes[image] in known:
            raise UserError(
                f"the model has learnt from {_named(sources[image])} already: give images that are new to it"
            )
    if images and previous:
        seen = np.concatenate([one.thumbnails for one in previous])
        alike = near_duplicates(np.stack([extraction.thumbnails[image] for image in images]), seen)
        if len(alike):
            warn(
                f"{len(alike)} of {len(images)} images look as if the model had learnt from them already, "
                f"for example {_named(sources[images[alike[0]]])}"
            )


def _named(source: ImageLike) -> str:
    return "a given array" if isinstance(source, np.ndarray) else str(source)
