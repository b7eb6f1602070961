"""Mini-batch k-means with Robbins–Monro counts (Sculley 2010): centroids instead of observed patches.

Each patch of a chunk moves its centroid by 1/count towards itself. Assignments are made once per chunk, so
the moves of a chunk add up to a running mean, which is what is computed.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from mhpatchcore.bank.patches import CENTROID, Patches, Stream
from mhpatchcore.metric.distances import nearest_rows
from mhpatchcore.runtime.arrays import Doubles, Indices


@dataclass(frozen=True, eq=False)
class Centroids:
    """z (K, k) and how many patches each has taken in."""

    z: Doubles
    counts: Indices


def mini_batch_kmeans(stream: Stream, K: int, seed: int = 0) -> Patches:
    """At most K centroids, started from a random sample of the first chunks that hold K patches."""
    waiting: list[Patches] = []
    centroids: Centroids | None = None
    for chunk in stream.patches():
        if centroids is not None:
            centroids = moved(centroids, chunk)
            continue
        waiting.append(chunk)
        if sum(map(len, waiting)) >= K:
            centroids = moved(_sampled(Patches.concat(waiting), K, seed), Patches.concat(waiting))
            waiting = []
    if centroids is None:
        centroids = _sampled(Patches.concat(waiting), K, seed)
    origin = np.full((len(centroids.z), 4), CENTROID, np.int32)
    return Patches(centroids.z.astype(np.float32), origin)


def moved(centroids: Centroids, chunk: Patches) -> Centroids:
    """Centroids after every patch of the chunk has moved its nearest one."""
    nearest, _ = nearest_rows(chunk.z, centroids.z.astype(np.float32))
    order = np.argsort(nearest, kind="stable")
    groups, first = np.unique(nearest[order], return_index=True)
    added = np.diff(np.append(first, len(order)))
    counts, z = centroids.counts.copy(), centroids.z.copy()
    counts[groups] += added
    means = np.add.reduceat(chunk.z[order].astype(np.float64), first, axis=0) / added[:, None]
    z[groups] += (added / counts[groups])[:, None] * (means - z[groups])
    return Centroids(z, counts)


def _sampled(patches: Patches, K: int, seed: int) -> Centroids:
    rows = np.sort(np.random.default_rng(seed).permutation(len(patches))[:K])
    return Centroids(patches.z[rows].astype(np.float64), np.zeros(len(rows), np.int64))
