"""From labels to a better model: a change is proposed, shown on the inbox, then accepted or forgotten.

    proposed = propose(inbox, Path("part.mhpc"), Request("learn"))
    proposed.preview.lost                   # labelled defects that are caught now and would pass
    accept(inbox, proposed)                 # the former model is kept: `inbox_versions.undone`

Nothing is written before `accept`. Good parts that had been rejected are learnt as returned ones: picked because they
scored high, they are no fair sample, so they do not count in the threshold.
"""

from __future__ import annotations

import hashlib
import re
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, get_args

from mhpatchcore.deploy.inbox import Inbox, Label, Part, changed
from mhpatchcore.deploy.inbox_versions import replaced
from mhpatchcore.detector import Detector
from mhpatchcore.errors import ModelFileError, UserError
from mhpatchcore.fitting.execution import Execution
from mhpatchcore.inputs.folders import SUFFIXES
from mhpatchcore.model.file import from_bytes
from mhpatchcore.runtime.files import atomic_path

LEARNT = "learnt"  # the folder beside the models where evidence finds what was learnt from the inbox
Action = Literal["learn", "recalibrate"]
ACTIONS: tuple[Action, ...] = get_args(Action)
STEM = 60  # letters


@dataclass(frozen=True)
class Request:
    """What is asked for: "learn" good parts, or "recalibrate" at another rate, with good parts, or both.

    `ids` are those of labelled parts; None are all good ones that the model has not learnt from, when learning, and no
    parts when recalibrating. Their scores join those that the model has, or with `instead` take their place.
    """

    action: Action
    ids: tuple[int, ...] | None = None
    false_alarm: float | None = None
    instead: bool = False
    who: str = ""
    note: str = ""

    def __post_init__(self) -> None:
        if self.action not in ACTIONS:
            raise UserError(f"an action is {' or '.join(ACTIONS)}, not '{self.action}'")


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
    """What a change would do to every labelled part, and to the threshold. Rates are those that are really promised."""

    action: Action
    model_sha256: str
    new_images: int
    threshold_before: float
    threshold_after: float
    rate_before: float
    rate_after: float
    effects: tuple[Effect, ...]
    warnings: tuple[str, ...]

    @property
    def lost(self) -> tuple[Effect, ...]:
        """Defects that are caught now and would pass."""
        return tuple(one for one in self.effects if _caught(one.label, one.before) and not one.is_right_after)

    def to_json(self) -> dict[str, Any]:
        return asdict(self) | {
            "good": self._counts("good"),
            "defects": self._counts("defect"),
            "lost": [one.id for one in self.lost],
        }

    def _counts(self, label: Label) -> dict[str, int]:
        """Good parts that pass, or defects that are caught."""
        these = [one for one in self.effects if one.label == label]
        before, after = sum(one.is_right_before for one in these), sum(one.is_right_after for one in these)
        return {"parts": len(these), "right_before": before, "right_after": after}


@dataclass(frozen=True, eq=False)
class Proposal:
    """A changed model that waits for a yes, and what it would do."""

    path: Path
    request: Request
    detector: Detector
    preview: Preview
    new: tuple[Part, ...] = field(default=())


def propose(inbox: Inbox, path: Path, request: Request, execution: Execution | None = None) -> Proposal:
    """Make the change and see what it does, without writing anything."""
    warnings: list[str] = []
    execution = replace(execution or Execution(), warn=warnings.append)
    sha256, before = loaded(path)
    model = path.stem
    labelled = inbox.parts(model)
    new = _chosen(inbox, model, request, before)
    with tempfile.TemporaryDirectory(prefix="mhpatchcore-inbox-") as temporary:
        files = {one.id: _written(inbox, one, Path(temporary)) for one in new}
        after = _changed(before, request, new, files, execution)
    after = _signed(after, len(before.history), str((path.parent / LEARNT / model).resolve()), request)
    preview = Preview(
        request.action,
        sha256,
        len(new),
        before.threshold,
        after.threshold,
        before.calibration.expected_rate,
        after.calibration.expected_rate,
        _effects(inbox, labelled, before, after, execution),
        tuple(warnings),
    )
    return Proposal(path, request, after, preview, tuple(new) if request.action == "learn" else ())


def accept(inbox: Inbox, proposal: Proposal) -> str:
    """Put the proposed model in the place of the one it was made from; the new file's hash.

    Images that it has learnt are written first, into a folder where evidence finds them.
    """
    path, request, before = proposal.path, proposal.request, proposal.preview.model_sha256
    for part in proposal.new:
        _written(inbox, part, path.parent / LEARNT / path.stem)
    after = replaced(path, proposal.detector, instead_of=before)
    inbox.record(changed(path.stem, request.action, request.who, request.note, before, after))
    return after


def loaded(path: Path) -> tuple[str, Detector]:
    """A model file's hash, and the detector in it."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise ModelFileError(f"cannot read {path}: {error.strerror}; check the path") from error
    return hashlib.sha256(content).hexdigest(), Detector(from_bytes(content, str(path)))


def file_name(part: Part) -> str:
    """A name for a part's image that no other image has and that is no more than a name.

    >>> one = Part(7, "vial", "good", "", "../line 1/a*.PNG", "ab" * 32, 9, None, None, None, "", "", "", "", "")
    >>> file_name(one)
    'a_-abababab.png'
    """
    given = Path(part.name or part.part or "part")
    stem = re.sub(r"[^\w.-]+", "_", given.stem)[:STEM] or "part"
    suffix = given.suffix.lower() if given.suffix.lower() in SUFFIXES else ".png"
    return f"{stem}-{part.sha256[:8]}{suffix}"


def _chosen(inbox: Inbox, model: str, request: Request, detector: Detector) -> list[Part]:
    """The good parts that take part in a change; those that the model has learnt from cannot."""
    known = set(detector.model.hashes)
    if request.ids is None:
        good = inbox.parts(model, "good") if request.action == "learn" else []
        chosen = [one for one in good if one.sha256 not in known]
    else:
        chosen = inbox.parts(model, ids=request.ids)
    for one in chosen:
        if one.label != "good":
            raise UserError(f"part {one.id} is a defect: only good parts are learnt and calibrated with")
        if one.sha256 in known:
            raise UserError(f"the model has learnt from part {one.id} already: leave it out")
    if not chosen and request.action == "learn":
        raise UserError(f"the inbox has no good parts that {model} has not learnt from: label some first")
    return chosen[::-1]  # as they came


def _changed(
    detector: Detector, request: Request, parts: Sequence[Part], files: dict[int, Path], execution: Execution
) -> Detector:
    if request.action == "recalibrate":
        images = [files[one.id] for one in parts] or None
        return detector.calibrated(request.false_alarm, images, add=not request.instead, execution=execution)
    for returned in (False, True):
        images = [files[one.id] for one in parts if one.was_rejected == returned]
        if images:
            detector = detector.updated(images, returned=returned, execution=execution)
    return detector


def _signed(detector: Detector, known: int, folder: str, request: Request) -> Detector:
    """What has been added to the history says who, why, and where the images will be."""
    model = detector.model
    new = tuple(
        replace(one, source=folder if one.images else one.source, who=request.who, note=request.note)
        for one in model.history[known:]
    )
    return Detector(replace(model, history=(*model.history[:known], *new)))


def _effects(
    inbox: Inbox, parts: Sequence[Part], before: Detector, after: Detector, execution: Execution
) -> tuple[Effect, ...]:
    """Every labelled part under both models; one image at a time is in memory and on the disk."""
    effects = []
    learnt = set(after.model.hashes)
    with (
        tempfile.TemporaryDirectory(prefix="mhpatchcore-inbox-") as temporary,
        execution.phase("score", len(parts)) as advance,
    ):
        for done, part in enumerate(parts, start=1):
            file = _written(inbox, part, Path(temporary))
            results = [detector.score(file) for detector in (before, after)]
            outcomes = (Outcome(one.score, one.verdict) for one in results)
            effects.append(
                Effect(part.id, part.name, part.part, part.label, part.sha256 in learnt, *outcomes)
            )
            file.unlink()
            advance(done)
    return tuple(effects)


def _written(inbox: Inbox, part: Part, folder: Path) -> Path:
    file = folder / file_name(part)
    with atomic_path(file) as temporary:
        temporary.write_bytes(inbox.image(part.id))
    return file


def _is_right(label: Label, outcome: Outcome) -> bool:
    return (outcome.verdict == "rejected") == (label == "defect")


def _caught(label: Label, outcome: Outcome) -> bool:
    return label == "defect" and outcome.verdict == "rejected"
