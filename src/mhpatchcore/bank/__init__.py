"""The memory bank: constructors turn a stream of whitened patches into at most K rows.

A constructor is a function from a stream, which can be read again, to the chosen patches. GeoReS reads it
twice, always-full again only where one pass leaves it short of K; the others once.
"""

from __future__ import annotations

from mhpatchcore.bank.always_full import always_full
from mhpatchcore.bank.farthest_first import Start
from mhpatchcore.bank.geores import geores
from mhpatchcore.bank.kmeans import mini_batch_kmeans
from mhpatchcore.bank.offline_greedy import offline_greedy
from mhpatchcore.bank.patches import Patches, Stream
from mhpatchcore.bank.tree import tree
from mhpatchcore.config import Config


def build_bank(stream: Stream, config: Config, patches: int) -> Patches:
    """The bank that the configuration asks for, of a stream that stands for so many patches."""
    c, start = config, Start(config.start, config.seed)
    match c.constructor:
        case "always-full":
            return always_full(stream, c.K, c.m_c, start)
        case "tree":
            return tree(stream, c.K, c.m_c, start)
        case "offline-greedy":
            rows = None if c.fraction else c.K
            return offline_greedy(stream, rows, c.fraction, c.projection, start, patches)
        case "kmeans":
            return mini_batch_kmeans(stream, c.K, c.seed)
        case _:
            return geores(stream, c.K, c.m_c, c.alpha, c.q, start)
