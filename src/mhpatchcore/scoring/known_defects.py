"""Defects that were shown to the model: a second bank, by which places that depart from normal are named.

What a patch departs from is the mean of all normal patches, which whitening moves to zero. How much two patches are
alike in it is the cosine of their whitened rows, whatever its strength:

    like(u, m) = z(u)·z(m) / (‖z(u)‖ ‖z(m)‖)

The patches of a region vote for the defect whose nearest row they are most like, with their distance to the normal bank
as weight. The winner's share of the votes, times how like it they are, is how sure the name is; below SURE the name is
"unknown". An image is as like a known defect as the most like of its LOOKED_AT patches that depart most.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

import numpy as np

from mhpatchcore.inputs.regions import Extent
from mhpatchcore.metric.distances import squared_norms
from mhpatchcore.metric.whitening import Whitening
from mhpatchcore.runtime.arrays import Array, Floats, Indices
from mhpatchcore.scoring.maps import ViewScores, surroundings

UNKNOWN = "unknown"
SURE = 0.25
LOOKED_AT = 64  # patches of each scale: as many as calibration keeps of an image
HIGH = 0.5  # of the largest distance in a region: patches below it say little
MOST_NAME = 100  # letters
PATCHES_AT_ONCE = 64  # so few that BLAS does not spread the product over threads


@dataclass(frozen=True, eq=False)
class KnownDefects:
    """The names of defects and from how many images each is known; for every scale raw descriptors (m, d), in halves,
    and which name (m,) each of them has."""

    names: tuple[str, ...]
    images: tuple[int, ...]
    rows: tuple[Array, ...]
    kinds: tuple[Indices, ...]

    def directions(self, scale: int, whitening: Whitening) -> list[Floats]:
        """The whitened rows (m, k) of every name at one scale, of length 1."""
        z = _of_length_1(whitening(self.rows[scale]))
        return [z[self.kinds[scale] == kind] for kind in range(len(self.names))]

    def together(self, other: KnownDefects) -> KnownDefects:
        """What both know; equal names are one defect."""
        if not (self.names and other.names):
            return self if self.names else other
        counts = Counter(dict(zip(self.names, self.images, strict=True)))
        counts.update(dict(zip(other.names, other.images, strict=True)))
        place = np.array([list(counts).index(name) for name in other.names], np.int32)
        rows = tuple(np.concatenate(pair) for pair in zip(self.rows, other.rows, strict=True))
        kinds = tuple(
            np.concatenate([mine, place[theirs]])
            for mine, theirs in zip(self.kinds, other.kinds, strict=True)
        )
        return KnownDefects(tuple(counts), tuple(counts.values()), rows, kinds)


NO_DEFECTS = KnownDefects((), (), (), ())


def likenesses(z: Floats, defects: Sequence[Floats]) -> Floats:
    """How like (n, patches) whitened patches (k, patches) are to what is most like them of n defects' rows (m, k)."""
    found = np.full((len(defects), z.shape[1]), -1, np.float32)
    for start in range(0, z.shape[1], PATCHES_AT_ONCE):
        piece = slice(start, start + PATCHES_AT_ONCE)
        patches = _of_length_1(z[:, piece].T)
        for most, rows in zip(found, defects, strict=True):
            if len(rows):
                most[piece] = (patches @ rows.T).max(axis=1)
    return found


def _of_length_1(z: Floats) -> Floats:
    return z / np.maximum(np.sqrt(squared_norms(z)), np.float32(1e-12))[:, None]


def name_in(views: Sequence[ViewScores], names: Sequence[str], box: Extent) -> tuple[str, float]:
    """What the patches in a box of the image are called, and how sure that is, from 0 to 1."""
    votes, total = np.zeros(len(names)), 0.0
    for view in views:
        cells = view.cells_in(box)
        if cells is None or view.known is None:
            continue
        a, like = view.counted[cells].ravel(), view.known[:, *cells].reshape(len(names), -1)
        a = np.where(a >= HIGH * a.max(), a, 0)
        votes += np.bincount(like.argmax(axis=0), weights=a * like.max(axis=0).clip(0), minlength=len(names))
        total += float(a.sum())
    most = int(votes.argmax())
    sure = float(votes[most] / max(total, 1e-12))
    return (names[most] if sure >= SURE else UNKNOWN), sure


def most_like(views: Sequence[ViewScores]) -> tuple[float, int]:
    """How like an image is to the known defect that it is most like, and which that is; −1 where none is known."""
    found = (-1.0, 0)
    for _, of_scale in groupby(views, lambda view: view.scale):
        seen = [
            (surroundings(view.counted).ravel(), view.known.reshape(len(view.known), -1))
            for view in of_scale
            if view.known is not None
        ]
        if seen:
            high, known = (np.concatenate(every, axis=-1) for every in zip(*seen, strict=True))
            known = known[:, np.argsort(-high, kind="stable")[:LOOKED_AT]]
            kind = int(known.max(axis=1).argmax())
            found = max(found, (float(known[kind].max()), kind))
    return found
