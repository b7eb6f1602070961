"""What a change of a model would do, before it is done: to every labelled part, and to the threshold."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal, get_args

from mhpatchcore.deploy.inbox.parts import Label

Action = Literal["learn", "teach", "recalibrate", "undo"]
ACTIONS: tuple[Action, ...] = get_args(Action)
FAR = 1.5  # times the threshold: what scores more is more likely a defect than a good part to be learnt


@dataclass(frozen=True)
class Outcome:
    """What a model says of a part."""

    score: float
    verdict: str


@dataclass(frozen=True)
class Effect:
    """A labelled part under the model in use and under the proposed one.

    Of a part that is learnt the second says little: the model has seen it.
    """

    id: int
    name: str
    part: str
    label: Label
    learnt: bool
    before: Outcome
    after: Outcome

    @property
    def is_right_before(self) -> bool:
        return _is_right(self.label, self.before)

    @property
    def is_right_after(self) -> bool:
        return _is_right(self.label, self.after)


@dataclass(frozen=True)
class Preview:
    """What a change would do to every labelled part, and to the threshold. Rates are those that are really promised.

    `learnt` are the ids of parts that would be learnt now. `version` is the one that an "undo" goes back to.
    """

    action: Action
    model_sha256: str
    new_images: int
    threshold_before: float
    threshold_after: float
    rate_before: float
    rate_after: float
    effects: tuple[Effect, ...]
    learnt: tuple[int, ...]
    remarks: tuple[str, ...]
    version: int | None = None

    @property
    def lost(self) -> tuple[Effect, ...]:
        """Defects that are caught now and would pass."""
        return tuple(one for one in self.effects if _caught(one.label, one.before) and not one.is_right_after)

    @property
    def outliers(self) -> tuple[Effect, ...]:
        """Parts that would be learnt although they score far above the threshold."""
        return tuple(
            one
            for one in self.effects
            if one.id in self.learnt and one.before.score > FAR * self.threshold_before
        )

    @property
    def warnings(self) -> tuple[str, ...]:
        """What was noticed while the change was made, and what it would teach that it should not."""
        if not self.outliers:
            return self.remarks
        worst = max(self.outliers, key=lambda one: one.before.score)
        which = worst.part or worst.name or f"part {worst.id}"
        times = worst.before.score / self.threshold_before
        others = f" and {len(self.outliers) - 1} others score" if len(self.outliers) > 1 else " scores"
        told = (
            f"{which}{others} far above the threshold, {times:.1f} times at most: once it is learnt, defects like that "
            "pass; leave out what is not certainly good"
        )
        return (*self.remarks, told)

    def to_json(self) -> dict[str, Any]:
        facts = {name: value for name, value in asdict(self).items() if name != "remarks"}
        return facts | {
            "warnings": [*self.warnings],
            "outliers": [one.id for one in self.outliers],
            "good": self._counts("good"),
            "defects": self._counts("defect"),
            "lost": [one.id for one in self.lost],
        }

    def _counts(self, label: Label) -> dict[str, int]:
        """Good parts that pass, or defects that are caught."""
        these = [one for one in self.effects if one.label == label]
        before, after = sum(one.is_right_before for one in these), sum(one.is_right_after for one in these)
        return {"parts": len(these), "right_before": before, "right_after": after}


def _is_right(label: Label, outcome: Outcome) -> bool:
    return (outcome.verdict == "rejected") == (label == "defect")


def _caught(label: Label, outcome: Outcome) -> bool:
    return label == "defect" and outcome.verdict == "rejected"
