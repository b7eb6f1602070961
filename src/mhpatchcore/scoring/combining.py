"""All views of an image as one: the mean of the maps of its scales, whose maximum is the score.

By the other rules the score is the mean of the scales' scores, and that of a scale is the highest of its tiles'.
Patches are whitened at every scale, so squared distances are of one kind. Dividing each scale by its own typical score
was measured and made no difference.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from mhpatchcore.inputs.regions import middles
from mhpatchcore.inputs.views import Geometry
from mhpatchcore.runtime.arrays import Floats, Mask
from mhpatchcore.scoring.graph import Head
from mhpatchcore.scoring.maps import ViewScores, combined_map, view_map


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
    of_scale: dict[int, float] = {}
    for view, score in zip(views, scores, strict=True):
        of_scale[view.scale] = max(score, of_scale.get(view.scale, 0.0))
    return float(np.mean(list(of_scale.values())))


def combined_peak(views: Sequence[ViewScores]) -> float:
    """The maximum of the combined map."""
    return _peak_of_whole_views(views) if are_plain(views) else blended_peak(views).value


def are_plain(views: Sequence[ViewScores]) -> bool:
    """Whether there is one view of each scale, all of one box, with patches that all count."""
    return all(view.is_plain for view in views) and len({view.scale for view in views}) == len(views)


def _peak_of_whole_views(views: Sequence[ViewScores]) -> float:
    """At the pixels of the finest view. Each scale is smoothed by `sigma` pixels of its own view."""
    if len(views) == 1:
        return float(view_map(views[0].distances, *views[0].size, views[0].sigma).max())
    height, width = max(view.size for view in views)
    heats = [view_map(view.distances, height, width, view.sigma * height / view.size[0]) for view in views]
    return float(np.mean(heats, axis=0).max())


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
    largest: dict[int, float] = {}
    for view, one in zip(views, own, strict=True):
        largest[view.scale] = max(one, largest.get(view.scale, 0.0))
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
