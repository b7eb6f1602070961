"""The patches that decided a calibration image's scores, kept so that the scores can be taken again.

A stored score belongs to one whitening and one bank. When a model grows, both change and the image is gone. Its score
hung on the few patches around the peak of its map, though: those are kept in the model, and scored again with the rest
of the image as normal as a bank row. The new score misses a peak that appears elsewhere.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from mhpatchcore.bank.patches import Patches
from mhpatchcore.metric.whitening import Whitening
from mhpatchcore.runtime.arrays import Array, Floats, Indices, Mask
from mhpatchcore.scoring.rules import PatchScores, Scorer

PER_MAP = 32  # a smoothed map's peak hangs on some 5 × 5 cells
NOT_LEARNT = -1


@dataclass(frozen=True, eq=False)
class Witness:
    """Raw descriptors (t, d) at `places` (t,) of an image's grid, and its index in the model, or NOT_LEARNT."""

    image: int
    places: Indices
    rows: Array


class Statement(NamedTuple):
    """A calibration image's score, the peak of its map, and the patches that decided both."""

    score: float
    peak: float
    witness: Witness


def hear(image: int, raw: Array, z: Floats, scorer: Scorer, among: Mask | None = None) -> Statement:
    """Score an image's patches raw (h·w, d), whitened z (h·w, k), against the bank rows marked in `among`."""
    scored = scorer(z, among)
    places = deciding_places(scored)
    return Statement(scored.score, scored.peak, Witness(image, places, raw[places]))


def hear_again(witness: Witness, whitening: Whitening, bank: Patches, scorer: Scorer) -> Statement:
    """The same image under another whitening and bank, without the bank rows that come from itself."""
    others = bank.origin[:, 0] != witness.image
    patches = scorer.grid[0] * scorer.grid[1]
    raw = np.repeat(bank.raw[[others.argmax()]], patches, axis=0)
    raw[witness.places] = witness.rows
    scored = scorer(whitening(raw), others)
    return Statement(scored.score, scored.peak, witness)


def deciding_places(scored: PatchScores) -> Indices:
    """The grid cells (t,) in and around the peaks of both maps, that of the image score and that of the pixels."""
    first, second = _by_surroundings(scored.nearest), _by_surroundings(scored.a)
    # the second map adds as many again, so that all images have the same number
    further = second[~np.isin(second, first[:PER_MAP])]
    return np.sort(np.concatenate([first[:PER_MAP], further[:PER_MAP]])).astype(np.int32)


def _by_surroundings(a: Floats) -> Indices:
    """All cells (h·w,) of a map (h, w), highest surroundings first."""
    padded = np.pad(a, 1, mode="edge")
    rows = padded[:-2] + padded[1:-1] + padded[2:]
    around = rows[:, :-2] + rows[:, 1:-1] + rows[:, 2:]
    return np.argsort(-around.ravel(), kind="stable")


def stacked(witnesses: Sequence[Witness]) -> tuple[Indices, Indices, Array]:
    """Images (n,), places (n, t) and rows (n, t, d), as a file keeps them."""
    if not witnesses:
        return np.empty(0, np.int32), np.empty((0, 0), np.int32), np.empty((0, 0, 0), np.float16)
    images = np.array([witness.image for witness in witnesses], np.int32)
    places, rows = zip(*((witness.places, witness.rows) for witness in witnesses), strict=True)
    return images, np.stack(places), np.stack(rows)


def unstacked(images: Indices, places: Indices, rows: Array) -> tuple[Witness, ...]:
    return tuple(Witness(int(i), p, r) for i, p, r in zip(images, places, rows, strict=True))
