"""The first pass: images become descriptors in the store, chunk by chunk, and their moments are added up by a tree."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property, partial, reduce
from pathlib import Path

import numpy as np

from mhpatchcore.backbone.session import Backbone
from mhpatchcore.backbone.stored import StoredImage, StoredView, aligned, stored_maps, views_at
from mhpatchcore.config import Config
from mhpatchcore.errors import ImageError, UserError
from mhpatchcore.fitting import describing, tasks
from mhpatchcore.fitting.describing import Job
from mhpatchcore.fitting.execution import Execution
from mhpatchcore.fitting.storekeeping import keep_within, opened_store
from mhpatchcore.fitting.tasks import cut, images_at_once, turns_of
from mhpatchcore.fitting.trees import Tree, grown
from mhpatchcore.inputs.decode import size_of
from mhpatchcore.inputs.files import absolute_name
from mhpatchcore.inputs.sources import ImageLike, spread
from mhpatchcore.inputs.views import PLAIN
from mhpatchcore.metric.moments import Moments
from mhpatchcore.model.duplicates import SIDE, near_duplicate_groups, near_duplicates
from mhpatchcore.model.value import Model
from mhpatchcore.runtime.arrays import Array, Indices
from mhpatchcore.runtime.parallel import one_blas_thread
from mhpatchcore.runtime.store import Store

HELD_OUT_SHARE = 0.2
MOMENTS_FAN_IN = 16
WORTH_KEEPING = 8  # patches for each dimension: fewer would take less room than their moments
ScaleMoments = tuple[Moments, ...]  # of each scale; none without images


@dataclass(frozen=True, eq=False)
class Extraction:
    """What the later passes go by: the images that could be read, in the store; the settings, how work is carried out,
    and the models that grow.

    The threshold comes from old images alone where the new ones are not `representative` of what comes.
    """

    store: Store
    config: Config
    execution: Execution
    learnt: tuple[StoredImage, ...]
    held_out: tuple[StoredImage, ...]
    previous: Sequence[Model] = ()
    representative: bool = True

    @property
    def images(self) -> tuple[StoredImage, ...]:
        """All images that could be read."""
        return *self.learnt, *self.held_out

    @cached_property
    def moments(self) -> ScaleMoments:
        """Those of each scale, of all patches that are learnt from."""
        return moments_over(self.store, self.learnt, self.config, self.execution)


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


def held_out_images(new: Sequence[int], config: Config, previous: Sequence[Model]) -> tuple[int, ...]:
    """Of the new images those that are not learnt from but kept for the threshold, evenly spread."""
    if config.calibration != "held-out" or len(new) < 2:
        return ()
    most = calibration_shares(config, previous, len(new))[-1]
    return tuple(new[i] for i in spread(len(new), min(most, max(1, round(HELD_OUT_SHARE * len(new))))))


def calibration_shares(config: Config, previous: Sequence[Model], new: int) -> list[int]:
    """How many calibration images each model contributes, and last the new images: in proportion to what was learnt.

    So a few parts that came back from the line weigh in the threshold as they do among all images. A model without
    deciding patches cannot contribute.
    """
    images = [*(one.n_learnt if one.calibration.deciding else 0 for one in previous), new]
    known = [*(one.calibration.n for one in previous), new]
    room = max(config.calibration_images, *known[:-1]) if previous else config.calibration_images
    share = min([room / max(sum(images), 1), *(n / of for n, of in zip(known, images, strict=True) if of)])
    return [round(share * n) for n in images]


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
    held_out: Collection[int],
    backbones: Sequence[Backbone],
    config: Config,
    execution: Execution,
    store: Store,
) -> Extraction:
    """Run the networks over everything: first over what is learnt from, then over what is held out."""
    networks = tuple(tasks.put_network(store, backbone) for backbone in backbones)
    job = Job(
        store, config.views, networks, config.roi, execution.batch, execution.skip_broken, turns_of(config)
    )
    found: dict[bool, list[StoredImage]] = {False: [], True: []}
    with execution.phase("extract", len(sources)) as advance:
        done = 0
        for is_held_out in (False, True):
            mine = [(i, source) for i, source in sources.items() if (i in held_out) == is_held_out]
            chunks = cut(mine, images_at_once(config))
            task = partial(describing.describe, replace(job, turns=(PLAIN,)) if is_held_out else job)
            for chunk, described in zip(chunks, execution.runs_on.map(task, chunks), strict=True):
                for message in described.skipped:
                    execution.warn(message)
                found[is_held_out] += described.images
                if execution.telemetry is not None:
                    execution.telemetry.stored("extract", described.stored)
                done += len(chunk)
                advance(done)
    tasks.forget_networks()
    if sources and not (found[False] or found[True]):
        raise ImageError("none of the images could be read: check the folder")
    return Extraction(store, config, execution, tuple(found[False]), tuple(found[True]))


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
    return replace(extraction, learnt=learnt, held_out=held_out)


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


def duplicate_groups(extraction: Extraction, previous: Sequence[Model]) -> Indices:
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


def moments_over(
    store: Store, images: Sequence[StoredImage], config: Config, execution: Execution
) -> ScaleMoments:
    """Moments of all patches of some images, at each scale."""
    tree = Tree(
        store,
        MOMENTS_FAN_IN,
        leaf=partial(image_moments, store, config.chunk_images),
        merge=_merged,
        close=_as_it_is,
        identify=_views,
        pack=_to_arrays,
        unpack=_from_arrays,
        kind="moments",
        made_by=[config.chunk_images],
        worth=_are_worth_keeping,
        remote=execution.runs_on.remote,
    )
    with execution.phase("moments", len(images)) as advance:
        nodes = grown(tree, cut(images, images_at_once(config)), execution, advance)
        return reduce(_merged, nodes) if nodes else ()


def image_moments(store: Store, block: int, images: Sequence[StoredImage]) -> ScaleMoments:
    """Of all patches of some images, at each scale: those of a block of views after those of another."""
    scales = (cut(views_at(scale, images), block) for scale in range(len(images[0].scales)))
    return tuple(reduce(Moments.merge, (moments_of(store, chunk) for chunk in chunks)) for chunks in scales)


def moments_of(store: Store, chunk: Sequence[StoredView]) -> Moments:
    """Of the patches of some views."""
    if any(view.masked for view in chunk):
        return Moments.of(aligned(store, chunk))
    each = [stored_maps(store, view) for view in chunk]
    return Moments.of_maps([np.stack(layers) for layers in zip(*each, strict=True)])


def _merged(one: ScaleMoments, other: ScaleMoments) -> ScaleMoments:
    return tuple(ours.merge(theirs) for ours, theirs in zip(one, other, strict=True))


def _as_it_is(moments: ScaleMoments, workers: int = 1) -> ScaleMoments:
    return moments


def _views(chunk: Sequence[StoredImage]) -> object:
    return [(view.entry, view.position) for image in chunk for view in image.every_view]


def _are_worth_keeping(moments: ScaleMoments) -> bool:
    return all(WORTH_KEEPING * one.d <= one.n for one in moments)


def _to_arrays(moments: ScaleMoments) -> dict[str, Array]:
    arrays: dict[str, Array] = {}
    for scale, one in enumerate(moments):
        rest = np.broadcast_to(np.asarray(one.rest, np.float64), one.mean.shape)
        arrays |= {f"{scale}.n": np.array([one.n]), f"{scale}.mean": one.mean, f"{scale}.rest": rest}
        arrays[f"{scale}.M2"] = one.M2
    return arrays


def _from_arrays(arrays: Mapping[str, Array]) -> ScaleMoments:
    return tuple(
        Moments(
            int(arrays[f"{scale}.n"][0]),
            *(arrays[f"{scale}.{name}"] for name in ("mean", "M2", "rest")),
        )
        for scale in range(len(arrays) // 4)
    )
