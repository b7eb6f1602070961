"""A uniform random sample of all patches: the control that every clever constructor has to beat."""

from __future__ import annotations

import numpy as np

from mhpatchcore.bank.patches import Patches, Stream, Summary
from mhpatchcore.runtime.arrays import Doubles

Tickets = tuple[Doubles, Patches]


class Lottery:
    """Keeps `size` patches of a stream, each subset equally likely: those with the smallest random numbers.

    Numbers are drawn per chunk, by its first image, so that threads and order of arrival do not matter.
    """

    def __init__(self, size: int, seed: int) -> None:
        self.size, self.seed = size, seed
        self._kept: Tickets | None = None

    def tickets(self, chunk: Patches) -> Tickets:
        """What a chunk sends to the draw: at most `size` patches with their numbers. Pure."""
        draws = np.random.default_rng([self.seed, int(chunk.origin[0, 0])]).random(len(chunk))
        return self._smallest(draws, chunk)

    def add(self, tickets: Tickets) -> None:
        if self._kept is not None:
            draws = np.concatenate([self._kept[0], tickets[0]])
            tickets = self._smallest(draws, Patches.concat([self._kept[1], tickets[1]]))
        self._kept = tickets

    def add_past(self, past: Summary) -> Patches:
        """The winners of an earlier draw, the first rows of its bank, take part again; all its rows come back.

        The smallest m of n random numbers lie evenly below m/n: so the earlier winners stand for all n patches. One
        that loses now may still be wanted where the bank has room.
        """
        winners = np.arange(min(self.size, len(past.rows)))
        draws = np.random.default_rng([self.seed, past.n, 1]).random(len(winners))
        self.add((draws * min(1.0, len(winners) / past.n), past.rows.take(winners)))
        return past.rows

    def winners(self) -> Patches:
        assert self._kept is not None
        return self._kept[1]

    def _smallest(self, draws: Doubles, patches: Patches) -> Tickets:
        kept = np.sort(np.argsort(draws, kind="stable")[: self.size])
        return draws[kept], patches.take(kept)


def random_sample(stream: Stream, K: int, seed: int = 0) -> Patches:
    """K patches at random."""
    lottery = Lottery(K, seed)
    for past in stream.past:
        lottery.add_past(past)
    for tickets in stream.map(lottery.tickets):
        lottery.add(tickets)
    return lottery.winners()
