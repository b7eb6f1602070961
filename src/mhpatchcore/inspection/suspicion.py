"""Which training images stand apart from the rest: a bad part among the good ones would teach the bank its defect.

Each patch is compared with bank rows of other images. Two photos of one defect would vouch for each other, so the
image that comes nearest to a patch is not heard either:

    a₂(u) = min { w_m·‖z(u) − m‖² : m from neither u's own image nor the one with the nearest such row }

An image's suspicion is the maximum of its smoothed map of a₂, the way `map-max` scores an image.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from math import inf
from typing import Any

import numpy as np

from mhpatchcore.bank.patches import Patches
from mhpatchcore.errors import UserError
from mhpatchcore.fitting.extraction import Chunk, Extraction
from mhpatchcore.inputs.images import ImageLike
from mhpatchcore.metric.distances import search_queries
from mhpatchcore.metric.whitening import Whitening
from mhpatchcore.runtime.arrays import Floats, Indices
from mhpatchcore.scoring.maps import view_map
from mhpatchcore.scoring.rules import Scorer

LARGEST_SHARE = 0.5
SHOWN = 24


@dataclass(frozen=True)
class Scrutiny:
    """What a fit should find out about its images. Only `exclude` changes the model.

    `rank` orders the images by suspicion, `exclude` leaves the most suspicious ones out (an int is a number of
    them, a float a share), `coverage` measures how well the bank covers the patches.
    """

    rank: bool = False
    exclude: int | float = 0
    coverage: bool = False

    def __post_init__(self) -> None:
        if not 0 <= self.exclude <= (1 if isinstance(self.exclude, float) else inf):
            raise UserError(
                f"what to exclude is a number of images or a share of them, such as 5 or 5 %, not {self.exclude}"
            )

    @property
    def ranks(self) -> bool:
        return self.rank or self.exclude > 0

    def to_exclude(self, n: int) -> int:
        """How many of n images are to be left out; never more than half of them.

        >>> Scrutiny(exclude=0.05).to_exclude(210), Scrutiny(exclude=4).to_exclude(210)
        (10, 4)
        """
        count = round(self.exclude * n) if isinstance(self.exclude, float) else self.exclude
        if count > LARGEST_SHARE * n:
            raise UserError(
                f"cannot leave {count} of {n} images out as suspicious: at most half, or they are the normal ones"
            )
        return count


@dataclass(frozen=True, eq=False)
class Ranking:
    """Training images by their index, the most suspicious first, with scores (n,).

    `maps` are the patch scores (h, w) of the first few of them.
    """

    images: tuple[int, ...]
    scores: Floats
    maps: tuple[Floats, ...] = ()


@dataclass(frozen=True, eq=False)
class Suspect:
    """A training image by name, how suspicious it is, and that as a multiple of the typical (median) image.

    `source` is the image as it was given, and `patches` (h, w) are its patch scores, or None where not kept.
    """

    name: str
    score: float
    times_typical: float
    excluded: bool
    source: ImageLike
    patches: Floats | None = None

    def to_json(self) -> dict[str, Any]:
        return {
            "image": self.name,
            "score": self.score,
            "times_typical": self.times_typical,
            "excluded": self.excluded,
        }


def rank_images(extraction: Extraction, whitening: Whitening, bank: Patches) -> Ranking:
    """All training images by how far they stand apart; the first ones with their patch scores.

    Only looks count: of plain background the bank keeps so few rows that hardly a place has those of two other images.
    """
    config, origin, k = extraction.config, bank.origin[:, 0], whitening.k
    scorer = Scorer(np.ascontiguousarray(bank.z[:, :k]), extraction.backbone.info.grid, config)

    def judged(chunk: Chunk) -> list[tuple[float, int, Floats]]:
        pieces = np.split(whitening(chunk.rows)[:, :k], len(chunk.images))
        maps = [suspicious_patches(z, scorer, origin, i) for i, z in zip(chunk.images, pieces, strict=True)]
        return [
            (float(view_map(a, config.size, config.size, config.sigma).max()), image, a)
            for image, a in zip(chunk.images, maps, strict=True)
            if a is not None
        ]

    scores: list[tuple[float, int]] = []
    shown: list[tuple[float, int, Floats]] = []
    for found in extraction.again("rank", judged):
        scores += [(score, image) for score, image, _ in found]
        shown = sorted([*shown, *found], key=lambda one: -one[0])[:SHOWN]
    scores.sort(key=lambda one: -one[0])
    return Ranking(
        tuple(image for _, image in scores),
        np.array([score for score, _ in scores], np.float32),
        tuple(a for _, _, a in shown),
    )


def suspicious_patches(z: Floats, scorer: Scorer, origin: Indices, image: int) -> Floats | None:
    """a₂ (h, w) of the whitened patches z (h·w, k) of one image; None where the bank knows no other image.

    Averaged over the parts of the bank, as patch scores are. A part that knows but one other image hears it.
    """
    queries = search_queries(z)
    found = []
    for part in scorer.parts:
        images = origin[part.rows]
        distances = queries @ part.targets.T
        distances[:, images == image] = np.inf
        nearest = distances.argmin(axis=1)
        first = distances.min(axis=1)
        distances[images[None, :] == images[nearest][:, None]] = np.inf
        second = distances.min(axis=1)
        found.append(np.where(np.isfinite(second), second, first))
    known = [a for a in found if np.isfinite(a).all()]
    return np.maximum(np.mean(known, axis=0), 0).reshape(scorer.grid).astype(np.float32) if known else None


def named_suspects(
    ranking: Ranking, images: Sequence[ImageLike], names: Sequence[str], excluded: Collection[int]
) -> tuple[Suspect, ...]:
    """The ranking with names, the most suspicious first."""
    typical = float(np.median(ranking.scores)) if len(ranking.scores) else 1.0
    return tuple(
        Suspect(names[i], float(score), float(score) / max(typical, 1e-12), i in excluded, images[i], patches)
        for i, score, patches in zip_longest(ranking.images, ranking.scores, ranking.maps)
    )


def parse_exclusion(text: str) -> int | float:
    """A number of images, or a share of them.

    >>> parse_exclusion("10"), parse_exclusion("5%"), parse_exclusion("0.05")
    (10, 0.05, 0.05)
    """
    try:
        if text.endswith("%"):
            return float(text[:-1]) / 100
        return float(text) if "." in text else int(text)
    except ValueError:
        raise UserError(
            f"--exclude-suspicious takes a number of images or a share, for example 10 or 5%, not '{text}'"
        ) from None
