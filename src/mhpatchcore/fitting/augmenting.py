"""Whether turned copies of the normal images are normal too, found out from these images alone.

Every image is compared with the others, by the patches that are farthest from them and so decide its score:

    r = mean over images of Σ min(a, aₜ) / Σ a

with a the squared distance of such a patch to the others as they are, and aₜ to their turned copies. Where parts lie
anywhere, or are alike from all sides, copies come much nearer (castings: r = 0.5). Where all lie in one way they do
not (r = 1), and learning them would excuse parts that are turned.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from mhpatchcore.backbone.stored import StoredImage
from mhpatchcore.config import Config
from mhpatchcore.fitting.banking import metric_at
from mhpatchcore.fitting.extraction import Extraction
from mhpatchcore.fitting.tasks import put_metric, whitened
from mhpatchcore.inputs.sources import spread
from mhpatchcore.inputs.views import AUTO, EVERY_TURN, PLAIN, TURNS
from mhpatchcore.metric.distances import distances_to_nearest
from mhpatchcore.runtime.arrays import Floats
from mhpatchcore.runtime.store import Store

MOST_IMAGES = 32  # more of them show by themselves what is normal, and copies take many times as long
COMPARED = 8  # images, each with all others
DECIDING = 0.05  # of an image's patches
WORTH_IT = 0.95  # r up to which copies are learnt
CLEARLY = 0.95  # by which flips come nearer than rotations, which are interpolated: a mirrored part may be a bad one


def to_be_tried(config: Config, images: int) -> str:
    """What `auto` comes to where the number of images says it already; otherwise it stays.

    Tiles are many already, and a bank of centroids does not know which image a row comes from.
    """
    if config.augment != AUTO:
        return config.augment
    if images > MOST_IMAGES or config.tiled or config.constructor == "kmeans":
        return "none"
    return _chosen({}) if images == 1 else AUTO


def decided(extraction: Extraction) -> Extraction:
    """What is learnt, and the settings that say so: with the copies that make normal images more alike."""
    if extraction.config.augment != AUTO:
        return extraction
    chosen = _chosen(ratios(extraction))
    config = extraction.config.with_changes(augment=chosen)
    learnt = tuple(image.with_turns(TURNS[chosen]) for image in extraction.learnt)
    return replace(extraction, config=config, learnt=learnt)


def _chosen(found: Mapping[str, float]) -> str:
    """The copies to learn, by their r: rotations, unless flips come clearly nearer; none, where they come no nearer.

    A single image has no others to compare with: rotations.

    >>> [_chosen({"rotations": r, "flips": f}) for r, f in ((0.5, 0.49), (0.8, 0.7), (1.0, 0.96))]
    ['rotations', 'flips', 'none']
    """
    if not found:
        return "rotations"
    best = "flips" if found["flips"] < CLEARLY * found["rotations"] else "rotations"
    return best if found[best] <= WORTH_IT else "none"


def ratios(extraction: Extraction) -> dict[str, float]:
    """r of every kind of copies, at the first scale; none where there is but one image."""
    if len(extraction.learnt) < 2:
        return {}
    plain = tuple(image.with_turns(()) for image in extraction.learnt)
    key = put_metric(extraction.store, metric_at(replace(extraction, learnt=plain), 0).whitening)
    with extraction.execution.phase("augment", 1) as advance:
        found = _turned_distances(extraction.store, key, extraction.learnt)
        advance(1)
    return {
        name: float(np.mean([_ratio(one, [EVERY_TURN.index(turn) for turn in turns]) for one in found]))
        for name, turns in TURNS.items()
        if turns != (PLAIN,)
    }


def _ratio(distances: Floats, turns: Sequence[int]) -> float:
    """What some turns, of which the first is none, leave of the sum of an image's distances (turns, m)."""
    whole = float(distances[0].sum())
    return float(distances[turns].min(axis=0).sum()) / whole if whole else 1.0


def _turned_distances(store: Store, metric: str, images: Sequence[StoredImage]) -> list[Floats]:
    """For some images the squared distances (turns, m) of their deciding patches to all other images, by turn."""
    some = spread(len(images), COMPARED)
    patches = [whitened(store, metric, image.scales[0]).z for image in images]
    near = {i: distances_to_nearest(patches[i], _others(patches, i)) for i in some}
    far = {i: np.argsort(near[i], kind="stable")[-max(1, round(DECIDING * len(near[i]))) :] for i in some}
    asked = {i: patches[i][far[i]] for i in some}
    found = {i: [near[i][far[i]]] for i in some}
    for turn in range(1, len(EVERY_TURN)):
        views = ([view for view in image.copies[0] if view.turn == turn] for image in images)
        # a region of interest may leave nothing of a copy
        patches = [whitened(store, metric, one).z if one else patches[0][:0] for one in views]
        for i in some:
            found[i].append(distances_to_nearest(asked[i], _others(patches, i)))
    return [np.stack(found[i]) for i in some]


def _others(patches: Sequence[Floats], i: int) -> Floats:
    return np.concatenate([one for j, one in enumerate(patches) if j != i])
