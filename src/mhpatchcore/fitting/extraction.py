"""The first pass: images become descriptors in the store, chunk by chunk, and their moments are added up."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np

from mhpatchcore.backbone.session import Backbone
from mhpatchcore.backbone.stored import StoredImage
from mhpatchcore.config import Config
from mhpatchcore.errors import ImageError, UserError
from mhpatchcore.fitting import describing, tasks
from mhpatchcore.fitting.calibrating import held_out_images
from mhpatchcore.fitting.describing import Chunk, Job
from mhpatchcore.fitting.execution import Execution
from mhpatchcore.fitting.moments import MOMENTS_FAN_IN, ScaleMoments, moments_over, total_moments
from mhpatchcore.fitting.plan import make_plan, runs_of, turns_of
from mhpatchcore.fitting.storekeeping import keep_within, opened_store
from mhpatchcore.inputs.decode import size_of
from mhpatchcore.inputs.files import absolute_name
from mhpatchcore.inputs.sources import ImageLike
from mhpatchcore.inputs.turns import AUTO, PLAIN
from mhpatchcore.model.duplicates import SIDE, near_duplicate_groups, near_duplicates
from mhpatchcore.model.value import Previous
from mhpatchcore.runtime.arrays import Indices
from mhpatchcore.runtime.parallel import one_blas_thread
from mhpatchcore.runtime.store import Store


@dataclass(frozen=True, eq=False)
class Extraction:
    """What the later passes go by: the images that could be read, in the store, and moments of each scale of those that
    are learnt from; the settings, how work is carried out, and the models that grow.

    The threshold comes from old images alone where the new ones are not `representative` of what comes.
    """

    store: Store
    config: Config
    execution: Execution
    learnt: tuple[StoredImage, ...]
    held_out: tuple[StoredImage, ...]
    moments: ScaleMoments
    previous: Sequence[Previous] = ()
    representative: bool = True

    @property
    def images(self) -> tuple[StoredImage, ...]:
        """All images that could be read."""
        return *self.learnt, *self.held_out

    def learning(self, images: tuple[StoredImage, ...]) -> Extraction:
        """The same, but learning from these images of the store."""
        moments = moments_over(self.store, images, self.config, self.execution)
        return replace(self, learnt=images, moments=moments)


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
            if execution.runs_on.remote:
                sources = {i: absolute_source(source) for i, source in sources.items()}
            execution.runs_on.check(store, sources[first] if sources else None, execution.warn)
            extraction = extract(sources, held_out, backbones, config, execution, store)
            extraction = replace(extraction, previous=previous, representative=representative)
            check_unknown(extraction, sources)
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
    learnt, held = list[StoredImage](), list[StoredImage]()
    to_learn, to_hold_out = (
        runs_of(
            [tuple((i, sources[i]) for i in chunk) for chunk in chunks], MOMENTS_FAN_IN, execution.runs_on
        )
        for chunks in (plan.learnt, plan.held_out)
    )
    with execution.phase("extract", len(sources)) as advance:
        moments = total_moments(
            _moments_of_runs(job, to_learn, learnt, execution, advance), [level for level, _ in to_learn]
        )
        job = replace(job, learns=False, turns=(PLAIN,))
        rest = len(sources) - len(held_out)
        for _ in _moments_of_runs(job, to_hold_out, held, execution, lambda done: advance(rest + done)):
            pass
    tasks.forget_networks()
    if sources and not learnt and not held:
        raise ImageError("none of the images could be read: check the folder")
    return Extraction(store, config, execution, tuple(learnt), tuple(held), moments)


def _moments_of_runs(
    job: Job,
    runs: Sequence[tuple[int, Sequence[Chunk]]],
    images: list[StoredImage],
    execution: Execution,
    advance: Callable[[int], None],
) -> Iterator[ScaleMoments]:
    """Carry out the tasks over runs of chunks: the moments of each, while their `images` are collected."""
    done = 0
    results = execution.runs_on.map(partial(describing.extract, job), [run for _, run in runs])
    for (_, run), result in zip(runs, results, strict=True):
        for message in result.skipped:
            execution.warn(message)
        images += result.images
        if execution.telemetry is not None:
            execution.telemetry.move(result.moments_seconds, "extract", "moments")
            execution.telemetry.stored("extract", result.stored)
        yield result.moments
        done += sum(map(len, run))
        advance(done)


def without(extraction: Extraction, left_out: set[int]) -> Extraction:
    """As if some images had never been there: the others are numbered and cut into chunks anew."""
    # broken images keep their number: they are gone from the store, not from the list of names
    learnt, held_out = (
        tuple(
            one.renumbered(one.image - sum(out < one.image for out in left_out))
            for one in images
            if one.image not in left_out
        )
        for images in (extraction.learnt, extraction.held_out)
    )
    return replace(extraction, held_out=held_out).learning(learnt)


def check_unknown(extraction: Extraction, sources: dict[int, ImageLike]) -> None:
    """Refuse images that a model has learnt from: learnt twice they weigh too much, and they score too low.

    There is a warning about images that only look like learnt ones: they may be the same, saved again.
    """
    previous, images = extraction.previous, extraction.images
    known = {hash_ for one in previous for hash_ in one.hashes}
    for one in images:
        if one.sha256 in known:
            raise UserError(
                f"the model has learnt from {_named(sources[one.image])} already: give images that are new to it"
            )
    if images and previous:
        seen = np.concatenate([one.thumbnails for one in previous])
        alike = near_duplicates(np.stack([one.thumbnail for one in images]), seen)
        if len(alike):
            extraction.execution.warn(
                f"{len(alike)} of {len(images)} images look as if the model had learnt from them already, "
                f"for example {_named(sources[images[alike[0]].image])}"
            )


def duplicate_groups(extraction: Extraction, previous: Sequence[Previous]) -> Indices:
    """Which images are near-duplicates of each other: a number for each image of the whole model."""
    first = sum(len(one.hashes) for one in previous)
    new = sorted(extraction.images, key=lambda one: one.image)
    numbers = [*range(first), *(one.image for one in new)]
    known = np.concatenate([np.empty((0, SIDE**2), np.float16), *(one.thumbnails for one in previous)])
    fresh = [one.thumbnail for one in new]
    found = near_duplicate_groups(np.concatenate([known, np.array(fresh).reshape(-1, SIDE**2)]))
    groups = np.arange(max(numbers, default=-1) + 1)
    groups[numbers] = np.array(numbers)[found]
    return groups


def _named(source: ImageLike) -> str:
    return "a given array" if isinstance(source, np.ndarray) else str(source)
