"""Which pictures a page shows, decided while results stream past: pictures are made for few of them only."""

from __future__ import annotations

import heapq
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from mhpatchcore.inputs.datasets import Sample
from mhpatchcore.report.pictures import Picture, picture_of
from mhpatchcore.result import Result

FALSE_ALARM, MISSED, FOUND, PASSED = "false alarm", "missed", "found", "passed"


def verdict_of(is_anomalous: bool, flagged: bool) -> str:
    """How the detector's word compares with the label."""
    if is_anomalous:
        return FOUND if flagged else MISSED
    return FALSE_ALARM if flagged else PASSED


@dataclass(frozen=True)
class Exhibit:
    """A picture with what was said about it."""

    path: Path
    kind: str
    verdict: str
    score: float
    p_value: float
    picture: Picture


@dataclass
class Shelf:
    """Room for the `size` exhibits of the highest rank; of equals the earlier one stays."""

    size: int
    _heap: list[tuple[float, int, Exhibit]] = field(default_factory=list)
    _offered: int = 0

    def wants(self, rank: float) -> bool:
        return len(self._heap) < self.size or (self.size > 0 and rank > self._heap[0][0])

    def put(self, rank: float, exhibit: Exhibit) -> None:
        self._offered += 1
        add = heapq.heappush if len(self._heap) < self.size else heapq.heappushpop
        add(self._heap, (rank, -self._offered, exhibit))

    def exhibits(self) -> list[Exhibit]:
        """Highest rank first."""
        return [exhibit for _, _, exhibit in sorted(self._heap, key=lambda entry: entry[:2], reverse=True)]


class Gallery:
    """Keeps at most `limit` pictures of all the results it is offered.

    A third of the room is for the worst false alarms and a third for the worst misses; the rest is for the
    strongest detections of each kind of defect and a few of the calmest good parts.
    """

    def __init__(self, kinds: Iterable[str], limit: int) -> None:
        kinds = sorted(set(kinds))
        third, calm = limit // 3, limit // 12
        per_kind = (limit - 2 * third - calm) // max(len(kinds), 1)
        self._limit = limit
        self._shelves = {
            (FALSE_ALARM, ""): Shelf(third),
            (MISSED, ""): Shelf(third),
            **{(FOUND, kind): Shelf(max(per_kind, 1)) for kind in kinds[:limit]},
            (PASSED, ""): Shelf(calm),
        }

    def offer(self, sample: Sample, result: Result) -> None:
        """Take the result's picture if it belongs to those worth seeing so far."""
        verdict = verdict_of(sample.is_anomalous, result.is_anomalous)
        shelf = self._shelves.get((verdict, sample.kind if verdict == FOUND else ""))
        rank = -result.score if verdict in (MISSED, PASSED) else result.score
        if shelf is not None and shelf.wants(rank):
            picture = picture_of(sample, result)
            shelf.put(rank, Exhibit(sample.path, sample.kind, verdict, result.score, result.p_value, picture))

    def exhibits(self) -> list[Exhibit]:
        """What the page shows, in its order: false alarms, misses, detections by kind, calm good parts."""
        return [exhibit for shelf in self._shelves.values() for exhibit in shelf.exhibits()][: self._limit]
