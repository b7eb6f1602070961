"""Several scales as one: the mean of their maps, whose maximum is the score; by the other rules the mean of scores.

Patches are whitened at every scale, so squared distances are of one kind. Dividing each scale by its own typical score
was measured and made no difference.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from mhpatchcore.runtime.arrays import Floats
from mhpatchcore.scoring.maps import view_map


def combined_score(
    rule: str,
    scores: Sequence[float],
    judged: Sequence[Floats],
    sizes: Sequence[tuple[int, int]],
    sigma: float,
) -> float:
    """One score of those of all scales, whose patches have the distances `judged` (h, w)."""
    if len(scores) == 1:
        return float(scores[0])
    return combined_peak(judged, sizes, sigma) if rule == "map-max" else float(np.mean(scores))


def combined_peak(maps: Sequence[Floats], sizes: Sequence[tuple[int, int]], sigma: float) -> float:
    """The maximum of the combined map of views of one box, of their distances (h, w), at the finest view.

    Each scale is smoothed by `sigma` pixels of its own view, whose `sizes` are height and width.
    """
    if len(maps) == 1:
        return float(view_map(maps[0], *sizes[0], sigma).max())
    height, width = max(sizes)
    heats = [
        view_map(a, height, width, sigma * height / size[0]) for a, size in zip(maps, sizes, strict=True)
    ]
    return float(np.mean(heats, axis=0).max())
