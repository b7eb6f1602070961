"""Which pictures a page shows, decided while results stream past: pictures are made for few of them only."""

from __future__ import annotations

import heapq
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from mhpatchcore.evaluation.evaluate import Judged
from mhpatchcore.inputs.datasets import Sample
from mhpatchcore.report.captions import outline_note
from mhpatchcore.report.pictures import Picture, picture_of
from mhpatchcore.result import Result

FALSE_ALARM, MISSED, PASSED, NOT_JUDGED = "false alarm", "missed", "passed", "not judged"
# of a rejected defect: on the defect, elsewhere, or not known, since nobody has drawn the defect
FOUND, ELSEWHERE, REJECTED = "found", "rejected elsewhere", "rejected"
VERDICTS = (FALSE_ALARM, MISSED, ELSEWHERE, FOUND, REJECTED, PASSED, NOT_JUDGED)


def verdict_of(judged: Judged) -> str:
    """How the detector's word compares with the label, and what it outlines with the defect."""
    if judged.flagged is None:
        return NOT_JUDGED
    if not judged.is_anomalous:
        return FALSE_ALARM if judged.flagged else PASSED
    if not judged.flagged:
        return MISSED
    return REJECTED if judged.located is None else FOUND if judged.located else ELSEWHERE


@dataclass(frozen=True)
class GalleryItem:
    """A picture with what was said about it; `outline` says what its outline means."""

    path: Path
    kind: str
    verdict: str
    score: float
    p_value: float
    outline: str
    picture: Picture


@dataclass
class TopItems:
    """The `size` items of the highest rank; of equals the earlier one stays."""

    size: int
    _heap: list[tuple[float, int, GalleryItem]] = field(default_factory=list)
    _offered: int = 0

    def wants(self, rank: float) -> bool:
        return len(self._heap) < self.size or (self.size > 0 and rank > self._heap[0][0])

    def put(self, rank: float, item: GalleryItem) -> None:
        self._offered += 1
        add = heapq.heappush if len(self._heap) < self.size else heapq.heappushpop
        add(self._heap, (rank, -self._offered, item))

    def items(self) -> list[GalleryItem]:
        """Highest rank first."""
        return [item for _, _, item in sorted(self._heap, key=lambda entry: entry[:2], reverse=True)]


class Gallery:
    """Keeps at most `limit` pictures of all the results it is offered.

    A quarter of the room each is for the worst false alarms and the worst misses, a sixth for defects that were
    rejected for something elsewhere; the rest is for the strongest defects of each kind and a few of the calmest
    good parts.
    """

    def __init__(self, kinds: Iterable[str], limit: int) -> None:
        kinds = sorted(set(kinds))
        quarter, sixth, calm = limit // 4, limit // 6, limit // 12
        per_kind = (limit - 2 * quarter - sixth - calm) // max(len(kinds), 1)
        self._limit = limit
        self._groups: dict[str | tuple[str, str], TopItems] = {
            FALSE_ALARM: TopItems(quarter),
            MISSED: TopItems(quarter),
            ELSEWHERE: TopItems(sixth),
            **{("defects", kind): TopItems(max(per_kind, 1)) for kind in kinds[:limit]},
            "good": TopItems(calm),
        }

    def offer(self, sample: Sample, result: Result, judged: Judged) -> None:
        """Take the result's picture if it belongs to those worth seeing so far."""
        verdict = verdict_of(judged)
        others = ("defects", sample.kind) if judged.is_anomalous else "good"
        group = self._groups.get(verdict if verdict in self._groups else others)
        lowest_first = verdict == MISSED or group is self._groups["good"]
        rank = -result.score if lowest_first else result.score
        if group is not None and group.wants(rank):
            said = (sample.path, sample.kind, verdict, result.score, result.p_value)
            group.put(rank, GalleryItem(*said, outline_note(result), picture_of(sample, result)))

    def items(self) -> list[GalleryItem]:
        """What the page shows, in its order: false alarms, misses, rejected elsewhere, defects by kind, good parts."""
        return [item for group in self._groups.values() for item in group.items()][: self._limit]
