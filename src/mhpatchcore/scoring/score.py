"""The scoring graph, run: on a view, or on the stored layers of an image."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from mhpatchcore.backbone.descriptors import LOCAL
from mhpatchcore.backbone.session import make_session
from mhpatchcore.backbone.stored import StoredImage, stored_inside, stored_maps
from mhpatchcore.errors import UserError
from mhpatchcore.inputs.views import Geometry
from mhpatchcore.runtime.arrays import Array, Floats, Indices, Mask
from mhpatchcore.runtime.parallel import Memoised
from mhpatchcore.runtime.store import Store
from mhpatchcore.scoring.graph import EXCLUDED, SCORES


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

    A score that is no number would be neither above nor below any threshold: it is refused.
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
