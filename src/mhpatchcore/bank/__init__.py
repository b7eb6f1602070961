"""The memory bank: constructors turn a stream of whitened patches into at most K rows.

A constructor is a function from a stream, which can be read again, to the chosen patches. GeoReS reads it
twice, always-full again only where one pass leaves it short of K; the others once.
"""

from __future__ import annotations

from collections.abc import Callable

from mhpatchcore.bank.geores import geores
from mhpatchcore.bank.kmeans import mini_batch_kmeans
from mhpatchcore.bank.merge_reduce import always_full, tree
from mhpatchcore.bank.offline_greedy import offline_greedy
from mhpatchcore.bank.patches import Patches, Stream
from mhpatchcore.bank.sample import random_sample
from mhpatchcore.config import Config

CONSTRUCTORS: dict[str, Callable[[Stream, Config], Patches]] = {
    "always-full": lambda stream, c: always_full(stream, c.K, c.m_c, c.dense, c.seed),
    "tree": lambda stream, c: tree(stream, c.K, c.m_c),
    "offline-greedy": lambda stream, c: offline_greedy(
        stream, None if c.fraction else c.K, c.fraction, c.projection, c.start, c.seed
    ),
    "kmeans": lambda stream, c: mini_batch_kmeans(stream, c.K, c.seed),
    "geores": lambda stream, c: geores(stream, c.K, c.m_c, c.alpha, c.q),
    "random": lambda stream, c: random_sample(stream, c.K, c.seed),
}


def build_bank(stream: Stream, config: Config) -> Patches:
    """The bank that the configuration asks for."""
    return CONSTRUCTORS[config.constructor](stream, config)
