"""Moments of patches in the store: of chunks, and of runs of chunks, which the store keeps."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import partial, reduce

import numpy as np

from mhpatchcore.backbone.stored import Located, StoredImage, aligned, stored_maps, views_at
from mhpatchcore.config import Config
from mhpatchcore.fitting.execution import Execution
from mhpatchcore.fitting.plan import cut, images_at_once, runs_of
from mhpatchcore.metric.moments import Moments
from mhpatchcore.runtime.arrays import Array
from mhpatchcore.runtime.parallel import tree_reduce
from mhpatchcore.runtime.store import Store, entry_key

MOMENTS_FAN_IN = 16
WORTH_KEEPING = 8  # patches for each dimension: fewer would take less room than their moments
ScaleMoments = tuple[Moments, ...]  # of each scale; none without images


def moments_of(store: Store, chunk: Sequence[Located]) -> Moments:
    """Of the patches of some views."""
    if any(view.masked for view in chunk):
        return Moments.of(aligned(store, chunk))
    each = [stored_maps(store, view) for view in chunk]
    return Moments.of_maps([np.stack(layers) for layers in zip(*each, strict=True)])


def image_moments(store: Store, block: int, images: Sequence[StoredImage]) -> ScaleMoments:
    """Of all patches of some images, at each scale: those of a block of views after those of another."""
    if not images:
        return ()
    scales = (cut(views_at(scale, images), block) for scale in range(len(images[0].scales)))
    return tuple(reduce(Moments.merge, (moments_of(store, chunk) for chunk in chunks)) for chunks in scales)


def run_moments(store: Store, block: int, run: Sequence[Sequence[StoredImage]]) -> ScaleMoments:
    """Of the images of some chunks, a whole subtree; found in the store, or made and kept there."""
    views = [[(view.entry, view.position) for image in chunk for view in image.every_view] for chunk in run]
    key = entry_key("moments", block, views)
    known = store.found(key) if store.kept else None
    if known is not None:
        return _from_arrays(known)
    moments = total_moments(image_moments(store, block, chunk) for chunk in run)
    if store.kept and all(WORTH_KEEPING * one.d <= one.n for one in moments):
        store.put(key, _to_arrays(moments))
    return moments


def total_moments(nodes: Iterable[ScaleMoments], levels: Iterable[int] | None = None) -> ScaleMoments:
    """Of all chunks, or of all whole subtrees of chunks with these levels."""
    return tree_reduce(nodes, MOMENTS_FAN_IN, _merged, levels=levels) or ()


def _merged(one: ScaleMoments, other: ScaleMoments) -> ScaleMoments:
    if not one or not other:  # a chunk of which no image could be read
        return one or other
    return tuple(ours.merge(theirs) for ours, theirs in zip(one, other, strict=True))


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
