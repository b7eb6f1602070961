"""Mini-batch k-means with Robbins–Monro counts (Sculley 2010): centroids instead of observed patches.

Each patch moves its centroid by 1/count towards itself. The paper leaves the start open; the authors' release takes
scikit-learn's, k-means++ on a sample of the first patches, where centroids that take in next to nothing are put
elsewhere. So does this.
"""

from __future__ import annotations

import numpy as np

from mhpatchcore.bank.patches import CENTROID, Patches, Stream
from mhpatchcore.runtime.arrays import Floats
from mhpatchcore.runtime.parallel import late_blas_limited

BATCH = 256  # by which scikit-learn sets the size of the sample that it starts from


def mini_batch_kmeans(stream: Stream, K: int, seed: int = 0) -> Patches:
    """At most K centroids; fewer patches than that are their own."""
    from sklearn.cluster import MiniBatchKMeans

    kmeans = MiniBatchKMeans(K, batch_size=BATCH, n_init="auto", random_state=seed)
    waiting: list[Floats] = []
    started = False
    for chunk in stream.patches():
        waiting.append(chunk.z)
        if started or sum(map(len, waiting)) >= K:
            with late_blas_limited():
                kmeans.partial_fit(np.concatenate(waiting))
            waiting, started = [], True
    z: Floats = kmeans.cluster_centers_ if started else np.concatenate(waiting)
    return Patches(z, np.full((len(z), 4), CENTROID, np.int32))
