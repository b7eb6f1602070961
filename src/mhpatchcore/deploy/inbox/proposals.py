"""From labels to a better model: a change is proposed, shown on the inbox, then accepted or forgotten.

    proposed = propose(inbox, Path("part.mhpc"), Request("learn"))
    proposed.preview.lost                   # labelled defects that are caught now and would pass
    accept(inbox, proposed)                 # the former model is kept: Request("undo") goes back to it

Nothing is written before `accept`. Good parts that had been rejected are learnt as returned ones: picked because they
scored high, they are not a fair sample, so they do not count in the threshold.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal, get_args

from mhpatchcore.deploy.inbox import Inbox, Label, Part
from mhpatchcore.deploy.inbox.versions import changed, earlier_version, learnt_of
from mhpatchcore.detector import Detector
from mhpatchcore.errors import UserError
from mhpatchcore.fitting.execution import Execution
from mhpatchcore.fitting.storekeeping import temporary_folder
from mhpatchcore.inputs.places import SUFFIXES
from mhpatchcore.model.file import from_bytes, read_file, to_bytes
from mhpatchcore.model.history import differ
from mhpatchcore.runtime.files import atomic_path

Action = Literal["learn", "teach", "recalibrate", "undo"]
ACTIONS: tuple[Action, ...] = get_args(Action)
FAR = 1.5  # times the threshold: what scores more is more likely a defect than a good part to be learnt
STEM = 60  # letters
LARGEST_RATE = 0.5  # of good parts that may be rejected
NAMES: dict[Label, str] = {"good": "good part", "defect": "defect"}


@dataclass(frozen=True)
class Request:
    """What is asked for: "learn" good parts, "teach" defects, "recalibrate" at another rate, with good parts, or both;
    or "undo".

    `ids` are those of labelled parts; None are all that the model does not know, when learning or teaching, and no
    parts when recalibrating. Their scores join those that the model has, or with `instead` take their place.
    `name` is what taught defects are called; "" are the notes of their labels. `version` is the one to go back to; None
    is one step.
    """

    action: Action
    ids: tuple[int, ...] | None = None
    false_alarm: float | None = None
    instead: bool = False
    version: int | None = None
    name: str = ""
    who: str = ""
    note: str = ""

    def __post_init__(self) -> None:
        if self.action not in ACTIONS:
            raise UserError(f"an action is {' or '.join(ACTIONS)}, not '{self.action}'")
        if self.false_alarm is not None and not 0 < self.false_alarm <= LARGEST_RATE:
            raise UserError(f"a rate lies between 0 and {LARGEST_RATE}, for example 0.01")


@dataclass(frozen=True)
class Outcome:
    """What a model says of a part."""

    score: float
    verdict: str

    def is_right(self, label: Label) -> bool:
        return (self.verdict == "rejected") == (label == "defect")


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
    def lost(self) -> list[Effect]:
        """Defects that are caught now and would pass."""
        defects = [one for one in self.effects if one.label == "defect"]
        return [one for one in defects if one.before.is_right("defect") and not one.after.is_right("defect")]

    @property
    def outliers(self) -> list[Effect]:
        """Parts that would be learnt although they score far above the threshold."""
        limit = FAR * self.threshold_before
        return [one for one in self.effects if one.id in self.learnt and one.before.score > limit]

    @property
    def warnings(self) -> tuple[str, ...]:
        """What was noticed while the change was made, and what it would teach that it should not."""
        if not self.outliers:
            return self.remarks
        worst = max(self.outliers, key=lambda one: one.before.score)
        which = worst.part or worst.name or f"part {worst.id}"
        times = worst.before.score / self.threshold_before
        more = f" (and {len(self.outliers) - 1} more)" if len(self.outliers) > 1 else ""
        told = (
            f"{which}{more} scores far above the threshold, {times:.1f} times: once it is learnt, defects like that "
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
        return {
            "parts": len(these),
            "right_before": sum(one.before.is_right(label) for one in these),
            "right_after": sum(one.after.is_right(label) for one in these),
        }


@dataclass(frozen=True, eq=False)
class Proposal:
    """A changed model, as its file, that waits for a yes; what it would do, and the parts that it would learn."""

    path: Path
    request: Request
    content: bytes
    preview: Preview
    new: list[Part]


def propose(
    inbox: Inbox, path: Path, request: Request, execution: Execution | None = None, *, scored: bool = True
) -> Proposal:
    """Make the change and see what it does, without writing anything; labelled parts are left out unless `scored`."""
    remarks: list[str] = []
    execution = replace(execution or Execution(), warn=remarks.append)
    sha256, before = loaded(path)
    new: list[Part] = []
    version = None
    if request.action == "undo":
        version, content = earlier_version(inbox.journal, path, request.version)
        after = Detector(from_bytes(content, f"version {version} of {path}"))
        if differ(before.model.product, after.model.product):
            remarks.append(f"version {version} is a model of {after.model.product}")
    else:
        new = _chosen(inbox, path.stem, request, before)
        with temporary_folder() as temporary:
            files = [(one, _written(inbox, one, temporary)) for one in new]
            after = _changed(before, request, files, execution)
        after = _signed(after, len(before.history), str(learnt_of(path).resolve()), request)
        content = to_bytes(after.model)
    effects = _effects(inbox, path.stem, before, after, execution) if scored else ()
    learnt = new if request.action == "learn" else []
    preview = Preview(
        request.action,
        sha256,
        len(new),
        before.threshold,
        after.threshold,
        before.calibration.expected_rate,
        after.calibration.expected_rate,
        effects,
        tuple(one.id for one in learnt),
        tuple(remarks),
        version,
    )
    return Proposal(path, request, content, preview, learnt)


def accept(inbox: Inbox, proposal: Proposal) -> str:
    """Put the proposed model in the place of the one it was made from; the new file's hash.

    Images that it has learnt are written into a folder where evidence finds them.
    """
    path, request = proposal.path, proposal.request

    def write_learnt() -> None:
        for part in proposal.new:
            _written(inbox, part, learnt_of(path))

    return changed(
        inbox.journal,
        path,
        proposal.content,
        request.action,
        instead_of=proposal.preview.model_sha256,
        who=request.who,
        note=request.note,
        first=write_learnt,
    )


def loaded(path: Path) -> tuple[str, Detector]:
    """A model file's hash, and the detector in it."""
    content, name = read_file(path)
    return hashlib.sha256(content).hexdigest(), Detector(from_bytes(content, name))


def file_name(part: Part) -> str:
    """A name for a part's image that no other image has and that is no more than a name.

    >>> one = Part(7, "good", "", "../line 1/a*.PNG", None, None, None, "", "", "", "", "", "vial", "ab" * 32, 9)
    >>> file_name(one)
    'a_-abababab.png'
    """
    given = Path(part.name or part.part or "part")
    stem = re.sub(r"[^\w.-]+", "_", given.stem)[:STEM] or "part"
    suffix = given.suffix.lower() if given.suffix.lower() in SUFFIXES else ".png"
    return f"{stem}-{part.sha256[:8]}{suffix}"


def _chosen(inbox: Inbox, model: str, request: Request, detector: Detector) -> list[Part]:
    """The labelled parts that take part in a change; good ones that the model has learnt from cannot."""
    known = set(detector.model.hashes)
    wanted: Label = "defect" if request.action == "teach" else "good"
    if request.ids is not None:
        chosen = inbox.parts(model, ids=request.ids)
    elif request.action == "recalibrate":
        return []
    else:
        chosen = [one for one in inbox.parts(model, wanted) if one.sha256 not in known]
    for one in chosen:
        if one.label != wanted:
            raise UserError(f"part {one.id} is a {NAMES[one.label]}: {request.action} takes {NAMES[wanted]}s")
        if one.sha256 in known:
            raise UserError(f"the model has learnt from part {one.id} already, as a good part: leave it out")
    if not chosen and request.action != "recalibrate":
        raise UserError(
            f"the inbox has no {NAMES[wanted]}s for {model} that it has not learnt from: label some first"
        )
    return chosen[::-1]  # as they came


def _changed(
    detector: Detector, request: Request, files: Sequence[tuple[Part, Path]], execution: Execution
) -> Detector:
    if request.action == "recalibrate":
        images = [file for _, file in files] or None
        return detector.calibrated(request.false_alarm, images, add=not request.instead, execution=execution)
    groups: dict[Any, list[Path]] = {}
    for part, file in files:
        name = request.name or part.note or "defect"
        groups.setdefault(name if request.action == "teach" else part.was_rejected, []).append(file)
    for group, images in sorted(groups.items()):
        if request.action == "teach":
            detector = detector.taught(images, name=group, execution=execution)
        else:
            detector = detector.updated(images, returned=group, execution=execution)
    return detector


def _signed(detector: Detector, known: int, folder: str, request: Request) -> Detector:
    """What has been added to the history says who, why, and where the images will be."""
    model = detector.model
    new = (
        replace(one, source=folder if one.images else one.source, who=request.who, note=request.note)
        for one in model.history[known:]
    )
    return Detector(replace(model, history=(*model.history[:known], *new)))


def _effects(
    inbox: Inbox, model: str, before: Detector, after: Detector, execution: Execution
) -> tuple[Effect, ...]:
    """Every labelled part under both models; one image at a time is in memory and on the disk."""
    effects, parts, learnt = [], inbox.parts(model), set(after.model.hashes)
    with temporary_folder() as temporary:
        for part in execution.track("score", parts, len(parts)):
            file = _written(inbox, part, temporary)
            # on one core each, as the service scores
            results = [detector.score_opened(detector.opened(file)) for detector in (before, after)]
            outcomes = (Outcome(one.score, one.verdict) for one in results)
            effects.append(
                Effect(part.id, part.name, part.part, part.label, part.sha256 in learnt, *outcomes)
            )
            file.unlink()
    return tuple(effects)


def _written(inbox: Inbox, part: Part, folder: Path) -> Path:
    file = folder / file_name(part)
    with atomic_path(file) as temporary:
        temporary.write_bytes(inbox.image(part.id))
    return file
