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
from dataclasses import dataclass, field, replace
from pathlib import Path

from mhpatchcore.deploy.inbox.parts import Inbox, Label, Part
from mhpatchcore.deploy.inbox.preview import ACTIONS, Action, Effect, Outcome, Preview
from mhpatchcore.deploy.inbox.versions import changed, content_of, earlier_version, learnt_of
from mhpatchcore.detector import Detector
from mhpatchcore.errors import ModelFileError, UserError
from mhpatchcore.fitting.execution import Execution
from mhpatchcore.fitting.storekeeping import temporary_folder
from mhpatchcore.inputs.places import SUFFIXES
from mhpatchcore.model.file import from_bytes, to_bytes
from mhpatchcore.model.history import differ
from mhpatchcore.runtime.files import atomic_path

STEM = 60  # letters
LARGEST_RATE = 0.5  # of good parts that may be rejected


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


@dataclass(frozen=True, eq=False)
class Proposal:
    """A changed model, as its file, that waits for a yes; and what it would do."""

    path: Path
    request: Request
    content: bytes
    preview: Preview
    new: tuple[Part, ...] = field(default=())


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
        chosen = earlier_version(inbox.journal, path, request.version)
        content, version = content_of(path, chosen), chosen.version
        after = Detector(from_bytes(content, f"version {version} of {path}"))
        if differ(before.model.product, after.model.product):
            remarks.append(f"version {version} is a model of {after.model.product}")
    else:
        new = _chosen(inbox, path.stem, request, before)
        with temporary_folder() as temporary:
            files = {one.id: _written(inbox, one, temporary) for one in new}
            after = _changed(before, request, new, files, execution)
        folder = str(learnt_of(path).resolve())
        after = _signed(after, len(before.history), folder, request)
        content = to_bytes(after.model)
    effects = _effects(inbox, inbox.parts(path.stem), before, after, execution) if scored else ()
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
    return Proposal(path, request, content, preview, tuple(learnt))


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
    try:
        content = path.read_bytes()
    except OSError as error:
        raise ModelFileError(f"cannot read {path}: {error.strerror}; check the path") from error
    return hashlib.sha256(content).hexdigest(), Detector(from_bytes(content, str(path)))


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
    if request.ids is None:
        labelled = [] if request.action == "recalibrate" else inbox.parts(model, wanted)
        chosen = [one for one in labelled if one.sha256 not in known]
    else:
        chosen = inbox.parts(model, ids=request.ids)
    for one in chosen:
        if one.label != wanted and wanted == "good":
            raise UserError(f"part {one.id} is a defect: only good parts are learnt and calibrated with")
        if one.label != wanted:
            raise UserError(f"part {one.id} is a good part: only defects are taught")
        if one.sha256 in known:
            raise UserError(f"the model has learnt from part {one.id} already, as a good part: leave it out")
    if not chosen and request.action == "learn":
        raise UserError(f"the inbox has no good parts that {model} has not learnt from: label some first")
    if not chosen and request.action == "teach":
        raise UserError(f"the inbox has no defects of {model} to teach: label some first")
    return chosen[::-1]  # as they came


def _changed(
    detector: Detector, request: Request, parts: Sequence[Part], files: dict[int, Path], execution: Execution
) -> Detector:
    if request.action == "recalibrate":
        images = [files[one.id] for one in parts] or None
        return detector.calibrated(request.false_alarm, images, add=not request.instead, execution=execution)
    if request.action == "teach":
        for name in sorted({_defect_name(one, request) for one in parts}):
            same = [files[one.id] for one in parts if _defect_name(one, request) == name]
            detector = detector.taught(same, name=name, execution=execution)
        return detector
    for returned in (False, True):
        images = [files[one.id] for one in parts if one.was_rejected == returned]
        if images:
            detector = detector.updated(images, returned=returned, execution=execution)
    return detector


def _defect_name(part: Part, request: Request) -> str:
    return request.name or part.note or "defect"


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
