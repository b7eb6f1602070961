"""What a fit finds out about its images: which stand apart, how well the bank covers them, whether copies help.

**Suspicion.** A bad part among the good ones would teach the bank its defect. Each patch is compared with bank rows of
other images. Two photos of one defect would vouch for each other, so the image that comes nearest to a patch does not
count either:

    a₂(u) = min { ‖z(u) − m‖² : m from neither u's own image nor the one with the nearest such row }

An image's suspicion is the maximum of its smoothed map of a₂, the way `map-max` scores an image.
**Coverage** is what is left of the distance of all patches to their nearest row.

**Turned copies** are learnt where they are as normal as the images themselves. Every image is compared with the others,
by the patches that are farthest from them and so decide its score:

    r = mean over images of Σ min(a, aₜ) / Σ a

with a the squared distance of such a patch to the others as they are, and aₜ to their turned copies. Where parts lie
anywhere, or are alike from all sides, copies come much nearer (castings: r = 0.5). Where all lie in one way they do
not (r = 1), and learning them would excuse parts that are turned.
"""

from __future__ import annotations

from bisect import bisect
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import inf
from typing import Any, NamedTuple

import numpy as np

from mhpatchcore.backbone.stored import StoredImage, stored_inside, stored_maps, views_at
from mhpatchcore.bank.constructors import Patches
from mhpatchcore.config import Config, parse_share
from mhpatchcore.errors import UserError
from mhpatchcore.fitting.banking import load_patches, metric_at, put_metric, put_patches, whitened
from mhpatchcore.fitting.calibrating import ScaleBank
from mhpatchcore.fitting.extraction import Extraction, images_at_once
from mhpatchcore.fitting.trees import cut
from mhpatchcore.inputs.sources import ImageLike, spread
from mhpatchcore.inputs.views import AUTO, EVERY_TURN, PLAIN, TURNS
from mhpatchcore.metric.distances import distances_to_nearest
from mhpatchcore.runtime.arrays import Floats, Indices
from mhpatchcore.runtime.store import Store
from mhpatchcore.scoring.graph import EXCLUDED
from mhpatchcore.scoring.maps import ViewScores
from mhpatchcore.scoring.score import Rule, combined_peak, layers_feed, load_head, put_head

LARGEST_SHARE = 0.5
SHOWN = 24
LEVELS = (0.5, 0.9, 0.99, 1.0)  # quantiles of the coverage

MOST_IMAGES = 32  # more of them show by themselves what is normal, and copies take many times as long
COMPARED = 8  # images, each with all others
DECIDING = 0.05  # of an image's patches
WORTH_IT = 0.95  # r up to which copies are learnt
CLEARLY = 0.95  # by which flips come nearer than rotations, which are interpolated: a mirrored part may be a bad one


@dataclass(frozen=True)
class ImageChecks:
    """What a fit should find out about its images. Only `exclude` changes the model.

    Parameters
    ----------
    rank
        Order the images by suspicion.
    exclude
        Leave out the most suspicious ones: a number of them (int) or a share (float).
    coverage
        Measure how well the bank covers the patches.
    """

    rank: bool = False
    exclude: int | float = 0
    coverage: bool = False

    def __post_init__(self) -> None:
        if not 0 <= self.exclude <= (1 if isinstance(self.exclude, float) else inf):
            raise UserError(
                f"what to exclude is a number of images or a share of them, such as 5 or 5 %, not {self.exclude}"
            )

    def to_exclude(self, n: int) -> int:
        """How many of n images are to be left out; never more than half of them.

        >>> ImageChecks(exclude=0.05).to_exclude(210), ImageChecks(exclude=4).to_exclude(210)
        (10, 4)
        """
        count = round(self.exclude * n) if isinstance(self.exclude, float) else self.exclude
        if count > LARGEST_SHARE * n:
            raise UserError(
                f"cannot leave {count} of {n} images out as suspicious: at most half, or they are the normal ones"
            )
        return count


def parse_exclusion(text: str) -> int | float:
    """A number of images, or a share of them.

    >>> parse_exclusion("10"), parse_exclusion("5%"), parse_exclusion("0.05")
    (10, 0.05, 0.05)
    """
    try:
        return parse_share(text) if "%" in text or "." in text else int(text)
    except ValueError:
        raise UserError(
            f"`exclude_suspicious=N` takes a number of images or a share, for example 10 or 5%, not '{text}'"
        ) from None


class Ranked(NamedTuple):
    """A training image by its index, how suspicious it is, and its views with their patches' scores, where kept."""

    score: float
    image: int
    views: tuple[ViewScores, ...] | None


@dataclass(frozen=True, eq=False)
class Suspect:
    """A training image by name, how suspicious it is, and that as a multiple of the typical (median) image.

    `source` is the image as it was given, and `views` have its patches' scores, or None where not kept.
    """

    name: str
    score: float
    times_typical: float
    excluded: bool
    source: ImageLike
    views: tuple[ViewScores, ...] | None = None

    def to_json(self) -> dict[str, Any]:
        shown = {name: getattr(self, name) for name in ("score", "times_typical", "excluded")}
        return {"image": self.name, **shown}


def rank_images(extraction: Extraction, banks: Sequence[ScaleBank]) -> list[Ranked]:
    """The images that are learnt from, those first that stand farthest apart; SHOWN of them with their patch scores."""
    store, images, execution = extraction.store, extraction.learnt, extraction.execution
    heads = tuple(put_head(store, bank.head.table_graph, bank.origin[:, 0]) for bank in banks)
    task = partial(_stands_apart, store, heads, Rule.of([bank.head for bank in banks]))
    found: list[Ranked] = []
    for one in execution.track("rank", execution.runs_on.map(task, images), len(images)):
        if one is not None:
            place = bisect(found, -one.score, key=lambda ranked: -ranked.score)
            found.insert(place, one)
            if len(found) > SHOWN:
                beyond = max(place, SHOWN)
                found[beyond] = found[beyond]._replace(views=None)
    return found


def _stands_apart(store: Store, heads: tuple[str, ...], rule: Rule, image: StoredImage) -> Ranked | None:
    """a₂ of an image's patches in all its views, and its suspicion; None where the bank knows no other image."""
    found = []
    for scale, (views, key) in enumerate(zip(image.scales, heads, strict=True)):
        session, images = load_head(store, key)
        others = images != image.image
        if not others.any():
            return None
        for view in views:
            layers, inside = stored_maps(store, view), stored_inside(store, view)
            feed = layers_feed(layers) | {"penalty": np.where(others, np.float32(0), EXCLUDED)}
            (distances,) = session.run(["distances"], feed)  # (K, h·w)
            apart = second_image(distances, images).reshape(layers[0].shape[1:])
            found.append(rule.view(scale, view.where, inside, apart))
    return Ranked(combined_peak(found), image.image, tuple(found))


def second_image(distances: Floats, images: Indices) -> Floats:
    """The least of the distances (K, n) to rows of images (K,), without the image that comes nearest: (n,).

    Where there is but one image, that one is heard.
    """
    nearest, first = distances.argmin(axis=0), distances.min(axis=0)
    second = np.where(images[:, None] == images[nearest][None], EXCLUDED, distances).min(axis=0)
    least: Floats = np.maximum(np.where(second < EXCLUDED / 2, second, first), 0)
    return least


def named_suspects(
    ranking: Sequence[Ranked], images: Sequence[ImageLike], names: Sequence[str], excluded: Collection[int]
) -> tuple[Suspect, ...]:
    """The ranking with names, the most suspicious first."""
    typical = max(float(np.median([one.score for one in ranking])) if ranking else 1.0, 1e-12)
    return tuple(
        Suspect(names[i], score, score / typical, i in excluded, images[i], views)
        for score, i, views in ranking
    )


@dataclass(frozen=True, eq=False)
class Coverage:
    """Quantiles (chunks, len(LEVELS)) of the squared distances from a chunk's patches to their nearest bank row.

    `images` (chunks,) counts the training images of each chunk, in the order in which they were read.
    """

    images: tuple[int, ...]
    quantiles: Floats

    def to_json(self) -> dict[str, Any]:
        return {"levels": list(LEVELS), "images": list(self.images), "quantiles": self.quantiles.tolist()}


def measure_coverage(extraction: Extraction, bank: ScaleBank) -> Coverage:
    """Compare all training patches with the bank, at the first scale."""
    store, config, execution = extraction.store, extraction.config, extraction.execution
    metric = put_metric(store, bank.head.whitening)
    rows = put_patches(store, Patches(bank.head.bank, bank.origin))
    chunks = cut(extraction.learnt, images_at_once(config))
    task = partial(_residuals, store, metric, rows, config.chunk_images)
    results = zip(chunks, execution.runs_on.map(task, chunks), strict=True)
    tracked = execution.track("coverage", results, len(extraction.learnt), lambda result: len(result[0]))
    return Coverage(tuple(map(len, chunks)), np.array([quantiles for _, quantiles in tracked]))


def _residuals(store: Store, metric: str, rows: str, views: int, chunk: tuple[StoredImage, ...]) -> Floats:
    """Of a chunk of images, of which so many views are compared at a time."""
    bank = load_patches(store, rows).z
    distances = [
        distances_to_nearest(whitened(store, metric, some).z, bank) for some in cut(views_at(0, chunk), views)
    ]
    quantiles: Floats = np.quantile(np.concatenate(distances), LEVELS).astype(np.float32)
    return quantiles


def copies_to_try(config: Config, images: int) -> str:
    """What `auto` comes to where the number of images says it already; otherwise it stays.

    Tiles are many already, and a bank of centroids does not know which image a row comes from.
    """
    if config.augment != AUTO:
        return config.augment
    if images > MOST_IMAGES or config.tiled or config.constructor == "kmeans":
        return "none"
    return _chosen({}) if images == 1 else AUTO


def with_chosen_copies(extraction: Extraction) -> Extraction:
    """What is learnt, and the settings that say so: with the copies that make normal images more alike."""
    if extraction.config.augment != AUTO:
        return extraction
    chosen = _chosen(_ratios(extraction))
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


def _ratios(extraction: Extraction) -> dict[str, float]:
    """r of every kind of copies, at the first scale; none where there is but one image."""
    if len(extraction.learnt) < 2:
        return {}
    plain = tuple(image.with_turns(()) for image in extraction.learnt)
    key = put_metric(extraction.store, metric_at(replace(extraction, learnt=plain), 0).whitening)
    with extraction.execution.phase("augment", 1):
        found = _turned_distances(extraction.store, key, extraction.learnt)
    places = {name: [EVERY_TURN.index(one) for one in turns] for name, turns in TURNS.items()}
    return {
        name: float(np.mean([_ratio(one, turns) for one in found]))
        for name, turns in places.items()
        if len(turns) > 1
    }


def _ratio(distances: Floats, turns: Sequence[int]) -> float:
    """What some turns, of which the first is none, leave of the sum of an image's distances (turns, m)."""
    whole = float(distances[0].sum())
    return float(distances[turns].min(axis=0).sum()) / whole if whole else 1.0


def _turned_distances(store: Store, metric: str, images: Sequence[StoredImage]) -> list[Floats]:
    """For some images the squared distances (turns, m) of their deciding patches to all other images, by turn."""
    some = spread(len(images), COMPARED)
    asked: dict[int, Floats] = {}
    found: dict[int, list[Floats]] = {i: [] for i in some}
    for turn, name in enumerate(EVERY_TURN):
        views = [image.scales[0] if name == PLAIN else image.copies[0] for image in images]
        shown = [[view for view in every if view.turn == turn] for every in views]
        # a region of interest may leave nothing of a copy
        patches = [whitened(store, metric, one).z if one else asked[some[0]][:0] for one in shown]
        for i in some:
            others = np.concatenate([one for j, one in enumerate(patches) if j != i])
            near = distances_to_nearest(asked.get(i, patches[i]), others)
            if turn == 0:
                far = np.argsort(near, kind="stable")[-max(1, round(DECIDING * len(near))) :]
                asked[i], near = patches[i][far], near[far]
            found[i].append(near)
    return [np.stack(found[i]) for i in some]
