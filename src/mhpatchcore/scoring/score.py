"""The scoring graph, run on a view or on the stored layers of an image; and all views of an image as one.

The map of an image is the mean of the maps of its scales, and its maximum is the score. By the other rules the score is
the mean of the scales' scores, and that of a scale is the highest of its tiles'. Patches are whitened at every scale,
so squared distances are of one kind. Dividing each scale by its own typical score was measured and made no difference.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from mhpatchcore.backbone.descriptors import LOCAL
from mhpatchcore.backbone.session import make_session
from mhpatchcore.backbone.stored import StoredImage, stored_inside, stored_maps
from mhpatchcore.errors import UserError
from mhpatchcore.inputs.regions import middles
from mhpatchcore.inputs.views import Geometry
from mhpatchcore.runtime.arrays import Array, Floats, Indices, Mask
from mhpatchcore.runtime.parallel import Memoised
from mhpatchcore.runtime.store import Store
from mhpatchcore.scoring.graph import EXCLUDED, SCORES, Head
from mhpatchcore.scoring.maps import ViewScores, combined_map, view_map


@dataclass(frozen=True, eq=False)
class Scored:
    """What the scoring graph says of one view: its score, its map's peak, distances (h, w) of the map and the score.

    z (k, h·w) are the whitened patches, where they were asked for.
    """

    score: float
    peak: float
    nearest: Floats
    judged: Floats
    z: Floats | None = None


@dataclass(frozen=True, eq=False)
class ScoredView:
    """A view of one scale, where it lies, which of its patches count (None: all), and what the graph says of it."""

    scale: int
    where: Geometry
    inside: Mask | None
    scored: Scored


def score_stored(
    store: Store, heads: tuple[str, ...], wanted: tuple[StoredImage, int | None]
) -> list[list[ScoredView]] | None:
    """The views of a stored image, of every scale, without the bank rows of one image (itself).

    None where there are no other rows.
    """
    image, left_out = wanted
    scales = []
    for scale, (views, key) in enumerate(zip(image.scales, heads, strict=True)):
        session, images = load_head(store, key)
        own = images == left_out if left_out is not None else np.zeros(len(images), bool)
        if own.all():
            return None
        scored = []
        for view in views:
            maps, inside = stored_maps(store, view), stored_inside(store, view)
            feed = layers_feed(maps) | {"penalty": np.where(own, EXCLUDED, np.float32(0))}
            found = scored_by(session, feed, maps[0].shape[1:], inside)
            scored.append(ScoredView(scale, view.where, inside, found))
        scales.append(scored)
    return scales


def layers_feed(maps: Sequence[Array]) -> dict[str, Any]:
    """Stored layers as a graph takes them."""
    return {f"{LOCAL}{i}": layer[None] for i, layer in enumerate(maps)}


def scored_by(
    session: Any,
    feed: dict[str, Any],
    grid: tuple[int, ...],
    inside: Mask | None = None,
    options: Any = None,
    with_z: bool = False,
) -> Scored:
    """Run a scoring graph on a view of which only the patches inside (h, w) count.

    A score that is not a number would be neither above nor below any threshold: it is refused.
    """
    counts = np.ones(grid, np.float32) if inside is None else inside.astype(np.float32)
    feed = feed | {"inside": counts.ravel()}
    score, peak, nearest, judged, *z = session.run([*SCORES, *["z"] * with_z], feed, options)
    if not all(np.isfinite(numbers).all() for numbers in (score, peak, nearest)):
        raise UserError("the model gives numbers that are not finite for this image: fit the model again")
    # copies: the originals lie in memory of the session, all of which would stay for as long as a result is kept
    distances = (nearest.reshape(grid).copy(), judged.reshape(grid).copy())
    return Scored(float(score[0]), float(peak[0]), *distances, *z)


def put_head(store: Store, graph: bytes, images: Indices) -> str:
    """Keep a graph over stored layers in the store, with the images (K,) that bank rows come from; its key."""
    return store.put_by_content("head", {"graph": np.frombuffer(graph, np.uint8), "images": images})


@Memoised
def load_head(store: Store, key: str) -> tuple[Any, Indices]:
    """A session that scores stored layers, and the image (K,) that each bank row comes from."""
    entry = store.get(key)
    return make_session(entry["graph"].tobytes(), 1), entry["images"]


@dataclass(frozen=True)
class Rule:
    """How views are scored together: by which rule, and for their maps the smoothing and the views' sizes by scale."""

    score: str
    sigma: float
    sizes: tuple[tuple[int, int], ...]

    @staticmethod
    def of(heads: Sequence[Head]) -> Rule:
        sizes = tuple((head.backbone.info.height, head.backbone.info.width) for head in heads)
        return Rule(heads[0].score, heads[0].sigma, sizes)

    def view(self, scale: int, where: Geometry, inside: Mask | None, distances: Floats) -> ViewScores:
        """A view of one scale, of which the patches inside (h, w) count, with their distances (h, w)."""
        return ViewScores(distances, where, self.sizes[scale], self.sigma, scale, inside)


def combined_score(rule: str, scores: Sequence[float], views: Sequence[ViewScores]) -> float:
    """One score of those of all views, whose patches have the distances that are judged."""
    if len(views) == 1 and are_plain(views):
        return float(scores[0])
    if rule == "map-max":
        return combined_peak(views)
    return float(np.mean(list(_largest_of_scales(views, scores).values())))


def combined_peak(views: Sequence[ViewScores]) -> float:
    """The maximum of the combined map, of whole views at the pixels of the finest.

    There each scale is smoothed by `sigma` pixels of its own view.
    """
    if not are_plain(views):
        return blended_peak(views).value
    height, width = max(view.size for view in views)
    heats = [view_map(view.distances, height, width, view.sigma * height / view.size[0]) for view in views]
    return float(np.mean(heats, axis=0).max())


def are_plain(views: Sequence[ViewScores]) -> bool:
    """Whether there is one view of each scale, all of one box, with patches that all count."""
    return all(view.is_plain for view in views) and len({view.scale for view in views}) == len(views)


def _largest_of_scales(views: Sequence[ViewScores], numbers: Sequence[float]) -> dict[int, float]:
    """The largest of the views' numbers at each scale."""
    largest: dict[int, float] = {}
    for view, number in zip(views, numbers, strict=True):
        largest[view.scale] = max(number, largest.get(view.scale, 0.0))
    return largest


class Peak(NamedTuple):
    """The maximum of a map, and where it is, in pixels of the original image."""

    value: float
    y: float
    x: float


def blended_peak(views: Sequence[ViewScores]) -> Peak:
    """The peak of the combined map, at the pixels of all views: looked for view by view, so that none is held whole.

    A map is a mean of distances: no pixel of a view exceeds the mean over the scales of the largest distances there,
    which of its own scale are those of the view, or of another that is looked at before it.
    """
    own = [float(view.counted.max()) for view in views]
    largest = _largest_of_scales(views, own)
    rest = {scale: sum(largest.values()) - one for scale, one in largest.items()}
    bound = [(one + rest[view.scale]) / len(largest) for view, one in zip(views, own, strict=True)]
    peak = Peak(0.0, 0.0, 0.0)
    for i in np.argsort(-np.array(bound), kind="stable"):
        if bound[i] <= peak.value:
            break
        (top, left, bottom, right), (height, width) = views[i].geometry.box, views[i].size
        heat = combined_map(views, (top, left, bottom, right), height, width)
        row, column = np.unravel_index(heat.argmax(), heat.shape)
        if heat[row, column] > peak.value:
            y, x = middles(top, bottom, height)[row], middles(left, right, width)[column]
            peak = Peak(float(heat[row, column]), float(y), float(x))
    return peak
