"""The first pass: images become descriptors in the store, chunk by chunk, and their moments are added up."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial

import numpy as np

from mhpatchcore.backbone.session import Backbone
from mhpatchcore.config import Config
from mhpatchcore.errors import ImageError, UserError
from mhpatchcore.fitting import describing, tasks
from mhpatchcore.fitting.calibrating import held_out_images
from mhpatchcore.fitting.describing import Job
from mhpatchcore.fitting.duplicates import near_duplicates
from mhpatchcore.fitting.execution import Execution
from mhpatchcore.fitting.plan import StoredImage, cut, images_at_once, make_plan
from mhpatchcore.fitting.previous import Previous
from mhpatchcore.fitting.store import Store, opened_store
from mhpatchcore.inputs.decode import size_of
from mhpatchcore.inputs.sources import ImageLike
from mhpatchcore.metric.moments import Moments
from mhpatchcore.runtime.arrays import Floats
from mhpatchcore.runtime.parallel import one_blas_thread
from mhpatchcore.runtime.trees import tree_reduce

MOMENTS_FAN_IN = 16


@dataclass(frozen=True, eq=False)
class Extraction:
    """The images that could be read, where they are in the store, what tells them apart, and moments of each scale."""

    store: Store
    learnt: tuple[StoredImage, ...]
    held_out: tuple[StoredImage, ...]
    hashes: dict[int, str]
    thumbnails: dict[int, Floats]
    moments: tuple[Moments, ...]


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
    with one_blas_thread(), opened_store(execution.store, expected) as store:
        try:
            extraction = extract(sources, held_out, backbones, config, execution, store)
            check_unknown(extraction, sources, previous, execution.warn)
            yield extraction
        finally:
            tasks.forget()


def number_of_views(images: Sequence[ImageLike], config: Config) -> list[int]:
    """How many views these images have at each scale; those whose size cannot be read count as one."""
    if not config.tiled:
        return [len(images)] * len(config.sizes)
    sizes = [size_of(image) for image in images]
    return [sum(view.count(*size) if size else 1 for size in sizes) for view in config.views]


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
    )
    chunks = [tuple((i, sources[i]) for i in chunk) for chunk in (*plan.learnt, *plan.held_out)]
    stored: list[list[StoredImage]] = [[], []]
    hashes: dict[int, str] = {}
    thumbnails: dict[int, Floats] = {}

    def sums(advance: Callable[[int], None]) -> Iterator[tuple[Moments, ...]]:
        """The moments of every chunk that is learnt from, as they come."""
        done = 0
        results = execution.runs_on.map(partial(describing.extract, job), chunks)
        for number, (chunk, result) in enumerate(zip(chunks, results, strict=True)):
            for message in result.skipped:
                execution.warn(message)
            is_held_out = number >= len(plan.learnt)
            stored[is_held_out] += result.images
            numbers = [image.image for image in result.images]
            hashes.update(zip(numbers, result.hashes, strict=True))
            thumbnails.update(zip(numbers, result.thumbnails, strict=True))
            if execution.telemetry is not None:
                execution.telemetry.move(result.moments_seconds, "extract", "moments")
                execution.telemetry.stored("extract", result.stored)
            if result.images and not is_held_out:
                yield result.moments
            done += len(chunk)
            advance(done)

    with execution.phase("extract", len(sources)) as advance:
        moments = _total(sums(advance))
    tasks.forget_networks()
    if sources and not any(stored):
        raise ImageError("none of the images could be read: check the folder")
    return Extraction(store, tuple(stored[0]), tuple(stored[1]), hashes, thumbnails, moments)


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
    with execution.phase("moments", len(learnt)):
        task = partial(tasks.image_moments, extraction.store, config.chunk_images)
        moments = _total(execution.runs_on.map(task, cut(learnt, images_at_once(config))))
    hashes = {number[old]: hash_ for old, hash_ in extraction.hashes.items() if old in number}
    thumbnails = {number[old]: one for old, one in extraction.thumbnails.items() if old in number}
    held_out = renumbered(extraction.held_out)
    return Extraction(extraction.store, learnt, held_out, hashes, thumbnails, moments)


def _total(sums: Iterable[tuple[Moments, ...]]) -> tuple[Moments, ...]:
    """The moments of every scale, of those of all chunks; none without any chunk."""
    return tree_reduce(sums, MOMENTS_FAN_IN, _merged) or ()


def _merged(one: tuple[Moments, ...], other: tuple[Moments, ...]) -> tuple[Moments, ...]:
    return tuple(ours.merge(theirs) for ours, theirs in zip(one, other, strict=True))


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
