"""Times that can be compared on a machine that others use too."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

import numpy as np

from mhpatchcore.runtime.arrays import Doubles

Work = Callable[[int], object]


def interleaved(
    works: Sequence[Work], rounds: int, warm_up: int = 1, clock: Callable[[], float] = time.perf_counter
) -> Doubles:
    """Seconds (rounds, works) of works called in turns with the number of the round.

    What else runs on the machine disturbs all of them alike: the median over the rounds of a ratio within a round says
    more than the ratio of two times. The first rounds warm up and do not count.
    """
    times = np.empty((warm_up + rounds, len(works)))
    for i in range(len(times)):
        for j, work in enumerate(works):
            started = clock()
            work(i)
            times[i, j] = clock() - started
    return times[warm_up:]


def medians(times: Doubles) -> list[float]:
    """Of each work."""
    return [float(seconds) for seconds in np.median(times, axis=0)]


def ratio(numerator: Doubles, denominator: Doubles) -> float:
    """The median over the rounds of what one work (rounds,) takes as a multiple of another."""
    return float(np.median(numerator / denominator))
